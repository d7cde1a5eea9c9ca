"""How soon a backlog should be gone."""

from __future__ import annotations

from leasequeue_operator.scaling.model import DEFAULT_START_S, Sample, ScalingSpec


def target_s(spec: ScalingSpec, sample: Sample, start_s: float | None) -> float:
    """Seconds in which the backlog should be worked off.

    The drain target, shortened as the oldest item nears the latency target: what is left until then, less the start of a
    pod, and a poll at least.
    """
    if spec.latency_s is None or sample.oldest_age_s is None:
        return spec.drain_s
    left_s = spec.latency_s - sample.oldest_age_s - (DEFAULT_START_S if start_s is None else start_s)
    return min(spec.drain_s, max(left_s, spec.poll_s))


def share(service_s: float | None, target: float) -> float:
    """Slots that one waiting item needs, so that all of them have begun within `target` seconds: one where it is not known."""
    return 1.0 if service_s is None else min(1.0, service_s / target)
