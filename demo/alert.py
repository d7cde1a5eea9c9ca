"""What the operator shows when items in flight near the ceiling: a condition, an event, and metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from demo.summary import Alert

CONDITION = "InflightWithinLimit"
# What the condition says while it is False, and the event that tells of it.
REASONS = frozenset({"AboveWarning", "AboveCritical", "Exceeded"})
ASSIGNED = "leasequeue_assigned"


def condition_reason(queue: Mapping[str, Any]) -> str | None:
    """Reason of the condition InflightWithinLimit of a LeaseQueue while it is False, else None."""
    for condition in queue.get("status", {}).get("conditions", []):
        if condition["type"] == CONDITION and condition["status"] == "False":
            reason: str = condition["reason"]
            return reason
    return None


def event_reason(events: Iterable[Mapping[str, Any]], queue: str) -> str | None:
    """Reason of a warning event about items in flight of the LeaseQueue called `queue`, else None."""
    for event in events:
        about = event.get("involvedObject") or event.get("regarding") or {}
        if about.get("kind") != "LeaseQueue" or about.get("name") != queue or event.get("type") != "Warning":
            continue
        reason: str = event.get("reason", "")
        if reason in REASONS:
            return reason
    return None


def assigned(metrics: str, namespace: str, queue: str) -> int | None:
    """The gauge `leasequeue_assigned` of one queue in the operator's metrics text, or None where it is absent."""
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            labels = sample.labels
            if sample.name == ASSIGNED and (labels.get("queue_namespace"), labels.get("queue")) == (namespace, queue):
                return int(sample.value)
    return None


def merge(alert: Alert, condition: str | None, event: str | None, gauge: int | None) -> Alert:
    """`alert` with what was seen now; what was seen before is kept."""
    return replace(
        alert,
        condition=alert.condition or condition,
        event=alert.event or event,
        assigned=max(alert.assigned, gauge or 0),
    )
