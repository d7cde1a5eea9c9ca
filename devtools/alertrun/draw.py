"""The evaluated dashboard as pictures, one a row of panels: for the documentation, and to be seen to show something."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator
from PIL import Image

COLUMNS = 3
COLOURS = 64
MINUTE = 60
UNITS = {"s": "seconds", "ops": "a second", "percentunit": "share", "short": ""}
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.3,
    "axes.titlesize": 10, "axes.titleweight": "bold", "legend.fontsize": 7.5, "legend.frameon": False, "legend.handlelength": 1.2,
}  # fmt: skip


def draw(panels: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """One PNG a row of the dashboard, named after it.

    Args:
        panels: as `panels.PanelData`.
        folder: made where it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for panel in panels:
        if panel["kind"] != "stat":
            rows.setdefault(panel["row"], []).append(panel)
    return [_row(title, found, folder) for title, found in rows.items()]


def _row(title: str, panels: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    lines = -(-len(panels) // COLUMNS)
    start = min(at for panel in panels for _, points in panel["series"] for at, _ in points)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(14, 3.1 * lines), dpi=84, layout="constrained")
        for number, panel in enumerate(panels, 1):
            _panel(figure.add_subplot(lines, COLUMNS, number), panel, start)
        memory = io.BytesIO()
        figure.savefig(memory, format="png")
    path = folder / f"dashboard-{'-'.join(title.lower().split())}.png"
    # A palette halves the file, and no line needs more colours.
    Image.open(memory).convert("RGB").quantize(COLOURS).save(path, optimize=True)
    return path


def _panel(axes: Axes, panel: Mapping[str, Any], start: float) -> None:
    axes.set_title(panel["title"], loc="left")
    axes.xaxis.set_major_locator(MultipleLocator(MINUTE))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds / MINUTE:g} min"))
    series = [(name, [((at - start), value) for at, value in points]) for name, points in panel["series"] if points]
    if panel["kind"] == "state-timeline":
        _states(axes, series)
        return
    axes.set_ylabel(UNITS.get(panel["unit"], panel["unit"]))
    _stack(axes, series) if panel["stacked"] else _lines(axes, series)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", ncols=3, bbox_to_anchor=(0, -0.1), borderaxespad=0)


Series = list[tuple[str, list[tuple[float, float]]]]


def _lines(axes: Axes, series: Series) -> None:
    for number, (name, points) in enumerate(series):
        # Lines that lie upon each other, such as zeros, are seen by their width.
        width = 2.6 - 1.5 * number / max(1, len(series) - 1)
        axes.plot(*_broken(points), label=name, linewidth=width)


def _broken(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Times and values, with a gap where samples are missing."""
    steps = sorted(b[0] - a[0] for a, b in pairwise(points))
    usual = steps[len(steps) // 2] if steps else 0.0
    times: list[float] = []
    values: list[float] = []
    for at, value in points:
        if times and at - times[-1] > 3 * usual:
            times.append(at)
            values.append(float("nan"))
        times.append(at)
        values.append(value)
    return times, values


def _stack(axes: Axes, series: Series) -> None:
    times = sorted({at for _, points in series for at, _ in points})
    layers = [[dict(points).get(at, 0.0) for at in times] for _, points in series]
    axes.stackplot(times, layers, labels=[name for name, _ in series], alpha=0.75)


def _states(axes: Axes, series: Series) -> None:
    """One bar a series, over the times at which its value is 1."""
    for place, (_, points) in enumerate(series):
        step = min((b[0] - a[0] for a, b in pairwise(points)), default=1.0)
        on = [(at, step) for at, value in points if value == 1]
        axes.broken_barh(on, (place - 0.35, 0.7), color=f"C{place % 10}")
    axes.set_yticks(range(len(series)), [name for name, _ in series])
    axes.set_ylim(-0.6, len(series) - 0.4)
