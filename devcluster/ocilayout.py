"""An OCI image layout as the cache of built images: layers shared between images are stored once."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

_NAME = "org.opencontainers.image.ref.name"
_MIN_AGE = 3600.0
_INDEX = "application/vnd.oci.image.index.v1+json"


def find_manifest(layout: Path, reference: str) -> dict[str, Any] | None:
    """Descriptor of the image that was pushed into ``layout`` as ``reference``."""
    index = layout / "index.json"
    if not index.exists():
        return None
    for entry in json.loads(index.read_text())["manifests"]:
        if entry.get("annotations", {}).get(_NAME) == reference:
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
        {**descriptor, "annotations": {"io.containerd.image.name": name, _NAME: name}}
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


def prune(layout: Path, repository: str, keep: int, min_age: float = _MIN_AGE) -> list[str]:
    """Forget all but the newest images of ``repository``, and delete blobs that no image needs.

    :param keep: how many images stay.
    :param min_age: seconds; younger blobs stay, as somebody may be reading or writing an image they belong to.
    :returns: references of the images forgotten, such as "leasequeue-worker:0123".
    """
    file = layout / "index.json"
    index = json.loads(file.read_text())
    names = [entry.get("annotations", {}).get(_NAME, "") for entry in index["manifests"]]
    dropped = [name for name in names if name.startswith(repository + ":")][:-keep]
    index["manifests"] = [entry for entry, name in zip(index["manifests"], names, strict=True) if name not in dropped]
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(index))
    temporary.replace(file)
    needed = {digest for entry in index["manifests"] for digest in blobs_of(layout, entry)}
    for blob in (layout / "blobs" / "sha256").iterdir():
        if f"sha256:{blob.name}" not in needed and time.time() - blob.stat().st_mtime > min_age:
            blob.unlink()
    return dropped
