"""helm, promtool, Prometheus and Alertmanager, for the generators and the tests of the chart and its alerts.

`LEASEQUEUE_HELM`, `LEASEQUEUE_PROMTOOL`, `LEASEQUEUE_PROMETHEUS` and `LEASEQUEUE_ALERTMANAGER` name one of your own. Otherwise helm
is built from the pinned Go module of `devcluster`, and the others are taken from PATH or unpacked from Debian's packages
`prometheus` and `prometheus-alertmanager`, which are not installed: so no server is started and no root is needed.
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
TEMPLATES = tuple(f"usr/share/prometheus/alertmanager/{name}.tmpl" for name in ("default", "email"))


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
    return _debian("LEASEQUEUE_PROMTOOL", "prometheus", "promtool")


@cache
def prometheus() -> str:
    """Path of the Prometheus server, 2.42 or newer.

    Raises:
        NoProgramError: neither given, on PATH, nor to be had from apt.
    """
    return _debian("LEASEQUEUE_PROMETHEUS", "prometheus", "prometheus")


@cache
def alertmanager() -> str:
    """Path of Alertmanager, 0.25 or newer.

    Raises:
        NoProgramError: neither given, on PATH, nor to be had from apt.
    """
    upstream = shutil.which("alertmanager")
    return upstream or _debian("LEASEQUEUE_ALERTMANAGER", "prometheus-alertmanager", "prometheus-alertmanager", *TEMPLATES)


def alertmanager_templates() -> list[Path]:
    """The templates that Debian's Alertmanager reads below /usr/share; none where it is installed or of another make."""
    beside = [Path(alertmanager()).with_name(Path(file).name) for file in TEMPLATES]
    return [path for path in beside if path.exists()]


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _given(variable: str) -> str | None:
    path = os.environ.get(variable)
    if path and not os.access(path, os.X_OK):
        raise NoProgramError(f"{variable}={path} is no program: correct it, or unset it")
    return path


def _debian(variable: str, package: str, name: str, *more: str) -> str:
    """The program `name` that `variable` gives, or on PATH, or unpacked from a Debian package into the cache with `more` beside it."""
    given = _given(variable) or shutil.which(name)
    if given:
        return given
    program = cache_root() / "bin" / package / name
    files = (f"usr/bin/{name}", *more)
    if not all((program.parent / Path(file).name).exists() for file in files):
        _unpack(package, files, program.parent, variable)
    return str(program)


def _unpack(package: str, files: tuple[str, ...], target: Path, variable: str) -> None:
    if shutil.which("apt-get") is None:
        raise NoProgramError(f"a program is missing: install {package}, or set {variable}")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as folder:
        _apt(["download", package], folder, variable)
        archive = next(Path(folder).glob(f"{package}_*.deb"))
        subprocess.run(["dpkg", "-x", archive.name, "root"], cwd=folder, check=True, timeout=DEADLINE_S)
        # A rename within one folder is atomic: two test runs may get here at once.
        for file in reversed(files):  # the program last: it is what others look for
            (Path(folder) / "root" / file).replace(target / Path(file).name)


def _apt(arguments: list[str], folder: str, variable: str) -> None:
    """Run apt-get in `folder`, again after an update: a fresh machine has no package lists."""
    result = _run(["apt-get", "-q", *arguments], folder)
    if result.returncode != 0:
        _run(["apt-get", "-q", "update"], folder)
        result = _run(["apt-get", "-q", *arguments], folder)
    if result.returncode != 0:
        reason = result.stderr.strip()[-500:]
        raise NoProgramError(f"apt-get {' '.join(arguments)} failed ({reason}); set {variable} to a program of your own")


def _run(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S)
