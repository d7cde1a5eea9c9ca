"""Draws a saved run: `python plots.py peers.json` writes drain.png, cost.png and latency.png beside it.

Needs matplotlib (the extra `bench`); the harness runs it in the peers' environment, so nothing of ours is imported.
"""

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


def _colours(bars: list[tuple[str, list[Run]]]) -> list[str]:
    return [OURS if name.startswith("leasequeue") else OTHERS for name, _ in bars]


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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
