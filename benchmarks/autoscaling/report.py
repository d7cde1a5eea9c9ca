"""The table and the plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.autoscaling.traces import Trace
from benchmarks.autoscaling.world import Result

LATE_S = 60.0
COLUMNS = (
    "load", "autoscaler", "pod-seconds", "idle", "wait p50", "p95", "max s", "> 60 s", "cut off", "peak", "first s", "changes",
)  # fmt: skip

Results = Mapping[str, Result]


def row(name: str, result: Result) -> list[str]:
    """One line of the table, without the load."""
    return [
        name, f"{result.pod_seconds:,.0f}", f"{result.idle_seconds:,.0f}", f"{result.wait(0.5):.1f}", f"{result.wait(0.95):.1f}",
        f"{max(result.waits, default=0):.1f}", f"{result.late(LATE_S):.1%}", str(result.cut_off), str(result.peak),
        "–" if result.first_claim_s is None else f"{result.first_claim_s:.1f}", str(result.changes),
    ]  # fmt: skip


def show(console: Console, results: Sequence[tuple[Trace, Results]]) -> None:
    """Print the table."""
    table = Table(title="Autoscalers on the same loads (simulated)")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right")
    for trace, found in results:
        for number, (name, result) in enumerate(found.items()):
            table.add_row(trace.name if number == 0 else "", *row(name, result))
        table.add_section()
    console.print(table)


def plot(results: Sequence[tuple[Trace, Results]], folder: Path) -> list[Path]:
    """Draw pods and depth over time, a picture a load. Needs the extra `bench`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for trace, found in results:
        figure, (pods, depth) = pyplot.subplots(2, 1, sharex=True, figsize=(12, 6), layout="constrained")
        for name, result in found.items():
            width = 2.2 if name.startswith("LeaseQueue") else 1.0
            pods.plot(result.replicas, label=f"{name}: {result.pod_seconds:,.0f} pod-s", linewidth=width)
            depth.plot(result.depth, label=f"{name}: p95 {result.wait(0.95):.0f} s", linewidth=width)
        pods.set_ylabel("pods")
        depth.set(ylabel="items waiting", xlabel="seconds")
        pods.set_title(trace.name)
        pods.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
        depth.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
        path = folder / f"{trace.name.replace(' ', '-').replace(',', '')}.png"
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
        made.append(path)
    return made
