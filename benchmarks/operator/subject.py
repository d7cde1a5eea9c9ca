"""The operator under measurement: a process of its own, looked at from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

TICKS = os.sysconf("SC_CLK_TCK")
SERIES = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
READY_S = 300.0

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series(text: str) -> Series:
    """Samples of a Prometheus exposition by name and sorted labels."""
    found: Series = {}
    for line in text.splitlines():
        if match := SERIES.match(line):
            name, labels, value = match.groups()
            found[name, tuple(sorted(LABEL.findall(labels or "")))] = float(value)
    return found


class Subject:
    """One operator process.

    Args:
        port: of its metrics.
        log: file of its log.
        arguments: further flags.
    """

    def __init__(self, port: int, log: Path, *arguments: str) -> None:
        self._port, self._log = port, log
        self._command = [str(Path(sys.executable).parent / "leasequeue-operator"), "--http-port", str(port), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start it; seconds until it was ready."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() - began > READY_S:
                raise RuntimeError(f"the operator is not ready: {self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        return time.monotonic() - began

    def stop(self) -> None:
        """End it with SIGTERM, after a minute with SIGKILL."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _ready(self) -> bool:
        try:
            self._get("/readyz")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def scrape(self) -> Series:
        """Its metrics now."""
        return series(self._get("/metrics"))

    def rss_mib(self) -> float:
        """Memory that it holds."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0]) / 1024

    def cpu_s(self) -> float:
        """CPU time that it has used."""
        return cpu_s(self.pid)

    def faults(self) -> Counter[str]:
        """Lines of its log that tell of trouble, by event."""
        text = self._log.read_text(errors="replace")
        return Counter(re.findall(r'"event": ?"(reconcile_crashed|reconcile_failed|resync_failed|event_lost)"', text))


def cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that have ended, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS


def tree_cpu_s(root: int) -> float:
    """CPU time of a process and of its children, seconds."""
    total = cpu_s(root)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            total += cpu_s(int(stat.parent.name)) if parent == root else 0.0
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
    return total
