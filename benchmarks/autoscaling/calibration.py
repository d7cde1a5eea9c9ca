"""The emulation of KEDA beside what KEDA 2.21 with the HPA really did (README.md has the whole table and its source)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from benchmarks.autoscaling import baselines
from benchmarks.autoscaling.baselines import KedaHpa
from benchmarks.autoscaling.ours import LeaseQueue
from benchmarks.autoscaling.traces import TRACES, Trace, between, run

START_S = 1.5  # a pod on the measured machine
# (load, autoscaler) → pod-seconds, p95 of the wait in s, runs cut off, first item to first claim in s; means of two seeds.
MEASURED: dict[tuple[str, str], tuple[float, float, float, float]] = {
    ("steady", "default"): (7850, 8, 0, 15.5),
    ("steady", "expert"): (4332, 15, 0, 7.4),
    ("10x step", "default"): (8468, 8.5, 0, 15),
    ("10x step", "expert"): (7009, 17, 0, 6.5),
    ("bursts", "default"): (11196, 19, 0, 15.5),
    ("bursts", "expert"): (6717, 25, 0, 7.7),
    ("dump of 1,100", "default"): (7291, 57.5, 0, 15),
    ("dump of 1,100", "expert"): (6885, 57.5, 0, 7),
    ("long jobs 100 s", "default"): (5442, 45, 5.5, 9.5),
    ("long jobs 100 s", "expert"): (5506, 40, 4.5, 2),
    ("ceiling 20", "default"): (9900, 68.5, 0, 15),
    ("ceiling 20", "expert"): (2696, 75, 0, 7.5),
}
LOADS = (
    *(replace(t, start_s=START_S) for t in TRACES if t.name in {load for load, _ in MEASURED}),
    Trace("ceiling 20", 600, between(10, 250, 6.0), start_s=START_S, ceiling=20),
)


def show(console: Console) -> None:
    """Print measured and emulated figures side by side, and ours on the same loads."""
    table = Table(title="Measured KEDA 2.21 | its emulation; LeaseQueue on the emulated load")
    for number, column in enumerate(("load", "autoscaler", "pod-seconds", "wait p95 s", "cut off", "first claim s")):
        table.add_column(column, justify="left" if number < 2 else "right")
    emulations: dict[str, Callable[[Trace], KedaHpa]] = {"default": baselines.default, "expert": baselines.expert}
    for trace in LOADS:
        for name, made in emulations.items():
            cost, wait, cut, first = MEASURED[trace.name, name]
            found = run(trace, made(trace))
            table.add_row(
                trace.name, name, f"{cost:,.0f} | {found.pod_seconds:,.0f}", f"{wait:g} | {found.wait(0.95):.0f}",
                f"{cut:g} | {found.cut_off}", f"{first:g} | {found.first_claim_s or 0:.1f}",
            )  # fmt: skip
        ours = run(trace, LeaseQueue(trace))
        first_s = ours.first_claim_s or 0
        table.add_row(
            "", "LeaseQueue", f"{ours.pod_seconds:,.0f}", f"{ours.wait(0.95):.0f}", str(ours.cut_off), f"{first_s:.1f}"
        )
        table.add_section()
    console.print(table)
