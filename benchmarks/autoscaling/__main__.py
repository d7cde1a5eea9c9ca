"""`python -m benchmarks.autoscaling`: every load under every autoscaler; a table, and plots where matplotlib is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

from benchmarks.autoscaling import baselines, calibration, report
from benchmarks.autoscaling.ours import LeaseQueue
from benchmarks.autoscaling.traces import TRACES, Scaler, Trace, run


def scalers(trace: Trace) -> list[Scaler]:
    """One of each."""
    return [
        LeaseQueue(trace), baselines.default(trace), baselines.pending_only(trace), baselines.expert(trace),
        baselines.QueueTimeBand(trace),
    ]  # fmt: skip


@click.command(context_settings={"show_default": True})
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/sim"), help="Folder of the plots.")
@click.option("--seed", type=int, default=1, help="Seed of arrivals and job lengths.")
@click.option("--only", default="", help="Only loads whose name contains this.")
@click.option("--width", type=click.IntRange(80), default=150, help="Width of the table in characters.")
def main(out: Path, seed: int, only: str, width: int) -> None:
    """Compare the operator's scaling with emulations of others, on simulated loads. Takes about half a minute."""
    console = Console(width=width)
    loads = [t for t in TRACES if only in t.name]
    results = [(load, {scaler.name: run(load, scaler, seed) for scaler in scalers(load)}) for load in loads]
    if not results:
        raise click.UsageError(f"--only {only!r} is in no name of a load. There are: {', '.join(t.name for t in TRACES)}.")
    report.show(console, results)
    if not only:
        calibration.show(console)
    if find_spec("matplotlib") is None:
        console.print("No plots: matplotlib is not installed (pip install 'leasequeue[bench]').")
        return
    made = report.plot(results, out)
    console.print(f"{len(made)} plots in {out}/")


if __name__ == "__main__":
    main()
