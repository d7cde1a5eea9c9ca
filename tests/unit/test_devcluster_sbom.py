"""The bill of an image: read from its layers, valid CycloneDX, and saying the same again."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from devcluster import sbom
from devcluster.errors import DevClusterError
from devcluster.images import Built
from devcluster.imagespec import IMAGES
from devcluster.sbom import Package

SITE = "opt/leasequeue/lib/python3.11/site-packages"
STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u1
Source: glibc (2.36-9)

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1
"""


def metadata(name: str, version: str) -> str:
    return f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nText: not a field\n"


class Layout:
    """An OCI layout with one image of these layers."""

    def __init__(self, root: Path, *layers: dict[str, str]) -> None:
        self.root = root
        (root / "blobs/sha256").mkdir(parents=True)
        config = self.put(json.dumps({"created": "2026-01-02T03:04:05Z"}).encode())
        made = [self.put(self.tar(layer)) for layer in layers]
        self.descriptor = self.put(json.dumps({"config": config, "layers": made}).encode())

    def put(self, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (self.root / "blobs/sha256" / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content), "mediaType": "x"}

    @staticmethod
    def tar(files: dict[str, str]) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return out.getvalue()


def test_packages_of_all_layers(tmp_path: Path) -> None:
    layout = Layout(
        tmp_path,
        {"./var/lib/dpkg/status": STATUS, f"{SITE}/old-1.dist-info/METADATA": metadata("old", "1")},
        {f"{SITE}/Psy_Copg-3.dist-info/METADATA": metadata("Psy_Copg", "3.3"), f"{SITE}/old/METADATA": "x"},
        {f"{SITE}/.wh.old-1.dist-info": "", "usr/lib/python3/dist-packages/x-1.dist-info/METADATA": metadata("x", "1")},
    )
    assert sbom.packages(tmp_path, layout.descriptor) == [
        Package("deb", "libc6", "2.36-9+deb12u1", "amd64", "glibc"), Package("pypi", "psy-copg", "3.3"),
    ]  # fmt: skip


def test_an_image_without_a_package_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DevClusterError, match="dpkg/status"):
        sbom.packages(tmp_path, Layout(tmp_path, {"etc/passwd": "x"}).descriptor)


def test_the_hashes_of_the_lock() -> None:
    found = sbom.locked(sbom.REPOSITORY / "requirements/worker.lock")
    assert len(found) > 10
    assert all(hashes and all(len(h) == 64 for h in hashes) for hashes in found.values())
    assert any(name == "psycopg" for name, _ in found)


def test_a_bill_is_valid_and_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(tmp_path, {"var/lib/dpkg/status": STATUS})
    monkeypatch.setattr(sbom, "layout_folder", lambda: tmp_path)
    built = Built(IMAGES["worker"], "k", layout.descriptor)
    found = [*sbom.packages(tmp_path, layout.descriptor), Package("pypi", "a", "1")]
    text = sbom.bill(built, found, {("a", "1"): ["0" * 64]})
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert text == sbom.bill(built, list(reversed(found)), {("a", "1"): ["0" * 64]})
    bom = json.loads(text)
    assert {c["purl"] for c in bom["components"]} == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64&distro=bookworm", "pkg:pypi/a@1",
    }  # fmt: skip
    assert bom["metadata"]["component"]["hashes"][0]["content"] == layout.descriptor["digest"].removeprefix("sha256:")
    assert bom["metadata"]["timestamp"].startswith("2026-01-02T03:04:05")
