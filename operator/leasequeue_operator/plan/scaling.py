"""What the scaling decision needs, taken from spec and observation."""

from __future__ import annotations

from leasequeue_operator.observe.view import DatabaseView
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
        stabilization_s=scaling.scale_down_stabilization_seconds,
        schedules=tuple(Window(s.name, s.start, s.end, s.time_zone, s.min_replicas, s.max_replicas) for s in scaling.schedules),
        manual_replicas=spec.replicas if scaling.mode == "Manual" else None,
        suspend=spec.suspend,
    )


def sample_of(view: DatabaseView | None) -> Sample | None:
    """The sample, None when the newest look gave none: an older one must not pass for the present."""
    if view is None or not view.ok or view.stats is None or view.stats_at is None:
        return None
    stats = view.stats
    due = stats.claimable
    if stats.lanes is not None and due == 0 and stats.scheduled_due > 0:
        # With strict lanes a due SCHEDULED item counts once it is PENDING; one worker is enough to make it so.
        due = 1
    return Sample(view.stats_at, due=due, expired=stats.expired, assigned=stats.assigned - stats.expired)
