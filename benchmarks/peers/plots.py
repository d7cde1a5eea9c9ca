"""Draws a saved run: `python plots.py peers.json` writes its pictures beside it. Nothing of ours is imported."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

OURS, OTHERS = "#1b6ca8", "#9aa5b1"
Run = dict[str, Any]


def groups(runs: list[Run]) -> list[tuple[str, list[Run]]]:
    """Runs by contender and configuration, slowest first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(f"{run['contender']}\n{run['variant']}", []).append(run)
    return sorted(found.items(), key=lambda group: statistics.median(run["drain_rate"] for run in group[1]))


def drain(runs: list[Run], target: Path) -> None:
    """Jobs a second, median with least and most."""
    bars = groups(runs)
    middle = [statistics.median(r["drain_rate"] for r in g) for _, g in bars]
    low = [m - min(r["drain_rate"] for r in g) for m, (_, g) in zip(middle, bars, strict=True)]
    high = [max(r["drain_rate"] for r in g) - m for m, (_, g) in zip(middle, bars, strict=True)]
    fig, ax = plt.subplots(figsize=(9, 0.55 * len(bars) + 1.2))
    ax.barh([name for name, _ in bars], middle, xerr=[low, high], color=_colours(bars), ecolor="#444", capsize=3)
    ax.set_xlabel("jobs/s drained (median, least and most of interleaved rounds)")
    _save(fig, target)


def cost(runs: list[Run], target: Path) -> None:
    """CPU a job, server and worker."""
    bars = groups(runs)
    server = [statistics.median(r["server_us"] for r in g) for _, g in bars]
    worker = [statistics.median(r["worker_us"] for r in g) for _, g in bars]
    fig, ax = plt.subplots(figsize=(9, 0.55 * len(bars) + 1.2))
    names = [name for name, _ in bars]
    ax.barh(names, server, color="#3d5a80", label="server")
    ax.barh(names, worker, left=server, color="#ee6c4d", label="worker")
    ax.set_xscale("log")
    ax.set_xlabel("CPU µs a job (logarithmic)")
    ax.legend()
    _save(fig, target)


def latency(runs: list[Run], target: Path) -> None:
    """p50 and p99 with wake-up."""
    found = [run for run in runs if run["how"] == "wake"]
    names = list(dict.fromkeys(run["contender"] for run in found))
    fig, ax = plt.subplots(figsize=(9, 0.45 * len(names) + 1.2))
    for field, colour in (("p99_ms", "#c9d6df"), ("p50_ms", OURS)):
        values = [statistics.median(run[field] for run in found if run["contender"] == name) for name in names]
        ax.barh(names, values, color=colour, label=field.removesuffix("_ms"))
    ax.set_xlabel("ms from the enqueue call to the start of the handler")
    ax.legend()
    _save(fig, target)


def enqueue(runs: list[Run], target: Path) -> None:
    """Jobs a second by each way to enqueue."""
    ways = [how for how in ("one", "tx", "bulk") if any(run["variant"] == how for run in runs)]
    fig, axes = plt.subplots(1, len(ways), figsize=(4.2 * len(ways), 3.4), squeeze=False)
    for ax, how in zip(axes[0], ways, strict=True):
        names = list(dict.fromkeys(run["contender"] for run in runs if run["variant"] == how))
        rates = [statistics.median(r["rate"] for r in runs if (r["contender"], r["variant"]) == (n, how)) for n in names]
        pairs = sorted(zip(rates, names, strict=True))
        ax.barh([name for _, name in pairs], [rate for rate, _ in pairs], color=[_colour(name) for _, name in pairs])
        ax.set_xlabel(f"jobs/s, {WAYS[how]}")
    _save(fig, target)


WAYS = {"one": "one by one", "tx": "in the caller's transaction", "bulk": "in bulk"}
FIGURES = {"history": "beside a history", "pinned": "under a pinned xmin", "lanes": "in lanes", "crowd": "by many processes"}


def flat(runs: list[Run], target: Path) -> None:
    """What stays of each one's drain in the hard case; 1 is flat."""
    figures = [figure for figure in FIGURES if any(run["figure"] == figure for run in runs)]
    fig, axes = plt.subplots(1, len(figures), figsize=(3.6 * len(figures), 3.4), squeeze=False)
    for ax, figure in zip(axes[0], figures, strict=True):
        kept: dict[str, float] = {}
        for name in dict.fromkeys(run["contender"] for run in runs if run["figure"] == figure):
            sides = [
                [r["drain_rate"] for r in runs if (r["contender"], r["figure"], r["case"]) == (name, figure, case)]
                for case in ("base", "hard")
            ]
            if all(sides):
                kept[name] = statistics.median(sides[1]) / statistics.median(sides[0])
        ax.barh(list(kept), list(kept.values()), color=[_colour(name) for name in kept])
        ax.axvline(1.0, color="#444", linewidth=0.8)
        ax.set_xlabel(FIGURES[figure])
    _save(fig, target)


def _colour(name: str) -> str:
    return OURS if name.startswith("leasequeue") else OTHERS


def _colours(bars: list[tuple[str, list[Run]]]) -> list[str]:
    return [_colour(name) for name, _ in bars]


def _save(fig: Any, target: Path) -> None:
    fig.tight_layout()
    fig.savefig(target, dpi=120)
    plt.close(fig)
    print(target)


def main(path: Path) -> None:
    """Draw what the file holds."""
    results = json.loads(path.read_text())
    if results["drain"]:
        drain(results["drain"], path.with_name("drain.png"))
        cost(results["drain"], path.with_name("cost.png"))
    if any(run["how"] == "wake" for run in results["latency"]):
        latency(results["latency"], path.with_name("latency.png"))
    if results["enqueue"]:
        enqueue(results["enqueue"], path.with_name("enqueue.png"))
    if results["flat"]:
        flat(results["flat"], path.with_name("flat.png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
