"""`python -m devtools.alertrun`: cluster and images outside, the run inside the cluster's network, tables and pictures at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from devtools import monitoring_crds, sync_programs
from devtools.alertrun.inside import EVIDENCE
from devtools.alertrun.report import problems, table

ROOT = Path(__file__).resolve().parents[2]
UP_S, RUN_S = 1800, 2400


class RunError(RuntimeError):
    """The run ended without evidence."""


def run(name: str, *, patient: bool = False, load_s: float = 0.0, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Run all drills on a devcluster of their own, which is gone afterwards; returns the evidence of `inside.py`.

    Args:
        name: of the cluster.
        patient: as in `inside.run`.
        load_s: likewise.
        say: told each line of progress.

    Raises:
        RunError: it ended without evidence.
        subprocess.CalledProcessError: the cluster did not come up, or an image could not be built.
    """
    # Inside the cluster's network nothing can be fetched.
    sync_programs.prometheus(), sync_programs.alertmanager(), monitoring_crds.files()
    devcluster = [sys.executable, "-m", "devcluster"]
    subprocess.run([*devcluster, "up", "--name", name, "--with-parent", str(os.getpid())], cwd=ROOT, check=True, timeout=UP_S)
    try:
        images = ("operator", "worker", "reclaimer")
        subprocess.run([*devcluster, "images", *images, "--name", name], cwd=ROOT, check=True, timeout=UP_S)
        return _inside([*devcluster, "exec", "--name", name, "--"], {"patient": patient, "load_s": load_s}, say)
    finally:
        subprocess.run([*devcluster, "down", "--name", name], cwd=ROOT, check=False, timeout=120)


def _inside(enter: list[str], options: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    command = ["timeout", str(RUN_S), *enter, sys.executable, "-m", "devtools.alertrun.inside", json.dumps(options)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found: dict[str, Any] | None = None
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith(EVIDENCE):
                found = json.loads(line.removeprefix(EVIDENCE))
            else:
                say(line.rstrip())
    if found is None:
        raise RunError(f"no evidence; exit code {process.returncode}")
    return found


@click.command()
@click.option("--name", default=f"alerts-{os.getpid()}", help="Name of the cluster.")
@click.option("--patient", is_flag=True, help="Let time pass instead of dating rows back; ten minutes more.")
@click.option("--load-seconds", default=0.0, help="How long the load goes on at least, for the pictures.")
@click.option("--pictures", type=click.Path(file_okay=False, path_type=Path), help="Draw the dashboard into this folder.")
@click.option("--keep", type=click.Path(dir_okay=False, path_type=Path), help="Write the evidence to this file, as JSON.")
def main(name: str, patient: bool, load_seconds: float, pictures: Path | None, keep: Path | None) -> None:
    """Fire and resolve every alert of the chart on a real Kubernetes; exit code 1 if one did not."""
    evidence = run(name, patient=patient, load_s=load_seconds, say=click.echo)
    if keep is not None:
        keep.write_text(json.dumps(evidence))
    click.echo(table(evidence))
    if pictures is not None:
        # Here, since matplotlib is needed for nothing else.
        from devtools.alertrun.draw import draw

        for file in draw(evidence["panels"], pictures):
            click.echo(f"drawn: {file} ({file.stat().st_size // 1024} kB)")
    found = problems(evidence)
    for problem in found:
        click.echo(problem, err=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
