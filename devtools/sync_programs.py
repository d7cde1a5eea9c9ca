"""helm and promtool, for the generators and the tests of the chart.

`LEASEQUEUE_HELM` and `LEASEQUEUE_PROMTOOL` name one of your own. Otherwise helm is built from the pinned Go module of
`devcluster`, and promtool is taken from PATH or unpacked from Debian's package `prometheus`, which is not installed: so
no server is started and no root is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from devcluster import binaries
from devcluster.paths import cache_root

DEADLINE_S = 600


class NoProgramError(RuntimeError):
    """A program is missing and could not be had; the text says the way out."""


@cache
def helm() -> str:
    """Path of Helm 4; the first call may build it, in about two minutes.

    Raises:
        NoProgramError: `LEASEQUEUE_HELM` is no program.
        DevClusterError: it cannot be built.
    """
    return _given("LEASEQUEUE_HELM") or binaries.program("helm", cache_root(), _say)


@cache
def promtool() -> str:
    """Path of promtool 2.42 or newer.

    Raises:
        NoProgramError: neither given, on PATH, nor to be had from apt.
    """
    given = _given("LEASEQUEUE_PROMTOOL") or shutil.which("promtool")
    if given:
        return given
    program = cache_root() / "bin" / "prometheus" / "promtool"
    if not program.exists():
        _unpack_promtool(program)
    return str(program)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _given(variable: str) -> str | None:
    path = os.environ.get(variable)
    if path and not os.access(path, os.X_OK):
        raise NoProgramError(f"{variable}={path} is no program: correct it, or unset it")
    return path


def _unpack_promtool(program: Path) -> None:
    if shutil.which("apt-get") is None:
        raise NoProgramError("promtool is not on PATH: install Prometheus, or set LEASEQUEUE_PROMTOOL")
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        _apt(["download", "prometheus"], folder)
        package = next(Path(folder).glob("prometheus_*.deb"))
        subprocess.run(["dpkg", "-x", package.name, "root"], cwd=folder, check=True, timeout=DEADLINE_S)
        # A rename within one folder is atomic: two test runs may get here at once.
        (Path(folder) / "root/usr/bin/promtool").replace(program)


def _apt(arguments: list[str], folder: str) -> None:
    """Run apt-get in `folder`, again after an update: a fresh machine has no package lists."""
    result = _run(["apt-get", "-q", *arguments], folder)
    if result.returncode != 0:
        _run(["apt-get", "-q", "update"], folder)
        result = _run(["apt-get", "-q", *arguments], folder)
    if result.returncode != 0:
        reason = result.stderr.strip()[-500:]
        raise NoProgramError(f"promtool: apt-get {' '.join(arguments)} failed ({reason}); set LEASEQUEUE_PROMTOOL")


def _run(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S)
