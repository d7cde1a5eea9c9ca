"""buildah with a store of its own in the cache, run so that a killed build leaves no mount."""

from __future__ import annotations

import subprocess
from pathlib import Path

from devcluster.errors import DevClusterError

_TIMEOUT = 1800


class Buildah:
    """Builds images into, and pushes them out of, the store below ``cache``/buildah."""

    def __init__(self, cache: Path) -> None:
        self._store = cache / "buildah"
        self._driver = "overlay" if _overlay_works(cache) else "vfs"

    def command(self, *args: str) -> list[str]:
        """A buildah command line, in a mount namespace of its own: its mounts go with it."""
        return [
            "unshare", "--mount", "buildah", "--root", str(self._store / self._driver),
            "--runroot", str(self._store / "run"), "--storage-driver", self._driver, *args,
        ]  # fmt: skip

    def scratch(self) -> Path:
        """An existing folder beside the store for large temporary files."""
        folder = self._store / "tmp"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def has(self, reference: str) -> bool:
        """Whether the store holds the image ``reference``."""
        command = self.command("inspect", "--type", "image", reference)
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0

    def build(self, context: Path, dockerfile: str, reference: str, *options: str) -> None:
        """Build ``dockerfile`` (relative to ``context``), layer by layer from the cache where nothing changed.

        :raises DevClusterError: the build failed.
        """
        self._run(
            "build", "--layers", "--isolation", "chroot", "--format", "oci", "-f", str(context / dockerfile),
            *options, "-t", reference, str(context),
        )  # fmt: skip

    def push(self, reference: str, layout: Path, name: str) -> None:
        """Copy the image ``reference`` into the OCI layout folder ``layout`` as ``name``, uncompressed.

        Uncompressed, since nothing travels over a network, and unpacking is what a node waits for.
        """
        layout.parent.mkdir(parents=True, exist_ok=True)
        self._run("push", "-q", "--disable-compression", reference, f"oci:{layout}:{name}")

    def remove(self, references: list[str]) -> None:
        """Remove images from the store; one that another image needs stays."""
        for reference in references:
            subprocess.run(self.command("rmi", reference), capture_output=True, timeout=60)

    def _run(self, *args: str) -> None:
        result = subprocess.run(self.command(*args), capture_output=True, text=True, timeout=_TIMEOUT)
        if result.returncode != 0:
            output = (result.stdout + result.stderr).strip()[-3000:]
            raise DevClusterError(f"buildah {' '.join(args)} failed:\n{output}")


def _overlay_works(cache: Path) -> bool:
    """Overlay on overlay is refused by the kernel; there buildah copies whole trees instead."""
    cache.mkdir(parents=True, exist_ok=True)
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(cache)], capture_output=True, text=True, timeout=10)
    return kind.stdout.strip() != "overlayfs"
