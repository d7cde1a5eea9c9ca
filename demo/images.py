"""The cluster and the images that the demo needs, with the tools of `devcluster`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from demo.errors import DemoError
from devcluster import external, images, imagespec, lifecycle, ocilayout
from devcluster.buildah import Buildah
from devcluster.errors import DevClusterError
from devcluster.images import Built
from devcluster.imagespec import ImageSpec
from devcluster.locks import locked
from devcluster.paths import ClusterPaths, cache_root

Say = Callable[[str], None]
DEMO = ImageSpec("demo", ("examples/review_queue/__init__.py", "examples/review_queue/handler.py"))


@dataclass(frozen=True, slots=True)
class Images:
    """Image references, as a pod names them."""

    operator: str
    worker: str
    reclaimer: str
    postgres: str
    demo: str


def cluster_up(paths: ClusterPaths, say: Say) -> str:
    """Have a cluster that answers; returns a line about it. With KUBECONFIG set it is that one.

    Raises:
        DemoError: there is none and none can be made here.
    """
    try:
        if external.kubeconfig():
            return external.check()
        started = lifecycle.up(paths, say)
    except DevClusterError as error:
        raise DemoError(str(error)) from error
    return f"cluster {paths.name!r} " + ("started" if started else "was up")


def cluster_down(paths: ClusterPaths) -> None:
    """End the demo's own cluster.

    Raises:
        DemoError: it cannot be ended.
    """
    try:
        lifecycle.down(paths)
    except DevClusterError as error:
        raise DemoError(str(error)) from error


def build_and_load(paths: ClusterPaths, say: Say) -> Images:
    """Build what changed, and give the cluster every image.

    Raises:
        DemoError: a build or the import failed.
    """
    try:
        built = images.build(imagespec.select([]), say)
        worker = next(image for image in built if image.spec.name == "worker")
        built.append(_build_demo(worker, say))
        images.load(paths, built, say)
    except DevClusterError as error:
        raise DemoError(str(error)) from error
    return Images(**{image.spec.name: f"{image.spec.repository}:{image.key}" for image in built})


def _build_demo(worker: Built, say: Say) -> Built:
    """The worker's image with the handler on top; cached by both."""
    cache = cache_root()
    key = imagespec.content_key(DEMO, worker.key)
    reference = f"{DEMO.repository}:{key}"
    with locked(cache / "images.lock", on_wait=lambda: say("waiting for another build of images")):
        found = ocilayout.find_manifest(images.layout_folder(), reference)
        if found is None:
            say(f"building image {DEMO.repository}")
            buildah = Buildah(cache)
            with tempfile.TemporaryDirectory(dir=buildah.scratch()) as folder:
                images.stage(DEMO, Path(folder))
                base = f"WORKER=localhost/{worker.spec.repository}:{worker.key}"
                buildah.build(Path(folder), DEMO.dockerfile, f"localhost/{reference}", "--build-arg", base)
            buildah.push(f"localhost/{reference}", images.layout_folder(), reference)
            found = ocilayout.find_manifest(images.layout_folder(), reference)
    if found is None:
        raise DemoError(f"{reference} is not in {images.layout_folder()} after its build: remove that folder, run again")
    return Built(DEMO, key, found)
