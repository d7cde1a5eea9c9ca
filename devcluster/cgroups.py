"""The cluster's own cgroup: made before the kubelet starts, removed when everything in it is dead.

A killed kubelet leaves its ``kubepods`` tree behind in every hierarchy; the kernel never removes it by itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


def hierarchies(mountinfo: str = "/proc/self/mountinfo") -> list[Path]:
    """Mount points of all cgroup hierarchies (v1: one a controller; v2: one)."""
    points = []
    for line in Path(mountinfo).read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.split(" ")[0] in ("cgroup", "cgroup2"):
            points.append(Path(left.split(" ")[4]))
    return points


def create(name: str) -> None:
    """Make cgroup ``name`` below each hierarchy's root and let it use all controllers."""
    for root in hierarchies():
        if (root / "cgroup.controllers").exists():
            _delegate_all(root)
        group = root / name
        group.mkdir(exist_ok=True)
        _inherit_cpuset(root, group)


def _delegate_all(root: Path) -> None:
    for controller in (root / "cgroup.controllers").read_text().split():
        # A controller that is busy elsewhere stays where it is; the kubelet then says what it misses.
        with contextlib.suppress(OSError):
            (root / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(root: Path, group: Path) -> None:
    # cgroup v1 gives a new cpuset no CPU at all, and nothing can be put into it until it has some.
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (group / name).exists() and not (group / name).read_text().strip():
            (group / name).write_text((root / name).read_text())


def remove(name: str, timeout: float = 5.0) -> list[Path]:
    """Remove cgroup ``name`` and all below it in every hierarchy.

    :param timeout: seconds to wait for the kernel to let go of tasks that were just killed.
    :returns: what could not be removed.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = [group for root in hierarchies() if (group := root / name).is_dir() and not _remove_tree(group)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _remove_tree(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not group.exists()


def processes(name: str) -> set[int]:
    """Process ids (of this pid namespace) in cgroup ``name`` or below it."""
    found: set[int] = set()
    for root in hierarchies():
        for folder, _, files in os.walk(root / name):
            if "cgroup.procs" in files:
                with contextlib.suppress(OSError):
                    found.update(int(line) for line in (Path(folder) / "cgroup.procs").read_text().split())
    return found
