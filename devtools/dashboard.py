"""The Grafana dashboard of the chart, made from this list of panels by `python -m devtools.sync`.

Conventions of kubernetes-mixin: a `datasource` variable, so that the dashboard fits any Grafana; queries aggregate over the labels
of the scrape, so that a replaced pod neither doubles a value nor cuts a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "charts/leasequeue/dashboards/leasequeue.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
HEIGHT, STAT_HEIGHT = 8, 4
# Panels of one queue ask for Q, those of the operator for nothing.
Q = 'queue_namespace="$queue_namespace", queue="$queue"'
RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and the legend of its series."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Args:
        title: what it shows.
        text: what it means and what to look for; shown on hover.
        queries: its series.
        unit: Grafana's name of the unit.
        kind: timeseries, stat or state-timeline.
        stacked: areas on top of each other.
        width: columns of 24.
        mappings: text for a value.
    """

    title: str
    text: str
    queries: Sequence[Query]
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False
    width: int = 8
    mappings: Mapping[str, str] = field(default_factory=dict)


def _of(metric: str, by: str = "", more: str = "") -> str:
    """The greatest over the operator's pods, which all say the same."""
    return f"max by ({by}) ({metric}{{{Q}{more}}})" if by else f"max({metric}{{{Q}{more}}})"


def _rate(metric: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{Q}{more}}}[{RATE}]))" if by else f"sum(rate({metric}{{{Q}{more}}}[{RATE}]))"


def _quantiles(metric: str) -> list[Query]:
    rate = f"sum by (le) (rate({metric}_bucket{{{Q}}}[{RATE}]))"
    return [Query(f"histogram_quantile({q}, {rate})", f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)]


