"""Child processes in groups of their own: a signal to the worker's group does not reach them (some init programs signal whole groups),
and ending one ends what it started. They die with the worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from typing import Any

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere the closed pipe has to do)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def signal_group(process: subprocess.Popen[Any], number: int) -> None:
    """Signal a child and everything in its group; nothing happens when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def has_ended(process: subprocess.Popen[Any]) -> bool:
    """True when a child ended; it is not reaped yet, so its group still carries its number."""
    if process.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
    except ChildProcessError:
        return True


def reap(process: subprocess.Popen[Any]) -> int:
    """Wait for a child and end what it left running in its group; its exit code (negative: a signal).

    The group is signalled before the child is reaped: until then its number cannot belong to anybody else.
    """
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        signal_group(process, signal.SIGKILL)
    return process.wait()


def ended_how(code: int) -> str:
    """`exit code 3`, or `signal SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
