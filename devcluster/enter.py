"""Running a command inside a cluster's namespaces, as if it ran on the node."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from devcluster import syscalls
from devcluster.paths import ClusterPaths

_NAMESPACES = ("net", "mnt", "ipc", "uts", "pid")
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def environment(paths: ClusterPaths, base: dict[str, str]) -> dict[str, str]:
    """``base`` with KUBECONFIG, and with kubectl, helm and ctr first on PATH."""
    return {
        **base,
        "KUBECONFIG": str(paths.kubeconfig),
        "CONTAINERD_ADDRESS": "/run/containerd/containerd.sock",
        "CONTAINERD_NAMESPACE": "k8s.io",
        "LEASEQUEUE_DEVCLUSTER": paths.name,
        "LEASEQUEUE_IMAGE_LOADER": "ctr images import {archive}",
        "PATH": f"{paths.bin}:{base.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin",
    }


def run(init_pid: int, argv: Sequence[str], env: dict[str, str]) -> int:
    """Run ``argv`` in the namespaces of ``init_pid`` and return its exit code (128 + n when signal n ended it).

    The command keeps the working directory, the open standard streams and the terminal; signals sent to this process
    reach it; it is killed if this process is. Call it in a process with one thread: mount namespaces belong to all
    threads.

    :raises FileNotFoundError: the cluster went away.
    """
    cwd = Path.cwd()
    descriptors = [os.open(f"/proc/{init_pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _NAMESPACES]
    for descriptor in descriptors:
        syscalls.setns(descriptor)
    os.chdir(cwd)
    child = os.fork()  # the pid namespace holds for children only
    if child == 0:
        _become(argv, env)
    _forward_signals(child)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _become(argv: Sequence[str], env: dict[str, str]) -> None:
    """Turn into the command; never returns."""
    try:
        syscalls.die_with_parent()
        os.execvpe(argv[0], list(argv), env)  # noqa: S606 - running a command is what exec is for
    except OSError as error:
        print(f"devcluster: cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _forward_signals(child: int) -> None:
    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    # A terminal sends ^C to both of us; without one, only we are told.
    signal.signal(signal.SIGINT, signal.SIG_IGN if os.isatty(0) else forward)


def capture(paths: ClusterPaths, argv: Sequence[str], timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run ``argv`` inside through a process of its own, and return what it printed.

    :param timeout: seconds.
    :raises subprocess.TimeoutExpired: it took longer; it has been killed.
    """
    command = [sys.executable, "-m", "devcluster", "exec", "--name", paths.name, "--", *argv]
    env = {**os.environ, "PYTHONPATH": python_path()}
    env.pop("KUBECONFIG", None)
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)


def python_path() -> str:
    """The folder this package lies in, for processes that start elsewhere."""
    return str(Path(__file__).parent.parent)
