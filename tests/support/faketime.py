"""libfaketime, from Debian's package of that name: a wall clock that is wrong for everything in a process, C libraries among it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from devcluster.paths import cache_root

LIBRARY = "libfaketimeMT.so.1"  # the variant for programs with threads
DEADLINE_S = 300


def library() -> Path:
    """Path of the library; the first call unpacks the package into the cache. `LEASEQUEUE_FAKETIME` names one of your own.

    Raises:
        RuntimeError: it cannot be had; says the way out.
    """
    if given := os.environ.get("LEASEQUEUE_FAKETIME"):
        return Path(given)
    kept = cache_root() / "lib" / LIBRARY
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            found = _unpacked(Path(folder))
            found.replace(kept)  # a rename within one file system is atomic: two runs may get here at once
    return kept


def _unpacked(folder: Path) -> Path:
    way_out = "install Debian's libfaketime and set LEASEQUEUE_FAKETIME to its libfaketimeMT.so.1"
    if shutil.which("apt-get") is None:
        raise RuntimeError(f"libfaketime is missing: {way_out}")
    for command in (
        ["apt-get", "-q", "download", "libfaketime"],
        ["apt-get", "-q", "update"],
        ["apt-get", "-q", "download", "libfaketime"],
    ):
        subprocess.run(command, cwd=folder, capture_output=True, timeout=DEADLINE_S, check=False)
        if archives := list(folder.glob("libfaketime_*.deb")):
            subprocess.run(["dpkg", "-x", str(archives[0]), "root"], cwd=folder, check=True, timeout=DEADLINE_S)
            return next((folder / "root").rglob(LIBRARY))
    raise RuntimeError(f"apt-get download libfaketime failed: {way_out}")


def skewed(seconds: int) -> dict[str, str]:
    """Environment of a process whose wall clock is off by so many seconds; its monotonic clock stays right, as a machine's does."""
    return {
        "LD_PRELOAD": str(library()),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
