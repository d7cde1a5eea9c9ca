"""Events: one a transition, none for what stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from leasequeue_operator.plan.conditions import Condition

# Conditions whose change is worth telling, and the status that is good news.
_TOLD = {
    "Accepted": "True",
    "DatabaseReachable": "True",
    "SchemaReady": "True",
    "WorkersAvailable": "True",
    "ReclaimerHealthy": "True",
    "InflightWithinLimit": "True",
    "LanesBlocked": "False",
    "Suspended": "False",
}
# Not good yet and no fault either: what is asked for is under way.
UNDER_WAY = frozenset({"SchemaJobRunning"})
# On first sight only faults are told: a new queue has no good news yet.


@dataclass(frozen=True, slots=True)
class Event:
    """One event to be told."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def transitions(previous: Mapping[str, Mapping[str, Any]], found: Sequence[Condition]) -> list[Event]:
    """Events for the conditions whose status changed, or whose fault became another one."""
    events = []
    for c in found:
        good = _TOLD.get(c.type)
        old = previous.get(c.type, {})
        if good is None or c.status == "Unknown" or (old.get("status"), old.get("reason")) == (c.status, c.reason):
            continue
        if c.status == good:
            # From one good reason to another, or from not known yet: no news.
            if old.get("status") not in (None, "Unknown", good):
                events.append(Event("Normal", c.reason, f"{c.type}: {c.message}"))
        elif c.type == "Suspended" or c.reason in UNDER_WAY:
            events.append(Event("Normal", c.reason, c.message))
        else:
            events.append(Event("Warning", c.reason, c.message))
    return events


def scaled(before: int, after: int, limiter: str) -> Event:
    """Event of a change of the number of workers."""
    return Event("Normal", "Scaled", f"Workers: {before} → {after} ({limiter}).")
