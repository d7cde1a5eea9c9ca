"""What the scaling decision needs, taken from spec and observation."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from leasequeue.lane_depth import LaneDepth
from leasequeue_operator.observe.view import DatabaseView
from leasequeue_operator.plan import podfaults
from leasequeue_operator.plan.spec import Spec
from leasequeue_operator.scaling.decide import Sample, ScalingSpec
from leasequeue_operator.scaling.schedule import Window
from leasequeue_operator.scaling.share import Counters, Share


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


def sample_of(
    view: DatabaseView | None, pods: Sequence[Mapping[str, Any]] = (), running: int = 0, share: Share | None = None
) -> Sample | None:
    """The sample, None when the newest look gave none: an older one must not pass for the present.

    Args:
        view: what the database showed.
        pods: the queue's pods, which tell how long a start takes.
        running: worker pods that the Deployment asks for.
        share: what the queue's own workers did, where it serves some lanes of the table alone.
    """
    if view is None or not view.ok or view.stats is None or view.stats_at is None:
        return None
    stats = view.stats
    due = stats.claimable
    if stats.lanes is not None and due == 0 and stats.scheduled_due > 0:
        # With strict lanes a due SCHEDULED item counts once it is PENDING; one worker is enough to make it so.
        due = 1
    oldest = stats.oldest_pending_at
    if view.own is not None and share is not None:
        return _own_sample(
            view.stats_at, view.own, share, _age_s(stats.now, view.own.oldest_pending_at), running, start_s(pods)
        )
    return Sample(
        view.stats_at,
        due=due,
        expired=stats.expired,
        assigned=stats.assigned - stats.expired,
        held_back=max(0, stats.due - due),
        finished=stats.finished_total,
        busy_ms=stats.busy_ms_total,
        oldest_age_s=_age_s(stats.now, oldest),
        running=running,
        start_s=start_s(pods),
    )


def _own_sample(at: float, own: LaneDepth, share: Share, age_s: float | None, running: int, took_s: float | None) -> Sample:
    """The sample of a queue that serves some lanes of a table: their depth, and what its own workers did."""
    due = own.claimable if own.claimable or not own.scheduled_due else 1
    return Sample(
        at, due=due, expired=own.expired, assigned=own.assigned - own.expired,
        held_back=max(0, own.pending + own.scheduled_due - due), finished=share.finished, busy_ms=share.busy_ms,
        oldest_age_s=age_s, running=running, start_s=took_s,
    )  # fmt: skip


def own_counters(view: DatabaseView, pods: Sequence[Mapping[str, Any]]) -> list[Counters]:
    """(worker id, items finished, ms in handlers) of the processes in the queue's own pods."""
    uids = {pod["metadata"].get("uid") for pod in podfaults.of_component(pods, "worker")}
    return [(w.worker_id, w.finished_total, w.busy_ms_total) for w in view.workers if w.pod_uid in uids]


def _age_s(now: datetime, oldest: datetime | None) -> float | None:
    return None if oldest is None else max(0.0, (now - oldest).total_seconds())


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
