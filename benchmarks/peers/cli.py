"""`python -m benchmarks.peers`: install, measure, show, save."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

from benchmarks.cache import cache_dir
from benchmarks.flat.cli import table as own_table
from benchmarks.peers import gates, report, stats
from benchmarks.peers.install import CannotInstallError, install
from benchmarks.peers.measure import Bench
from benchmarks.peers.session import ENQUEUE_SHARE, PARTS, Session, console
from benchmarks.peers.spec import HERE, chosen, load
from benchmarks.server import bench_server


@click.command(context_settings={"max_content_width": 120})
@click.option("--n", default=20_000, show_default=True, help="Jobs of a calibration, and the measure of all other parts.")
@click.option(
    "--drain-n", default=60_000, show_default=True, help="Jobs of a drain: enough that start-up is a few hundredths of it."
)
@click.option("--rounds", default=3, show_default=True, help="Interleaved repeats of the best configurations.")
@click.option("--calibrate", default=1, show_default=True, help="Passes over all configurations that choose the best.")
@click.option("--only", help="Contenders, as a comma list without spaces between; all by default.")
@click.option("--parts", default=",".join(PARTS), show_default=True, help="What to measure.")
@click.option(
    "--add", "added", multiple=True, type=click.Path(path_type=Path, exists=True), help="A TOML file with further contenders."
)
@click.option("--rate", default=200, show_default=True, help="Latency: jobs a second.")
@click.option("--seconds", default=6, show_default=True, help="Latency: seconds a run.")
@click.option("--history", default=500_000, show_default=True, help="Flat: finished jobs beside which everybody drains.")
@click.option(
    "--own-history", default=5_000_000, show_default=True, help="Flat: RESOLVED rows beside which our claims are timed."
)
@click.option("--memory-items", default=300_000, show_default=True, help="Items of the worker whose memory is watched.")
@click.option("--of-raw", default=0.8, show_default=True, help="Least share of raw's drain rate, shape by shape.")
@click.option("--strict", is_flag=True, help="Exit with 1 when a gate fails.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory of results and plots; by default in the cache.")
def main(
    n: int, drain_n: int, rounds: int, calibrate: int, only: str | None, parts: str, added: tuple[Path, ...], rate: int, seconds: int,
    history: int, own_history: int, memory_items: int, of_raw: float, strict: bool, out: Path | None,
) -> None:  # fmt: skip
    """Measure LeaseQueue beside its peers on one PostgreSQL, interleaved, and say which gates are met."""
    began = time.monotonic()
    try:
        contenders = chosen(load(HERE / "contenders.toml", *added), only)
        if any("{ours}" not in who.cmd for who in contenders):
            console.print("installing the peers, where they are not there yet …")
            install(cache_dir("bench"))
    except (ValueError, CannotInstallError) as error:
        raise click.UsageError(str(error)) from None
    wanted = parts.split(",")
    if unknown := sorted(set(wanted) - set(PARTS)):
        raise click.UsageError(f"no part {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    installed_s = time.monotonic() - began
    with bench_server() as server:
        session = Session(Bench(server, cache_dir("bench")), contenders, n)
        session.results["durations"]["install"] = round(installed_s)
        if "drain" in wanted:
            with session.timed("drain"):
                session.drains(calibrate, rounds, drain_n)
        if "single" in wanted:
            with session.timed("single"):
                session.singles(min(2, rounds))
        if "enqueue" in wanted:
            with session.timed("enqueue"):
                session.enqueues(rounds)
                session.wakes(min(2, rounds))
        if "latency" in wanted:
            with session.timed("latency"):
                session.latencies(rounds, rate, seconds)
        if "memory" in wanted:
            with session.timed("memory"):
                session.memory(memory_items)
        if "flat" in wanted:
            with session.timed("flat"):
                session.flats(history, own_history)
    found = judge(session, of_raw)
    if session.figures:
        console.print(own_table(session.figures))
    report.show(console, session.results, contenders, found)
    session.results["seconds"] = round(time.monotonic() - began)
    _save(session.results, found, out or cache_dir("bench", "results"))
    told = gates.verdict(found)
    failures = len(session.results["failed"])
    console.print(
        f"{told['passed']} gates met, {told['failed']} missed, {failures} measurements failed; {session.results['seconds']} s"
    )
    if strict and (told["failed"] or failures or not found):
        raise SystemExit(1)


def judge(session: Session, of_raw: float) -> list[gates.Gate]:
    """All gates that what was measured allows."""
    results, contenders = session.results, session.contenders
    found = gates.drain_gates(results["drain"], contenders, of_raw)
    found += gates.single_gates(results["single"], contenders, "drain_rate", "one at a time")
    for how in ENQUEUE_SHARE:
        found += gates.single_gates(stats.pick(results["enqueue"], variant=how), contenders, "rate", f"enqueue, {how}")
    found += gates.latency_gates(results["latency"], contenders) + gates.wake_gates(results["wake"])
    return found + gates.memory_gates(results["memory"]) + gates.flat_gates(session.figures)


def _save(results: dict[str, Any], found: list[gates.Gate], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    results["gates"] = [{"name": g.name, "found": g.found, "wanted": g.wanted, "ok": g.ok} for g in found]
    path = directory / "peers.json"
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False))
    console.print(f"saved {path}")
    command = [sys.executable, str(HERE / "plots.py"), str(path)]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    console.print(drawn.stdout.strip() or drawn.stderr.strip()[-400:])
