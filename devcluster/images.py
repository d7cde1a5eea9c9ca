"""Building the project's images where their content changed, and giving them to a cluster."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster import baseimage, enter, external, ocilayout, packages
from devcluster.buildah import Buildah
from devcluster.errors import DevClusterError
from devcluster.imagespec import REPOSITORY, ImageSpec, content_key, references, source_files
from devcluster.locks import locked
from devcluster.paths import ClusterPaths, cache_root

Say = Callable[[str], None]
# Python's own wheels and platforms of the base image, whatever this machine runs.
_PLATFORMS = ("manylinux_2_36", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
_PYTHON = "3.11"
_KEEP = 3
_MTIME = 315532800  # 1980-01-01, the first day a wheel can carry: the cache goes by content, not by date


@dataclass(frozen=True)
class Built:
    """A built image: its names in a cluster and its manifest in the layout."""

    spec: ImageSpec
    key: str
    descriptor: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return references(self.spec, self.key)


def layout_folder() -> Path:
    """The OCI layout that holds every built image."""
    return cache_root() / "images" / "oci"


def build(specs: Iterable[ImageSpec], say: Say) -> list[Built]:
    """Build those of ``specs`` whose content is not in the cache.

    :raises DevClusterError: a build failed; the text ends with its last lines.
    """
    cache = cache_root()
    with locked(cache / "images.lock", on_wait=lambda: say("waiting for another build of images")):
        return [_ensure(spec, cache, say) for spec in specs]


def _ensure(spec: ImageSpec, cache: Path, say: Say) -> Built:
    packages.ensure(packages.NEEDED_FOR_IMAGES, say)
    buildah = Buildah(cache)
    with tempfile.TemporaryDirectory(dir=buildah.scratch()) as folder:
        # The key is that of the copy: somebody may be editing the original.
        context = Path(folder)
        stage(spec, context)
        key = content_key(spec, baseimage.base_key(), context)
        reference = f"{spec.repository}:{key}"
        descriptor = ocilayout.find_manifest(layout_folder(), reference)
        if descriptor is None:
            _build(spec, context, f"localhost/{reference}", buildah, say)
            buildah.push(f"localhost/{reference}", layout_folder(), reference)
            # So that the cache does not grow with every edit.
            buildah.remove([f"localhost/{old}" for old in ocilayout.prune(layout_folder(), spec.repository, _KEEP)])
            descriptor = ocilayout.find_manifest(layout_folder(), reference)
    if descriptor is None:
        raise DevClusterError(f"{reference} is not in {layout_folder()} after its build: remove that folder, try again")
    return Built(spec, key, descriptor)


def _build(spec: ImageSpec, context: Path, reference: str, buildah: Buildah, say: Say) -> None:
    base = baseimage.ensure(buildah, say)
    options = ["--build-arg", f"BASE={base}"]
    if spec.lock is not None:
        locks = [context / "images" / "build.lock", context / spec.lock]
        wheels = ensure_wheels(cache_root(), locks, say)
        options += ["--volume", f"{wheels}:/wheels:ro", "--build-arg", "PIP_OPTIONS=--no-index --find-links=/wheels"]
    began = time.monotonic()
    say(f"building image {spec.repository}")
    buildah.build(context, spec.dockerfile, reference, *options)
    say(f"built image {spec.repository} in {time.monotonic() - began:.1f} s")


def stage(spec: ImageSpec, target: Path, root: Path = REPOSITORY) -> None:
    """Copy an image's files to ``target``, all with one date, so that only content tells layers apart."""
    for file in source_files(spec, root):
        copy = target / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, copy)
        copy.chmod(0o755 if (root / file).stat().st_mode & 0o100 else 0o644)
    for path in [target, *target.rglob("*")]:
        os.utime(path, (_MTIME, _MTIME))


def ensure_wheels(cache: Path, locks: list[Path], say: Say) -> Path:
    """A folder with every wheel of ``locks``, downloaded by this machine's pip, checked against the locks' hashes.

    :raises DevClusterError: pip failed.
    """
    sources = [_download(cache, lock, say) for lock in locks]
    folder = cache / "wheels" / "all"
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        for wheel in source.iterdir():
            if not (folder / wheel.name).exists():
                os.link(wheel, folder / wheel.name)
    return folder


def _download(cache: Path, lock: Path, say: Say) -> Path:
    folder = cache / "wheels" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    say(f"downloading wheels of {lock.name}")
    with tempfile.TemporaryDirectory(dir=Buildah(cache).scratch()) as temporary:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:",
            f"--python-version={_PYTHON}", "--implementation=cp", *(f"--platform={name}_{platform.machine()}" for name in _PLATFORMS),
            "--dest", str(Path(temporary) / "wheels"), "-r", str(lock),
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if result.returncode != 0:
            raise DevClusterError(f"pip download of {lock} failed:\n{result.stderr.strip()[-2000:]}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        (Path(temporary) / "wheels").rename(folder)
    return folder


def load(paths: ClusterPaths, built: list[Built], say: Say) -> None:
    """Give images to the cluster: the one of ``paths``, or through the user's loader the one of KUBECONFIG.

    :raises DevClusterError: the import failed, or no loader is given.
    """
    images = [(image.descriptor, image.names) for image in built]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=Buildah(cache_root()).scratch()) as folder:
        archive = Path(folder) / "images.tar"
        outside = external.kubeconfig() is not None
        present = set() if outside else _present(paths)
        with archive.open("wb") as out:
            ocilayout.write_archive(layout_folder(), images, present, out)
        if outside:
            external.load([archive])
        else:
            import_archive(paths, archive)
    say(f"loaded {', '.join(image.spec.repository for image in built)} in {time.monotonic() - began:.1f} s")


def _present(paths: ClusterPaths) -> set[str]:
    return set(enter.capture(paths, ["ctr", "content", "ls", "-q"]).stdout.split())


def import_archive(paths: ClusterPaths, archive: Path) -> None:
    """Import a docker or OCI archive into the cluster's containerd.

    :raises DevClusterError: containerd refused it.
    """
    result = enter.capture(paths, ["ctr", "images", "import", str(archive.absolute())], timeout=600)
    if result.returncode != 0:
        raise DevClusterError(f"importing {archive} failed: {result.stderr.strip()[-1000:]}")