def _age(metric: str) -> str:
    return f"time() - max({metric}{{{Q}}})"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    ("Now", (
        Panel("Ready", "The condition Ready of the LeaseQueue.",
              [Query(_of("leasequeue_condition", more=', type="Ready", status="True"'), "Ready")],
              kind="stat", width=4, mappings={"1": "Ready", "0": "Not ready"}),
        Panel("Database", "Whether the newest look at the queue's table gave a sample.",
              [Query(_of("leasequeue_database_up"), "up")],
              kind="stat", width=4, mappings={"1": "Up", "0": "Down"}),
        Panel("Waiting", "Items that a worker could take now.", [Query(_of("leasequeue_pending_due"), "due")],
              kind="stat", width=4),
        Panel("In flight of its ceiling", "ASSIGNED items as a share of spec.lease.maxInflight.",
              [Query(f"{_of('leasequeue_assigned')} / {_of('leasequeue_max_inflight')}", "share")],
              unit="percentunit", kind="stat", width=4),
        Panel("Need a person", "Items in REPAIR and FAILED: nothing moves them by itself.",
              [Query(_of("leasequeue_items", "state", ', state=~"REPAIR|FAILED"'), "{{state}}")], kind="stat", width=4),
        Panel("Sample's age", "How old the facts from the database are. While it grows, every other figure is old.",
              [Query(_age("leasequeue_sample_timestamp_seconds"), "age")], unit="s", kind="stat", width=4),
    )),
    ("Items", (
        Panel("Depth by state", "Items by state, RESOLVED apart: PENDING waits, ASSIGNED is in flight, SCHEDULED is not due yet.",
              [Query(_of("leasequeue_items", "state", ', state!="RESOLVED"'), "{{state}}")], stacked=True),
        Panel("Oldest waiting item", "Age of the oldest due item, whatever its priority, against spec.alerts.oldestPendingSeconds."
              " No line: nothing waits.",
              [Query(_age("leasequeue_oldest_pending_timestamp_seconds"), "oldest"),
               Query(_of("leasequeue_oldest_pending_limit_seconds"), "limit")], unit="s"),
        Panel("In flight against the ceiling", "ASSIGNED items, and where the warning, the critical alert and the ceiling are.",
              [Query(_of("leasequeue_assigned"), "in flight"),
               Query(f"{_of('leasequeue_max_inflight')} * {_of('leasequeue_inflight_warning_ratio')}", "warning"),
               Query(f"{_of('leasequeue_max_inflight')} * {_of('leasequeue_inflight_critical_ratio')}", "critical"),
               Query(_of("leasequeue_max_inflight"), "max_inflight")]),
        Panel("Outcomes", "Verdicts a second that the database took. `noop` and `lost` changed nothing.",
              [Query(_rate("leasequeue_finished_total", "outcome"), "{{outcome}}")], unit="ops", stacked=True),
        Panel("Claimed and finished", "Items a second over the whole fleet, by the workers' own counts in the database.",
              [Query(_rate("leasequeue_queue_claimed_total", ""), "claimed"),
               Query(_rate("leasequeue_queue_completed_total", ""), "finished")], unit="ops"),
        Panel("Strict lanes by their head", "Lanes whose next item can be claimed, runs, is not due, or blocks the lane.",
              [Query(_of("leasequeue_lanes", "head"), "{{head}}")], stacked=True),
    )),
    ("Workers", (
        Panel("Workers", "Desired by the autoscaler, ready in Kubernetes; by their heartbeats: busy, cordoned; draining ones finish"
              " what they hold.",
              [Query(_of(f"leasequeue_workers_{name}"), name) for name in ("desired", "ready", "busy", "cordoned", "draining")]),
        Panel("What decides the number of workers", "The limiter of the newest decision.",
              [Query(_of("leasequeue_scaling_limiter", "limiter"), "{{limiter}}")], kind="state-timeline"),
        Panel("Changes of the number of workers", "Changes in the last five minutes, by direction and limiter.",
              [Query(f"sum by (direction, limiter) (increase(leasequeue_scaling_decisions_total{{{Q}}}[5m]))",
                     "{{direction}} {{limiter}}")]),
        Panel("Wait", "From due (created_at or run_at) to leased.", _quantiles("leasequeue_wait_duration_seconds"), unit="s"),
        Panel("Handler", "Time in the handler.", _quantiles("leasequeue_handler_duration_seconds"), unit="s"),
        Panel("Claim", "Time of one claim statement; more than 0.1 s is a sign of locks or of a missing index.",
              _quantiles("leasequeue_claim_duration_seconds"), unit="s"),
    )),
    ("Leases", (
        Panel("Reclaimed", "Leases taken back in the last five minutes: their worker died or lost contact."
              " `repair`: the item crashed its worker too often.",
              [Query(f"sum by (result) (increase(leasequeue_reclaimed_total{{{Q}}}[5m]))", "to {{result}}")]),
        Panel("Lost leases and busy kills", "In the last five minutes: leases that a worker lost while it held them, and those that"
              " ended because their worker was removed at its drain limit.",
              [Query(f"sum(increase(leasequeue_lost_total{{{Q}}}[5m]))", "lost"),
               Query(f"sum(increase(leasequeue_busy_kills_total{{{Q}}}[5m]))", "busy kills")]),
        Panel("Expired leases", "ASSIGNED items past their expiry, and for how long the oldest.",
              [Query(_of("leasequeue_leases_expired"), "expired")]),
        Panel("Renewals", "Renewals a second by outcome. `unanswered`: the database did not answer in time.",
              [Query(_rate("leasequeue_renewals_total", "outcome"), "{{outcome}}")], unit="ops"),
        Panel("Last sweep of the reclaimer", "Time since the reclaimer's last success, and from when it is overdue.",
              [Query(_age("leasequeue_reclaimer_last_success_timestamp_seconds"), "last success"),
               Query(_of("leasequeue_reclaimer_overdue_seconds"), "overdue")], unit="s"),
        Panel("Conditions", "Conditions of the LeaseQueue that are True.",
              [Query(_of("leasequeue_condition", "type", ', status="True"'), "{{type}}")], kind="state-timeline",
              mappings={"1": "True", "0": "not True"}),
    )),
    ("Database and operator", (
        Panel("Database errors of the workers", "Errors a second by kind; `busy` is locks, deadlocks and timeouts.",
              [Query(_rate("leasequeue_database_errors_total", "kind"), "{{kind}}")], unit="ops"),
        Panel("Reconciliations", "Reconciliations of all queues a second, by outcome. `crashed` is a fault of the operator's.",
              [Query(f"sum by (outcome) (rate(leasequeue_reconcile_total[{RATE}]))", "{{outcome}}")], unit="ops", stacked=True),
        Panel("Duration of a reconciliation", "Of all queues of the operator.",
              [Query(f"histogram_quantile({q}, sum by (le) (rate(leasequeue_reconcile_duration_seconds_bucket[{RATE}])))",
                     f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)], unit="s"),
        Panel("Work queue", "Queues that are due to be reconciled, and how long the longest has been due.",
              [Query("max(leasequeue_workqueue_ready)", "due"), Query("max(leasequeue_workqueue_lag_seconds)", "lag, s")]),
        Panel("Watch events and full lists", "What the operator hears from the API server, a second.",
              [Query(f"sum by (kind) (rate(leasequeue_watch_events_total[{RATE}]))", "{{kind}}"),
               Query(f"sum by (outcome) (rate(leasequeue_resync_total[{RATE}]))", "full list {{outcome}}")], unit="ops"),
        Panel("Queues", "LeaseQueues that the operator serves, and those that are Ready.",
              [Query("count(max by (queue_namespace, queue) (leasequeue_info))", "queues"),
               Query('sum(max by (queue_namespace, queue) (leasequeue_condition{type="Ready", status="True"}))', "ready")]),
    )),
)  # fmt: skip


