"""The few system calls that Python 3.11 does not offer: mount, setns, prctl."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

MS_BIND = 4096
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def bind_mount(source: Path, target: Path) -> None:
    """Show ``source`` at ``target`` in this mount namespace."""
    _check(_libc.mount(bytes(source), bytes(target), None, MS_BIND, None), f"bind {source} on {target}")


def mount_tmpfs(target: Path, options: str = "mode=0755") -> None:
    """Put an empty memory file system on ``target`` in this mount namespace."""
    _check(_libc.mount(b"tmpfs", bytes(target), b"tmpfs", 0, options.encode()), f"tmpfs on {target}")


def setns(descriptor: int) -> None:
    """Move this thread into the namespace behind ``descriptor`` (for a pid namespace: its future children)."""
    _check(_libc.setns(descriptor, 0), "enter namespace")


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "set parent-death signal")


def become_subreaper() -> None:
    """Adopt orphaned descendants of this process, so that it can wait for them."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become subreaper")


def mounts_below(root: Path, mountinfo: str = "/proc/self/mountinfo") -> list[str]:
    """Mount points at or below ``root`` as this process sees them, innermost first."""
    prefix = str(root)
    found = []
    for line in Path(mountinfo).read_text().splitlines():
        point = line.split(" ")[4].replace("\\040", " ")
        if point == prefix or point.startswith(prefix + "/"):
            found.append(point)
    return found[::-1]
