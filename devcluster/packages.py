"""Debian packages the cluster needs, installed by apt from the machine's own sources, only where missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from devcluster.errors import DevClusterError

# What must be found (a program, or a file by its path) and the package that brings it.
NEEDED = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "nft": "nftables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "unshare": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
    "openssl": "openssl",
    "cc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
}
NEEDED_FOR_IMAGES = {"buildah": "buildah", "debootstrap": "debootstrap"}


def missing(needed: dict[str, str], exists: Callable[[str], bool] | None = None) -> list[str]:
    """Packages to install, sorted, given what ``needed`` is not there yet."""
    there = _exists if exists is None else exists
    return sorted({package for thing, package in needed.items() if not there(thing)})


def _exists(thing: str) -> bool:
    return Path(thing).exists() if thing.startswith("/") else shutil.which(thing, path=search_path()) is not None


def search_path() -> str:
    """PATH with the sbin folders, where Debian keeps runc, nft and ip."""
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"


def ensure(needed: dict[str, str], say: Callable[[str], None]) -> None:
    """Install what is missing of ``needed``.

    :raises DevClusterError: something is missing and apt cannot bring it.
    """
    packages = missing(needed)
    if not packages:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise DevClusterError(f"missing: {', '.join(packages)} (Debian's package names). Install them, then run again")
    say(f"installing {', '.join(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *packages]):
        result = subprocess.run(["apt-get", *command], env=env, capture_output=True, text=True, timeout=900)
        # A third-party source that does not answer fails the update, though Debian's own did: let install decide.
        if result.returncode != 0 and command[0] == "install":
            raise DevClusterError(f"apt-get install {' '.join(packages)} failed:\n{result.stderr.strip()[-2000:]}")
    if still := missing(needed):
        raise DevClusterError(f"still missing after apt-get install: {', '.join(still)}")
