"""Command line of `python -m demo`: cluster and images outside, everything else inside the cluster's network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
import psycopg

from demo import images
from demo.errors import DemoError
from demo.images import Images
from demo.settings import Settings
from demo.show import Screen
from demo.story import Story
from demo.summary import lines, problems
from devcluster import external
from devcluster.errors import DevClusterError
from devcluster.paths import ClusterPaths, cluster_paths
from examples.review_queue.dataset import DatasetError, load

ROOT = Path(__file__).parent.parent
INSIDE = "LEASEQUEUE_DEMO_INSIDE"


@click.command()
@click.option("--items", type=click.IntRange(200, 2357), default=2000, show_default=True, help="Review items.")
@click.option("--name", default="demo", show_default=True, help="Name of the demo's own cluster.")
@click.option("--down", is_flag=True, help="End the demo's own cluster afterwards; it stays up otherwise.")
def main(items: int, name: str, down: bool) -> None:
    """Run the review queue on a real Kubernetes and check the outcome; exit code 1 if anything is not as promised.

    Without KUBECONFIG it brings a cluster of its own, which needs Linux and root. With KUBECONFIG it uses that one:
    helm must be on PATH, and LEASEQUEUE_IMAGE_LOADER say how images get in ('kind load image-archive {archive}').
    Every run has a new namespace; those of earlier runs are removed.
    """
    try:
        if given := os.environ.pop(INSIDE, None):
            sys.exit(_inside(**json.loads(given)))
        sys.exit(_outside(items, cluster_paths(name), down))
    except (DemoError, DevClusterError, DatasetError, psycopg.Error) as error:
        click.echo(f"demo: {error}", err=True)
        sys.exit(1)


def _outside(items: int, paths: ClusterPaths, down: bool) -> int:
    screen = Screen()
    screen.step(images.cluster_up(paths, screen.step))
    built = images.build_and_load(paths, screen.step)
    screen.step("images ready")
    load()  # inside the cluster's network nothing can be fetched
    namespace = f"leasequeue-demo-{datetime.now(UTC):%m%d-%H%M%S}"
    told = {"items": items, "namespace": namespace, "references": asdict(built), "began": screen.began}
    code = _enter(paths, {INSIDE: json.dumps(told)})
    if external.kubeconfig():
        return code
    if down:
        images.cluster_down(paths)
        screen.step(f"cluster {paths.name!r} is gone")
    else:
        screen.step(
            f"cluster {paths.name!r} stays up: python -m devcluster exec --name {paths.name} -- kubectl get lq -n {namespace}"
        )
        screen.step(f"end it with: python -m devcluster down --name {paths.name}")
    return code


def _enter(paths: ClusterPaths, extra: dict[str, str]) -> int:
    """Run this program again where kubectl reaches the cluster; returns its exit code."""
    command = [sys.executable, "-m", "demo"]
    env = {**os.environ, **extra, "PYTHONPATH": str(ROOT)}
    if not external.kubeconfig():
        command = [sys.executable, "-m", "devcluster", "exec", "--name", paths.name, "--", *command]
    return subprocess.run(command, env=env, cwd=ROOT, check=False).returncode


def _inside(items: int, namespace: str, references: dict[str, str], began: float) -> int:
    screen = Screen(began=began)
    evidence = Story(Settings(namespace=namespace, items=items), Images(**references), screen).run()
    found = problems(evidence)
    screen.summary(lines(evidence), found)
    return 1 if found else 0
