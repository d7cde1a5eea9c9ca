"""What an image is made of: a CycloneDX bill of its Debian and Python packages, read from the image itself.

From the image, not from the lock alone: the bill says what is there. The lock adds the hashes that pip checked.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from devcluster import baseimage, ocilayout
from devcluster.errors import DevClusterError
from devcluster.images import Built, layout_folder
from devcluster.imagespec import REPOSITORY, version

_DPKG = "var/lib/dpkg/status"
_METADATA = re.compile(r"opt/leasequeue/lib/python[^/]+/site-packages/[^/]+\.dist-info/METADATA")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, order=True)
class Package:
    """A package in an image. `kind`: deb or pypi; `arch`: of a Debian package; `source`: its source package."""

    kind: str
    name: str
    version: str
    arch: str = ""
    source: str = ""


def write(built: Built, folder: Path) -> Path:
    """Write the bill of one image as `leasequeue-<name>.cdx.json`.

    :raises DevClusterError: the image holds no package, so that something else than a package list was read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{built.spec.repository}.cdx.json"
    lock = REPOSITORY / built.spec.lock if built.spec.lock else None
    path.write_text(bill(built, packages(layout_folder(), built.descriptor), locked(lock)) + "\n")
    return path


def packages(layout: Path, descriptor: dict[str, Any]) -> list[Package]:
    """Packages of an image, sorted. A later layer's file replaces an earlier one's, and its whiteouts remove them."""
    manifest = json.loads(ocilayout.blob_path(layout, descriptor["digest"]).read_text())
    files: dict[str, str] = {}
    for layer in manifest["layers"]:
        for name, text in _layer(ocilayout.blob_path(layout, layer["digest"])):
            folder, _, base = name.rpartition("/")
            if base.startswith(".wh."):
                gone = f"{folder}/{base.removeprefix('.wh.')}"
                files = {known: kept for known, kept in files.items() if known != gone and not known.startswith(gone + "/")}
            else:
                files[name] = text
    debian = _debian(files.pop(_DPKG, ""))
    python = [_python(text) for text in files.values()]
    if not debian:
        raise DevClusterError(f"no {_DPKG} in the image {descriptor['digest']}: it is not of Debian")
    return sorted({*debian, *python})


def _layer(blob: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(blob) as archive:
        for entry in archive:
            name = entry.name.removeprefix("./")
            if name.rpartition("/")[2].startswith(".wh."):
                yield name, ""
            elif entry.isfile() and (name == _DPKG or _METADATA.fullmatch(name)):
                content = archive.extractfile(entry)
                yield name, content.read().decode(errors="replace") if content else ""


def _debian(status: str) -> list[Package]:
    found = []
    for paragraph in status.split("\n\n"):
        fields = HeaderParser().parsestr(paragraph)
        if fields.get("Status", "").endswith(" installed"):
            source = str(fields.get("Source", "")).partition(" ")[0]
            found.append(Package("deb", fields["Package"], fields["Version"], fields.get("Architecture", ""), source))
    return found


def _python(metadata: str) -> Package:
    fields = HeaderParser().parsestr(metadata)
    return Package("pypi", normal(fields["Name"]), fields["Version"])


def normal(name: str) -> str:
    """A Python package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: Path | None) -> dict[tuple[str, str], list[str]]:
    """Hashes of a lock file, by name and version."""
    found: dict[tuple[str, str], list[str]] = {}
    current: list[str] = []
    for line in lock.read_text().splitlines() if lock else ():
        if pin := _PIN.match(line):
            current = found.setdefault((normal(pin[1]), pin[2]), [])
        current += _HASH.findall(line)
    return found


def bill(built: Built, found: list[Package], hashes: dict[tuple[str, str], list[str]]) -> str:
    """The bill as CycloneDX 1.6 JSON. The same image gives the same bill.

    Args:
        built: the image.
        found: its packages.
        hashes: of Python packages, by name and version.
    """
    digest = built.descriptor["digest"]
    bom = Bom(serial_number=uuid5(NAMESPACE_URL, digest))
    manifest = json.loads(ocilayout.blob_path(layout_folder(), digest).read_text())
    config = json.loads(ocilayout.blob_path(layout_folder(), manifest["config"]["digest"]).read_text())
    bom.metadata.timestamp = datetime.fromisoformat(config["created"])
    bom.metadata.component = Component(
        type=ComponentType.CONTAINER, name=built.spec.repository, version=version(), bom_ref=built.spec.repository,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest.partition(":")[2])],
        purl=PackageURL("oci", None, built.spec.repository, digest),
    )  # fmt: skip
    parts = [_component(package, hashes.get((package.name, package.version), [])) for package in found]
    bom.components.update(parts)
    bom.register_dependency(bom.metadata.component, parts)
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _component(package: Package, hashes: list[str]) -> Component:
    if package.kind == "deb":
        qualifiers = {"arch": package.arch, "distro": baseimage.SUITE}
        purl = PackageURL("deb", "debian", package.name, package.version, qualifiers)
    else:
        purl = PackageURL("pypi", None, package.name, package.version)
    return Component(
        type=ComponentType.LIBRARY, name=package.name, version=package.version, purl=purl, bom_ref=str(purl),
        # Of every file that the lock allows (a wheel a platform); which one pip took is not recorded.
        properties=[
            *(Property(name="leasequeue:locked:sha256", value=value) for value in hashes),
            *([Property(name="leasequeue:debian:source", value=package.source)] if package.source else []),
        ],
    )  # fmt: skip