def render() -> dict[Path, str]:
    """The dashboard's file."""
    return {TARGET: json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana takes it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append({
            "type": "row", "title": title, "id": len(panels) + 1, "collapsed": False, "panels": [],
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top},
        })  # fmt: skip
        top += 1
        left = 0
        for panel in row:
            height = STAT_HEIGHT if panel.kind == "stat" else HEIGHT
            if left + panel.width > COLUMNS:
                left, top = 0, top + height
            place = {"h": height, "w": panel.width, "x": left, "y": top}
            panels.append(_panel(panel, len(panels) + 1, place))
            left += panel.width
        top += STAT_HEIGHT if row[-1].kind == "stat" else HEIGHT
    return {
        "title": "LeaseQueue", "uid": "leasequeue", "tags": ["leasequeue"], "schemaVersion": 39, "version": 1, "editable": True,
        "graphTooltip": 1, "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "timezone": "", "annotations": {"list": []},
        "templating": {"list": _variables()}, "panels": panels,
    }  # fmt: skip


def _panel(panel: Panel, number: int, place: Mapping[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "custom": _custom(panel)}
    if panel.kind != "state-timeline" and panel.unit != "percentunit":
        defaults["min"] = 0
    if panel.mappings:
        options = {value: {"text": text, "index": index} for index, (value, text) in enumerate(panel.mappings.items())}
        defaults["mappings"] = [{"type": "value", "options": options}]
    targets = [
        {"refId": chr(ord("A") + index), "expr": query.expr, "legendFormat": query.legend, "datasource": SOURCE}
        for index, query in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind, "title": panel.title, "description": panel.text, "id": number, "gridPos": dict(place),
        "datasource": SOURCE, "fieldConfig": {"defaults": defaults, "overrides": []}, "options": _options(panel), "targets": targets,
    }  # fmt: skip


def _custom(panel: Panel) -> dict[str, Any]:
    if panel.kind != "timeseries":
        return {}
    stacking = {"mode": "normal", "group": "A"} if panel.stacked else {"mode": "none"}
    return {"lineWidth": 1, "fillOpacity": 30 if panel.stacked else 0, "showPoints": "never", "stacking": stacking}


def _options(panel: Panel) -> dict[str, Any]:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto", "colorMode": "value"}
    if panel.kind == "state-timeline":
        return {"legend": legend, "mergeValues": True, "showValue": "never"}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _variables() -> list[dict[str, Any]]:
    def label(name: str, title: str, expression: str) -> dict[str, Any]:
        return {
            "name": name, "label": title, "type": "query", "datasource": SOURCE, "query": expression, "definition": expression,
            "refresh": 2, "sort": 1, "includeAll": False, "multi": False,
        }  # fmt: skip

    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        label("queue_namespace", "Namespace", "label_values(leasequeue_info, queue_namespace)"),
        label("queue", "Queue", 'label_values(leasequeue_info{queue_namespace="$queue_namespace"}, queue)'),
    ]
