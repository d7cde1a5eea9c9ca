"""What the kernel says: CPU time of processes and of the machine, resident memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HZ = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class HostCpu:
    """CPU seconds of all cores together since boot."""

    idle: float
    steal: float


def cpu_s(pid: int, *, reaped: bool = True) -> float:
    """CPU seconds that a process has used; 0.0 when it is gone.

    Args:
        pid: process id.
        reaped: count children that have ended too.
    """
    fields = _stat(pid)
    if not fields:
        return 0.0
    ticks = int(fields[11]) + int(fields[12])
    if reaped:
        ticks += int(fields[13]) + int(fields[14])
    return ticks / HZ


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process, its living children and those that have ended: a whole PostgreSQL server."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        children = []
    return cpu_s(pid) + sum(cpu_s(int(child), reaped=False) for child in children)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[21]) * PAGE if fields else 0


def host_cpu() -> HostCpu:
    """Idle (with waiting for disks) and stolen time of the machine."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()
    return HostCpu(idle=(int(words[4]) + int(words[5])) / HZ, steal=int(words[8]) / HZ)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
