"""The status of a LeaseQueue, and when it is worth a write."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from leasequeue.sample import Stats
from leasequeue.states import State
from leasequeue_operator.plan import names
from leasequeue_operator.plan.conditions import Condition, merge, timestamp
from leasequeue_operator.plan.deployment import COMPONENT
from leasequeue_operator.plan.observation import Observation
from leasequeue_operator.scaling import saved

WRITE_EVERY_S = 60.0
PODS_EVERY_S = 10.0


def build(o: Observation, found: list[Condition], previous: Mapping[str, Any]) -> dict[str, Any]:
    """The whole status.

    Args:
        o: what was seen.
        found: the conditions.
        previous: the status written last.
    """
    status: dict[str, Any] = {
        "observedGeneration": o.queue.generation,
        "conditions": merge(previous.get("conditions") or (), found, o.queue.generation, o.now),
        "desiredReplicas": o.desired,
        "replicas": o.existing,
        "readyReplicas": o.ready,
        "selector": names.selector_text(o.queue.uid, COMPONENT),
        "scaling": _scaling(o, previous),
    }
    stats = o.database.stats if o.database is not None else None
    if stats is not None:
        status["items"] = _items(stats)
        if o.owner and stats.swept_at is not None:
            status["reclaimer"] = {"lastSuccessTime": _time(stats.swept_at)}
    return status


def worth_writing(status: Mapping[str, Any], written: Mapping[str, Any], age_s: float) -> bool:
    """Whether to write: at once when desired, a condition or the memory of the scaling changed, else once a minute if anything did.

    Pods that come and go are told every 10 s at most: a big fleet's start would be hundreds of writes otherwise. Where nothing
    happens nothing is written.
    """
    if _essence(status) != _essence(written):
        return True
    if any(status.get(k) != written.get(k) for k in ("replicas", "readyReplicas")):
        return age_s >= PODS_EVERY_S
    return age_s >= WRITE_EVERY_S and _news(status) != _news(written)


def _news(status: Mapping[str, Any]) -> dict[str, Any]:
    """All but the time of the sample: the same counts seen once more are no news."""
    items = {k: v for k, v in (status.get("items") or {}).items() if k != "sampleTime"}
    return {**status, "items": items}


def _essence(status: Mapping[str, Any]) -> object:
    told = [(c.get("type"), c.get("status"), c.get("reason")) for c in status.get("conditions") or ()]
    same = ("observedGeneration", "desiredReplicas", "selector")
    memory = (status.get("scaling") or {}).get("state")
    return sorted(told), memory, [status.get(k) for k in same]


def _scaling(o: Observation, previous: Mapping[str, Any]) -> dict[str, Any]:
    before = previous.get("scaling") or {}
    scaling: dict[str, Any] = {}
    if o.decision is not None:
        state = saved.write(o.decision.state)
        if o.applied is not None and o.applied > o.desired:
            state["applied"] = o.applied
        scaling = {"limiter": o.decision.limiter, "state": state, "draining": o.draining, "busyKills": o.busy_kills}
        if o.decision.raw is not None:
            scaling["raw"] = o.decision.raw
    changed = previous.get("desiredReplicas") not in (None, o.desired)
    last = timestamp(o.now) if changed else before.get("lastScaleTime")
    return {**scaling, **({"lastScaleTime": last} if last else {})}


def _items(stats: Stats) -> dict[str, Any]:
    items: dict[str, Any] = {state.value.lower(): stats.counts[state] for state in State}
    items.update(pendingDue=stats.due, expired=stats.expired, sampleTime=_time(stats.now))
    if stats.oldest_pending_at is not None:
        items["oldestPendingTime"] = _time(stats.oldest_pending_at)
    return items


def _time(moment: datetime) -> str:
    return timestamp(moment.astimezone(UTC).timestamp())
