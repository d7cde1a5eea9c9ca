"""`python -m benchmarks.autoscaling.live`: the loads on a devcluster, in real time, beside what real KEDA did with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from benchmarks.autoscaling.live import lab, run, shrinking, table
from benchmarks.autoscaling.loads import LOADS, Load
from benchmarks.cache import cache_dir
from demo import images
from demo.images import Images
from devcluster import lifecycle
from devcluster.paths import cluster_paths

INSIDE = "LEASEQUEUE_LIVE_INSIDE"
SHRINK = "shrink"
ROOT = Path(__file__).resolve().parents[3]
_lock = threading.Lock()


def say(text: str) -> None:
    """A line of progress, at once."""
    with _lock:
        print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


@click.command(context_settings={"show_default": True})
@click.option(
    "--scenario",
    "names",
    multiple=True,
    type=click.Choice([*(load.name for load in LOADS), SHRINK, "all"]),
    help="What to run.",
)
@click.option("--parallel", type=click.IntRange(1, 7), default=1, help="Loads at a time, each a queue of its own.")
@click.option("--stagger", type=click.IntRange(0), default=60, help="Seconds between the beginnings of parallel loads.")
@click.option("--seed", type=int, default=1, help="Seed of arrivals and job lengths.")
@click.option("--name", default="live", help="Devcluster to use; it is brought up where it is not, and stays up.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder of the figures; default in the cache.")
@click.option(
    "--set",
    "more",
    multiple=True,
    metavar="FIELD=NUMBER",
    help="More of spec.scaling, such as scaleDownStabilizationSeconds=60.",
)
def main(
    names: tuple[str, ...], parallel: int, stagger: int, seed: int, name: str, out: Path | None, more: tuple[str, ...]
) -> None:
    """Run loads on a real Kubernetes and print them beside real KEDA's figures. Without --scenario: print what was kept.

    Each load takes 8 to 12 minutes and the time until zero pods. A devcluster needs Linux and root.
    """
    folder = out or cache_dir("autoscaling-live")
    if names and INSIDE not in os.environ:
        sys.exit(_outside(name))
    failed = _inside(names, parallel, stagger, seed, folder, dict(_pair(text) for text in more)) if names else 0
    table.show(Console(width=170), table.read(folder))
    sys.exit(1 if failed else 0)


def _pair(text: str) -> tuple[str, int]:
    field, _, number = text.partition("=")
    if not number.isdecimal():
        raise click.BadParameter(f"{text!r}: write FIELD=NUMBER, such as pollPeriodSeconds=2")
    return field, int(number)


def _outside(name: str) -> int:
    """Bring the cluster and the images, and run this program again where kubectl reaches it."""
    paths = cluster_paths(name)
    lifecycle.up(paths, say)
    built = images.build_and_load(paths, say)
    command = [
        sys.executable,
        "-m",
        "devcluster",
        "exec",
        "--name",
        name,
        "--",
        sys.executable,
        "-m",
        "benchmarks.autoscaling.live",
    ]
    env = {**os.environ, INSIDE: json.dumps(asdict(built)), "PYTHONPATH": str(ROOT)}
    return subprocess.run([*command, *sys.argv[1:]], env=env, cwd=ROOT, check=False).returncode


def _inside(names: tuple[str, ...], parallel: int, stagger: int, seed: int, folder: Path, settings: dict[str, int]) -> int:
    """Run what is asked for; returns how much of it failed."""
    wanted = [load for load in LOADS if load.name in names or "all" in names]
    failed: list[str] = []
    with lab.server() as server:
        built = Images(**json.loads(os.environ[INSIDE]))
        lab.install(built)
        if SHRINK in names:
            failed += [found.name for found in shrinking.play(server, built, say) if found.problems]

        def one(load: Load) -> None:
            # Pods of several loads that start in the same second would measure the machine, not the scaling.
            time.sleep(stagger * wanted.index(load) if wanted.index(load) < parallel else 0)
            try:
                found = run.play(server, load, seed, say, dict(settings))
            except run.FAULTS as ex:
                say(f"{load.name}: FAILED, {type(ex).__name__}: {ex}")
                failed.append(load.name)
                return
            table.save(folder, load, found)
            say(table.verdict(load, found))

        with ThreadPoolExecutor(parallel) as pool:
            list(pool.map(one, wanted))
    say(f"load of the machine: {' '.join(f'{x:.1f}' for x in os.getloadavg())}; {parallel} loads at a time")
    return len(failed)


if __name__ == "__main__":
    main()
