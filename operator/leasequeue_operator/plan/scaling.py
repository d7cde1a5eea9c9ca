"""What the scaling decision needs, taken from spec and observation."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from leasequeue_operator.observe.view import DatabaseView
from leasequeue_operator.plan import podfaults
from leasequeue_operator.plan.spec import Spec
from leasequeue_operator.scaling.decide import Sample, ScalingSpec
from leasequeue_operator.scaling.schedule import Window


def scaling_spec(spec: Spec) -> ScalingSpec:
    """The part of the spec that `decide` looks at."""
    scaling = spec.scaling
    return ScalingSpec(
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        concurrency=spec.worker.concurrency,
        max_inflight=spec.lease.max_inflight,
        poll_s=scaling.poll_period_seconds,
        drain_s=scaling.drain_target_seconds,
        latency_s=scaling.latency_target_seconds,
        stabilization_s=scaling.scale_down_stabilization_seconds,
        schedules=tuple(Window(s.name, s.start, s.end, s.time_zone, s.min_replicas, s.max_replicas) for s in scaling.schedules),
        manual_replicas=spec.replicas if scaling.mode == "Manual" else None,
        suspend=spec.suspend,
    )


def sample_of(view: DatabaseView | None, pods: Sequence[Mapping[str, Any]] = (), running: int = 0) -> Sample | None:
    """The sample, None when the newest look gave none: an older one must not pass for the present.

    Args:
        view: what the database showed.
        pods: the queue's pods, which tell how long a start takes.
        running: worker pods that the Deployment asks for.
    """
    if view is None or not view.ok or view.stats is None or view.stats_at is None:
        return None
    stats = view.stats
    due = stats.claimable
    if stats.lanes is not None and due == 0 and stats.scheduled_due > 0:
        # With strict lanes a due SCHEDULED item counts once it is PENDING; one worker is enough to make it so.
        due = 1
    oldest = stats.oldest_pending_at
    return Sample(
        view.stats_at,
        due=due,
        expired=stats.expired,
        assigned=stats.assigned - stats.expired,
        held_back=max(0, stats.due - due),
        finished=stats.finished_total,
        busy_ms=stats.busy_ms_total,
        oldest_age_s=None if oldest is None else max(0.0, (stats.now - oldest).total_seconds()),
        running=running,
        start_s=start_s(pods),
    )


def start_s(pods: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds from a worker pod's creation until its container ran: the median of those that never restarted.

    Readiness would not do: a worker that is cordoned and drained turns not ready, and ready again when it is wanted back.
    """
    taken = []
    for pod in podfaults.of_component(pods, "worker"):
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            began = ((container.get("state") or {}).get("running") or {}).get("startedAt")
            made = pod["metadata"].get("creationTimestamp")
            if began and made and not container.get("restartCount"):
                taken.append((datetime.fromisoformat(began) - datetime.fromisoformat(made)).total_seconds())
    return max(0.0, statistics.median(taken)) if taken else None
