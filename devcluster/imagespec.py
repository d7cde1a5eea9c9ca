"""What each image is made of, and the key under which it is cached: its content."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError

REPOSITORY = Path(__file__).parent.parent
_SOURCES = ("pyproject.toml", "README.md", "leasequeue", "worker", "reclaimer", "operator")


@dataclass(frozen=True)
class ImageSpec:
    """An image's short name and the files, relative to the repository, that its Dockerfile copies."""

    name: str
    contents: tuple[str, ...]
    lock: str | None = None

    @property
    def repository(self) -> str:
        return f"leasequeue-{self.name}"

    @property
    def dockerfile(self) -> str:
        return f"images/Dockerfile.{self.name}"


def _python(name: str) -> ImageSpec:
    lock = f"requirements/{name}.lock"
    return ImageSpec(name, (*_SOURCES, "images/build.lock", lock), lock)


IMAGES = {
    spec.name: spec
    for spec in (
        _python("operator"),
        _python("worker"),
        _python("reclaimer"),
        ImageSpec("postgres", ("images/postgres-entrypoint",)),
    )
}


def select(names: Iterable[str]) -> list[ImageSpec]:
    """The images called ``names`` (with or without "leasequeue-"), or all of them.

    :raises DevClusterError: there is no image of that name.
    """
    wanted = [name.removeprefix("leasequeue-") for name in names] or list(IMAGES)
    if unknown := [name for name in wanted if name not in IMAGES]:
        raise DevClusterError(f"no image {', '.join(unknown)}; there is {', '.join(IMAGES)}")
    return [IMAGES[name] for name in wanted]


def source_files(spec: ImageSpec, root: Path = REPOSITORY) -> list[Path]:
    """Files of an image, relative to ``root``, sorted; without what Python or an editor left in the folders.

    :raises DevClusterError: something the image needs is not there.
    """
    found: list[Path] = []
    for content in (spec.dockerfile, *spec.contents):
        path = root / content
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            found += [file for file in path.rglob("*") if file.is_file() and _ships(file.relative_to(root))]
        else:
            raise DevClusterError(f"image {spec.repository} needs {content}, which is not in {root}")
    return sorted(file.relative_to(root) for file in found)


def _ships(file: Path) -> bool:
    return not any(part == "__pycache__" or part.startswith(".") for part in file.parts) and file.suffix != ".pyc"


def content_key(spec: ImageSpec, base_key: str, root: Path = REPOSITORY) -> str:
    """Changes exactly when the image would: with a file's name, mode or content, or with the base image."""
    digest = hashlib.sha256(base_key.encode())
    for file in source_files(spec, root):
        content = (root / file).read_bytes()
        executable = bool((root / file).stat().st_mode & 0o100)
        digest.update(f"{file} {len(content)} {executable}\n".encode() + content)
    return digest.hexdigest()[:16]


def version(root: Path = REPOSITORY) -> str:
    """The project's version, which the chart and ``deploy/`` use as the tag of its images."""
    with (root / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def references(spec: ImageSpec, key: str) -> list[str]:
    """Names the image gets in a cluster.

    A pod's ``leasequeue-worker:dev`` means ``docker.io/library/leasequeue-worker:dev``, so that name is given too. With the
    project's version as a tag, the chart and the manifests in ``deploy/`` work as they are.
    """
    tags = ("dev", version(), key)
    return [f"{home}/{spec.repository}:{tag}" for home in ("localhost", "docker.io/library") for tag in tags]
