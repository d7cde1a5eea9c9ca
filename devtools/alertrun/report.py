"""What a run showed: a table of the alerts, and what is missing. Pure."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

# Told by the table's own columns, or the same for all.
_SHOWN_APART = {"alertname", "severity", "queue"}


def problems(evidence: Mapping[str, Any]) -> list[str]:
    """What is not as it should be; empty where every alert fired and resolved and every panel has data."""
    alerts = {a["alert"] for a in evidence["alerts"]}
    told = list(evidence["problems"])
    told += [f"{rule} was never received" for rule in evidence["rules"] if rule.removeprefix("LeaseQueue") not in alerts]
    told += [f"{a['alert']} of {a['queue']} did not resolve" for a in evidence["alerts"] if a["resolved_at"] is None]
    told += [f"panel {p['title']!r} has no data" for p in evidence["panels"] if not has_data(p)]
    return told


def has_data(panel: Mapping[str, Any]) -> bool:
    """Whether a panel has a point to draw."""
    return any(points for _, points in panel["series"])


def table(evidence: Mapping[str, Any], width: int = 150) -> str:
    """Alert, queue, severity, when it was received as firing and as resolved, its other labels."""
    shown = Table(title="alerts as the webhook received them (UTC)", width=width)
    for name in ("alert", "queue", "severity", "fired", "resolved", "seconds", "times", "labels"):
        shown.add_column(name, justify="right" if name in ("seconds", "times") else "left", overflow="fold")
    for alert in sorted(evidence["alerts"], key=lambda a: a["fired_at"]):
        labels = ", ".join(f"{k}={v}" for k, v in sorted(alert["labels"].items()) if k not in _SHOWN_APART)
        resolved = alert["resolved_at"]
        shown.add_row(
            f"LeaseQueue{alert['alert']}", alert["queue"], alert["labels"]["severity"], _time(alert["fired_at"]),
            _time(resolved) if resolved else "-", f"{resolved - alert['fired_at']:.0f}" if resolved else "-", str(alert["firings"]), labels,
        )  # fmt: skip
    output = io.StringIO()
    Console(file=output, width=width).print(shown)
    return output.getvalue()


def _time(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%H:%M:%S}"
