"""The live figures beside what real KEDA did, with ratios and the targets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.autoscaling.live.figures import Figures
from benchmarks.autoscaling.loads import LOADS, Load, Measured

OF_DEFAULT, OF_EXPERT = 0.75, 1.0
FIRST_S = 3.0
COLUMNS = (
    "load",
    "autoscaler",
    "pod-seconds",
    "idle",
    "wait p50 / p95 / max s",
    "> 60 s",
    "cut off",
    "peak",
    "first claim s",
    "ratio",
)


def save(folder: Path, load: Load, found: Figures) -> None:
    """Keep the figures of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{load.name}.json").write_text(json.dumps(found.as_json(), indent=1) + "\n")


def read(folder: Path) -> dict[str, Figures]:
    """The figures kept."""
    names = {load.name for load in LOADS}
    return {p.stem: Figures(**json.loads(p.read_text())) for p in sorted(folder.glob("*.json")) if p.stem in names}


def show(console: Console, found: Mapping[str, Figures]) -> None:
    """Print the table and what each target came to."""
    table = Table(title="Real Kubernetes, real time: LeaseQueue beside KEDA 2.21 as measured")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right")
    for load in LOADS:
        ours = found.get(load.name)
        if ours is None:
            continue
        table.add_row(load.trace.name, "KEDA default", *_measured(load.default, ours))
        table.add_row("", "KEDA expert", *_measured(load.expert, ours))
        table.add_row(
            "", "LeaseQueue", f"{ours.pod_seconds:,.0f}", f"{ours.idle:,.0f}",
            f"{ours.p50:.1f} / {ours.p95:.1f} / {ours.longest:.1f}", f"{ours.late:.1%}", str(ours.cut_off), str(ours.peak),
            f"{ours.first_s:.1f}", "",
        )  # fmt: skip
        table.add_section()
    console.print(table)
    for load in LOADS:
        if load.name in found:
            console.print(verdict(load, found[load.name]), soft_wrap=True)


def verdict(load: Load, ours: Figures) -> str:
    """One line: each target, met or missed."""
    wait_s = min(load.default.p95, load.expert.p95)
    checks = (
        (f"pod-seconds {ours.pod_seconds / load.default.pod_seconds:.2f} of default (≤ {OF_DEFAULT})",
         ours.pod_seconds <= OF_DEFAULT * load.default.pod_seconds),
        (f"{ours.pod_seconds / load.expert.pod_seconds:.2f} of expert (≤ {OF_EXPERT})",
         ours.pod_seconds <= OF_EXPERT * load.expert.pod_seconds),
        (f"p95 {ours.p95:.1f} s (≤ {wait_s:g})", ours.p95 <= wait_s),
        (f"first claim {ours.first_s:.1f} s (≤ {FIRST_S:g})", ours.first_s <= FIRST_S),
        (f"cut off {ours.cut_off} (0)", ours.cut_off == 0),
    )  # fmt: skip
    told = "; ".join(f"{text} {'met' if met else 'MISSED'}" for text, met in checks)
    return f"{load.name}: {told}; {ours.items} items, {ours.changes} pods made, a pod was ready after {ours.start_s:.1f} s"


def _measured(keda: Measured, ours: Figures) -> list[str]:
    ratio = ours.pod_seconds / keda.pod_seconds
    return [
        f"{keda.pod_seconds:,.0f}", f"{keda.idle:,.0f}", f"{keda.p50:g} / {keda.p95:g}", "", f"{keda.cut_off:g}", f"{keda.peak:g}",
        f"{keda.first_s:g}", f"{ratio:.2f}",
    ]  # fmt: skip
