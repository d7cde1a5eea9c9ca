"""The one process of a cluster outside its namespaces: starts the supervisor, and cleans up however it ends.

    up (short-lived) -> keeper -> unshare(1) -> supervisor (first process of the pid namespace) -> everything else

Killing the supervisor kills the cluster (kernel), and the keeper sweeps up. Killing the keeper kills the supervisor
(parent-death signals); then cgroups and folders stay until the next ``up`` or ``down``.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from devcluster.locks import locked
from devcluster.paths import ClusterPaths, cluster_paths
from devcluster.state import ProcessId, children, identify
from devcluster.sweep import remove_shared_folders, shared_lock, sweep
from devcluster.syscalls import become_subreaper, die_with_parent

_UNSHARE = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]


@dataclass(frozen=True)
class Processes:
    """The two processes that others need to know: who cleans up, and whose namespaces to enter."""

    keeper: ProcessId
    init: ProcessId

    @property
    def alive(self) -> bool:
        return self.keeper.alive() and self.init.alive()


def read_processes(paths: ClusterPaths) -> Processes | None:
    """What the keeper of this cluster wrote, or None before it did."""
    try:
        data = json.loads((paths.run / "keeper.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return Processes(ProcessId(**data["keeper"]), ProcessId(**data["init"]))


def command(paths: ClusterPaths, parent_fd: int | None) -> list[str]:
    """The keeper's command line; ``parent_fd`` is an inherited pidfd of the process to die with."""
    argv = [sys.executable, "-m", "devcluster.keeper", paths.name]
    return argv if parent_fd is None else [*argv, str(parent_fd)]


def _start(paths: ClusterPaths) -> subprocess.Popen[bytes]:
    supervisor = [sys.executable, "-m", "devcluster.supervisor", str(paths.config)]
    return subprocess.Popen([*_UNSHARE, *supervisor], preexec_fn=die_with_parent, stdin=subprocess.DEVNULL)


def _record(paths: ClusterPaths, unshare: subprocess.Popen[bytes]) -> None:
    """Write down who runs, as soon as unshare has forked."""
    keeper = identify(os.getpid())
    for _ in range(500):
        forked = children(unshare.pid)
        init = identify(forked[0]) if forked else None
        if init is not None and keeper is not None:
            file = paths.run / "keeper.json"
            temporary = file.with_suffix(".new")
            temporary.write_text(json.dumps(asdict(Processes(keeper, init))))
            temporary.replace(file)
            return
        if unshare.poll() is not None:
            return
        time.sleep(0.01)


def _wait(unshare: subprocess.Popen[bytes], parent_fd: int | None) -> None:
    """Return when the cluster ends by itself, its parent is gone, or SIGTERM arrives."""
    wake, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    watched = [wake, os.pidfd_open(unshare.pid)]
    if parent_fd is not None:
        watched.append(parent_fd)
    select.select(watched, [], [])


def _end(unshare: subprocess.Popen[bytes]) -> None:
    """Kill the namespaces' first process and wait until the kernel has buried all of them."""
    unshare.kill()
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main(name: str, parent_fd: int | None) -> None:
    """Keep the cluster ``name`` until it ends, then remove what is left of it."""
    paths = cluster_paths(name)
    # So that the supervisor, orphaned by unshare's death, comes to us and can be waited for.
    become_subreaper()
    unshare = _start(paths)
    _record(paths, unshare)
    _wait(unshare, parent_fd)
    _end(unshare)
    with locked(shared_lock()):
        sweep(paths)
        remove_shared_folders()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
