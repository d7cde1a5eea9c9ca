"""The emulation of KEDA beside what KEDA 2.21 with the HPA really did, on the reconstructed loads (`loads.py`)."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from rich.console import Console
from rich.table import Table

from benchmarks.autoscaling import baselines
from benchmarks.autoscaling.loads import LOADS, Measured
from benchmarks.autoscaling.ours import LeaseQueue
from benchmarks.autoscaling.traces import Scaler, Trace, run

SEEDS = (1, 2, 3)


def means(trace: Trace, scaler: Callable[[Trace], Scaler]) -> Measured:
    """Simulate a load under a fresh scaler for each seed."""
    results = [run(trace, scaler(trace), seed) for seed in SEEDS]
    return Measured(
        fmean(r.pod_seconds for r in results), fmean(r.idle_seconds for r in results), fmean(r.wait(0.5) for r in results),
        fmean(r.wait(0.95) for r in results), fmean(r.cut_off for r in results), fmean(r.peak for r in results),
        fmean(r.first_claim_s or 0.0 for r in results),
    )  # fmt: skip


def show(console: Console) -> None:
    """Print measured and emulated figures side by side, and ours on the same loads."""
    table = Table(title="KEDA 2.21 measured | emulated on the reconstructed load; LeaseQueue simulated (means of three seeds)")
    columns = ("load", "autoscaler", "pod-seconds", "idle", "wait p50 s", "p95 s", "cut off", "peak", "first claim s")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right")
    for load in LOADS:
        table.add_row(load.trace.name, "KEDA default", *_pairs(load.default, means(load.trace, baselines.default)))
        table.add_row("", "KEDA expert", *_pairs(load.expert, means(load.trace, baselines.expert)))
        ours = means(load.trace, LeaseQueue)
        table.add_row("", "LeaseQueue", *_cells(ours))
        table.add_section()
    console.print(table)


def _pairs(measured: Measured, found: Measured) -> list[str]:
    return [f"{one} | {other}" for one, other in zip(_cells(measured), _cells(found), strict=True)]


def _cells(m: Measured) -> list[str]:
    return [
        f"{m.pod_seconds:,.0f}", f"{m.idle:,.0f}", f"{m.p50:.1f}", f"{m.p95:.1f}", f"{m.cut_off:.1f}", f"{m.peak:.0f}",
        f"{m.first_s:.1f}",
    ]  # fmt: skip
