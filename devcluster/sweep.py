"""Removing what a dead cluster left: folders, cgroups, shared mount points. Safe to run again at any time."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from devcluster import cgroups, syscalls
from devcluster.errors import DevClusterError
from devcluster.paths import RUN_ROOT, ClusterPaths

# The kubelet, containerd and CNI use these whatever they are told. Each cluster mounts its own folder over them, for
# which they must exist on the machine.
SHARED_FOLDERS = (Path("/run/containerd"), Path("/var/lib/kubelet"), Path("/var/lib/cni"), Path("/var/log/containers"))
_MADE = "made-folders.json"


def shared_lock(root: Path = RUN_ROOT) -> Path:
    """The lock to hold around everything that adds or removes a cluster's folders."""
    return root.with_name(root.name + ".lock")


def make_shared_folders(root: Path = RUN_ROOT) -> None:
    """Create the shared mount points that are missing, and remember which."""
    root.mkdir(parents=True, exist_ok=True)
    record = root / _MADE
    made = set(json.loads(record.read_text())) if record.exists() else set()
    for folder in SHARED_FOLDERS:
        if not folder.exists():
            folder.mkdir(parents=True)
            made.add(str(folder))
    record.write_text(json.dumps(sorted(made)))


def remove_shared_folders(root: Path = RUN_ROOT) -> None:
    """Remove the shared mount points we made, unless a cluster is left that mounts over them.

    The kernel would let them go, and with them the mounts of a running cluster.
    """
    record = root / _MADE
    if not record.exists() or any(entry.is_dir() for entry in root.iterdir()):
        return
    for folder in json.loads(record.read_text()):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    record.unlink()
    with contextlib.suppress(OSError):
        root.rmdir()


def sweep(paths: ClusterPaths) -> None:
    """Remove cgroups and folders of a cluster that has no process any more; the run folder goes last.

    :raises DevClusterError: something would not go.
    """
    left = [str(group) for group in cgroups.remove(paths.cgroup)]
    # Never delete through a mount: behind one may be a folder of the machine.
    for folder in (paths.data, paths.run):
        if not syscalls.mounts_below(folder):
            shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            left.append(str(folder))
    with contextlib.suppress(OSError):
        paths.data.parent.rmdir()
    if left:
        raise DevClusterError(f"could not remove {', '.join(left)}: see who uses it with 'fuser -vm', then run down again")
