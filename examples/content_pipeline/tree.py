"""The documentation tree: SQLite's documentation as Debian packages it (`sqlite3-doc`), or any directory of HTML pages.

`apt-get download` fetches the package (7 MB) from the mirror that this machine uses anyway and checks its signature; `dpkg-deb -x`
unpacks it into the cache folder. Nothing is installed, no script of the package runs. SQLite's documentation is in the public domain.

    c3ref/       the C interface, a page a function
    releaselog/  a page a release, since 2000
    session/     the session extension
    syntax/      the grammar, a page a rule
    .            everything else
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from examples.review_queue.dataset import cache_folder

PACKAGE = "sqlite3-doc"
INSIDE = "usr/share/doc/sqlite3"
DOWNLOAD_SECONDS = 120
UPDATE_SECONDS = 180


class TreeError(Exception):
    """The documentation tree cannot be had."""


@dataclass(frozen=True, slots=True)
class Page:
    """One HTML page.

    Args:
        path: inside the tree, with slashes.
        source_hash: SHA-256 of its bytes, in hex.
    """

    path: str
    source_hash: str = ""

    @property
    def directory(self) -> str:
        """Its directory inside the tree; `.` at the top."""
        return self.path.rpartition("/")[0] or "."


def fetch(cache: Path | None = None) -> Path:
    """Root of the tree, unpacked into the cache folder on first use.

    Args:
        cache: folder that keeps it; `cache_folder()` by default (`LEASEQUEUE_CACHE`, or below `~/.cache/leasequeue`).

    Raises:
        TreeError: apt cannot fetch the package; the message says what to do.
    """
    folder = (cache or cache_folder()) / PACKAGE
    root = folder / INSIDE
    if root.is_dir():
        return root
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Unpacked beside its place and then renamed: a run that is interrupted leaves no half of a tree.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{PACKAGE}-") as part:
        package = _download(Path(part))
        unpacked = Path(part) / "unpacked"
        _run(["dpkg-deb", "-x", str(package), str(unpacked)], cwd=Path(part), seconds=DOWNLOAD_SECONDS)
        if not (unpacked / INSIDE).is_dir():
            raise TreeError(f"{package.name} holds no {INSIDE}; give another tree of HTML pages with --tree")
        try:
            unpacked.rename(folder)
        except OSError as error:
            if not root.is_dir():  # another process was first, or not
                raise TreeError(f"{folder} cannot be made: {error.strerror}; remove it and run again") from error
    return root


def pages(root: Path) -> list[Page]:
    """Every HTML page below `root`, sorted by path; links between files are not followed.

    Raises:
        TreeError: there is none.
    """
    found = [
        Path(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(".html") and not Path(folder, name).is_symlink()
    ]
    if not found:
        raise TreeError(f"{root} holds no .html page")
    hashed = (Page(path.relative_to(root).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()) for path in found)
    return sorted(hashed, key=lambda page: page.path)


def _download(folder: Path) -> Path:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise TreeError(f"{PACKAGE} is fetched by apt-get and dpkg-deb; elsewhere give a directory of HTML pages with --tree")
    command = ["apt-get", "download", PACKAGE]
    try:
        _run(command, cwd=folder, seconds=DOWNLOAD_SECONDS)
    except TreeError:
        if os.geteuid() != 0:
            raise
        _run(["apt-get", "update", "-qq"], cwd=folder, seconds=UPDATE_SECONDS)  # the lists are missing or too old
        _run(command, cwd=folder, seconds=DOWNLOAD_SECONDS)
    fetched = list(folder.glob("*.deb"))
    if not fetched:
        raise TreeError(f"apt-get download {PACKAGE} left no package; give a directory of HTML pages with --tree")
    return fetched[0]


def _run(command: list[str], *, cwd: Path, seconds: int) -> None:
    way_out = "run again, or give a directory of HTML pages with --tree"
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        raise TreeError(f"{' '.join(command)} took longer than {seconds} s: {way_out}") from late
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TreeError(f"{' '.join(command)} failed: {last}; {way_out}")
