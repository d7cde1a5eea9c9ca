"""The base of our images: a minimal Debian 12 with Python, made by debootstrap from apt's own mirror."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from devcluster.buildah import Buildah
from devcluster.errors import DevClusterError

SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
MIRROR = "LEASEQUEUE_DEBIAN_MIRROR"
# Nothing a container reads: a third of the tree.
_USELESS = (
    "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "var/cache/apt",
    "var/lib/apt/lists", "var/log",
)  # fmt: skip
_INDEX_FORMAT = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"


def base_key() -> str:
    """Changes with what the base is made of (not with the mirror, nor with what it serves today)."""
    return hashlib.sha256(repr((SUITE, PACKAGES, _USELESS)).encode()).hexdigest()[:16]


def base_reference() -> str:
    """Name of the base image in buildah's store."""
    return f"localhost/leasequeue-base:{base_key()}"


def choose_mirror(index_targets: str) -> str | None:
    """Address of Debian's main archive in the output of ``apt-get indextargets`` (format ``_INDEX_FORMAT``)."""
    for line in index_targets.splitlines():
        origin, label, component, address = (line.split("|") + [""] * 4)[:4]
        if (origin, label, component) == ("Debian", "Debian", "main"):
            return address
    return None


def mirror() -> str:
    """The Debian mirror this machine's apt uses, or the one that LEASEQUEUE_DEBIAN_MIRROR names.

    :raises DevClusterError: apt knows no Debian mirror, as on other distributions.
    """
    if os.environ.get(MIRROR):
        return os.environ[MIRROR]
    command = ["apt-get", "indextargets", "--format", _INDEX_FORMAT, "Created-By: Packages"]
    found = choose_mirror(subprocess.run(command, capture_output=True, text=True, timeout=60).stdout)
    if found is None:
        raise DevClusterError(f"apt knows no Debian mirror: run 'apt-get update', or set {MIRROR} to a mirror's address")
    return found


def ensure(buildah: Buildah, say: Callable[[str], None]) -> str:
    """Name of the base image, built first (about a minute) where it is not in the store.

    :raises DevClusterError: debootstrap failed.
    """
    reference = base_reference()
    if buildah.has(reference):
        return reference
    say(f"building the base image ({SUITE} with {', '.join(PACKAGES)})")
    with tempfile.TemporaryDirectory(dir=buildah.scratch()) as folder:
        root = Path(folder) / "root"
        _debootstrap(root)
        for useless in _USELESS:
            shutil.rmtree(root / useless, ignore_errors=True)
            (root / useless).mkdir()
        (Path(folder) / "Dockerfile").write_text("FROM scratch\nCOPY root /\n")
        buildah.build(Path(folder), "Dockerfile", reference)
    return reference


def _debootstrap(root: Path) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root), mirror()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if result.returncode != 0:
        raise DevClusterError(f"{' '.join(command)} failed:\n{(result.stdout + result.stderr).strip()[-2000:]}")
