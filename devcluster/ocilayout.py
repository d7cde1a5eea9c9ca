"""An OCI image layout as the cache of built images: layers shared between images are stored once."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

_INDEX = "application/vnd.oci.image.index.v1+json"


def find_manifest(layout: Path, reference: str) -> dict[str, Any] | None:
    """Descriptor of the image that was pushed into ``layout`` as ``reference``."""
    index = layout / "index.json"
    if not index.exists():
        return None
    for entry in json.loads(index.read_text())["manifests"]:
        if entry.get("annotations", {}).get("org.opencontainers.image.ref.name") == reference:
            return {key: entry[key] for key in ("mediaType", "digest", "size")}
    return None


def blobs_of(layout: Path, descriptor: dict[str, Any]) -> list[str]:
    """Digests an image consists of: manifest, config, layers."""
    manifest = json.loads(blob_path(layout, descriptor["digest"]).read_text())
    return [descriptor["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]


def blob_path(layout: Path, digest: str) -> Path:
    """File of the blob ``digest`` ("sha256:…")."""
    return layout / "blobs" / digest.replace(":", "/")


def index_of(images: Iterable[tuple[dict[str, Any], list[str]]]) -> dict[str, Any]:
    """An index that gives each descriptor all of its names, in the way containerd reads them."""
    manifests = [
        {**descriptor, "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}}
        for descriptor, names in images
        for name in names
    ]
    return {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}


def write_archive(layout: Path, images: list[tuple[dict[str, Any], list[str]]], present: set[str], out: IO[bytes]) -> list[str]:
    """Write a tar of ``images`` that ``ctr images import`` and ``kind load image-archive`` read.

    :param present: digests the reader has already; they are left out.
    :returns: the digests written.
    """
    wanted = dict.fromkeys(digest for descriptor, _ in images for digest in blobs_of(layout, descriptor))
    written = [digest for digest in wanted if digest not in present]
    with tarfile.open(fileobj=out, mode="w|") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        for digest in written:
            archive.add(blob_path(layout, digest), f"blobs/{digest.replace(':', '/')}")
        _add(archive, "index.json", json.dumps(index_of(images)).encode())
    return written


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def prune(layout: Path, keep: set[str]) -> int:
    """Forget images whose reference is not in ``keep`` and delete blobs that nobody needs; returns how many."""
    index_file = layout / "index.json"
    index = json.loads(index_file.read_text())
    name = "org.opencontainers.image.ref.name"
    index["manifests"] = [entry for entry in index["manifests"] if entry.get("annotations", {}).get(name) in keep]
    needed = {digest for entry in index["manifests"] for digest in blobs_of(layout, entry)}
    index_file.write_text(json.dumps(index))
    stale = [file for file in (layout / "blobs" / "sha256").iterdir() if f"sha256:{file.name}" not in needed]
    for file in stale:
        file.unlink()
    return len(stale)
