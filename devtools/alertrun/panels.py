"""The dashboard's panels evaluated by Prometheus, as Grafana would."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from devtools.alertrun.queues import NAMESPACE


class Source(Protocol):
    """What answers queries."""

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """A matrix."""


@dataclass(slots=True)
class PanelData:
    """One panel.

    Args:
        title: of the panel.
        row: of the dashboard.
        kind: Grafana's type.
        unit: Grafana's unit.
        stacked: drawn as areas on top of each other.
        series: legend, and (seconds since 1970, value) pairs; values that are no numbers are left out.
    """

    title: str
    row: str
    kind: str
    unit: str
    stacked: bool
    series: list[tuple[str, list[tuple[float, float]]]] = field(default_factory=list)


def evaluate(
    board: Mapping[str, Any], source: Source, start: float, end: float, step: float, queue: str, rate_s: int = 20
) -> list[PanelData]:
    """Every panel from `start` to `end` for one queue.

    Args:
        board: the dashboard.
        source: Prometheus.
        start: seconds since 1970.
        end: likewise.
        step: seconds.
        queue: name of a LeaseQueue of the drills.
        rate_s: what `$__rate_interval` stands for, seconds; Grafana takes four scrape intervals.
    """
    values = {"queue_namespace": NAMESPACE, "queue": queue, "__rate_interval": f"{rate_s}s"}
    found: list[PanelData] = []
    row = ""
    for panel in board["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
            continue
        defaults = panel["fieldConfig"]["defaults"]
        stacked = defaults["custom"].get("stacking", {}).get("mode") == "normal"
        data = PanelData(panel["title"], row, panel["type"], defaults["unit"], stacked)
        for target in panel["targets"]:
            for series in source.query_range(filled(target["expr"], values), start, end, step):
                data.series.append((legend(target["legendFormat"], series["metric"]), _points(series["values"])))
        found.append(data)
    return found


def filled(expression: str, values: Mapping[str, str]) -> str:
    """The expression with its variables replaced.

    Raises:
        KeyError: a variable that the dashboard does not define.
    """
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: values[found[1] or found[2]], expression)


def legend(template: str, labels: Mapping[str, str]) -> str:
    """Grafana's legend: `{{label}}` replaced."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), template)


def _points(values: list[tuple[float, str]]) -> list[tuple[float, float]]:
    return [(at, float(text)) for at, text in values if math.isfinite(float(text))]
