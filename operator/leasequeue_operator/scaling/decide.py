"""How many workers: one pure function, `decide`.

The work asks for pods (`demand.py`, from the rates of `rates.py` and the drain target of `drain.py`). That is bounded by
`max_inflight`, since items above it cannot be worked on whatever the fleet, and by minimum, maximum and schedules. Upwards at
once, downwards by the maximum of a window (`steps.py`, `window.py`). To zero only when nothing waited, expired or ran through
the whole window. An error or an old sample holds: unknown is not zero.
"""

from __future__ import annotations

import math
from dataclasses import replace

from leasequeue_operator.scaling import demand, rates, steps
from leasequeue_operator.scaling import window as windows
from leasequeue_operator.scaling.model import Decision, Sample, ScalingSpec, ScalingState
from leasequeue_operator.scaling.schedule import Bounds, bounds

__all__ = ["Decision", "Sample", "ScalingSpec", "ScalingState", "decide"]

# A sample older than this many poll periods (at least STALE_AT_LEAST_S) says nothing about now.
STALE_PERIODS = 3
STALE_AT_LEAST_S = 15.0
# After a longer silence the lull starts anew: what was asked for meanwhile is not known.
SILENCE_S = 60.0


def decide(state: ScalingState, sample: Sample | None, spec: ScalingSpec, now: float) -> Decision:
    """Decide how many pods there should be.

    Args:
        state: memory of the last decision; `desired` is what the fleet is told now.
        sample: the queue, None when it could not be read.
        spec: bounds and periods.
        now: seconds since 1970 UTC.
    """
    now = round(now, 3)
    limits = _limits(spec, now)
    missing = _missing(sample, spec, now)
    told = (0, "suspend") if spec.suspend else (spec.manual_replicas, "manual")
    if told[0] is not None:
        return _settled(state, None if missing else sample, spec, told[0], told[1], now)
    if missing or sample is None:
        return _hold(state, limits, missing, now)
    state, raw, why = _learn(_seeing(state, spec, now), sample, spec, limits, now)
    target, limiter = _bounded(raw, limits)
    wanted = steps.Wanted(target, raw, _named(limiter, sample, spec) or why)
    if target > state.desired:
        decision = steps.up(state, wanted, sample.running, now)
    else:
        decision = steps.down(state, limits, spec, wanted, now)
    resting = decision.desired <= limits.low and raw <= limits.low
    if resting == decision.state.resting:
        return decision
    return replace(decision, state=replace(decision.state, resting=resting))


def _learn(state: ScalingState, sample: Sample, spec: ScalingSpec, limits: Bounds, now: float) -> tuple[ScalingState, int, str]:
    """Memory with this sample in it, pods that the work asks for, and why."""
    arrived = sample.in_sight + sample.held_back + sample.finished
    mark = rates.Mark(now, arrived, sample.finished, sample.busy_ms)
    known = replace(state.rates, start_s=rates.start_time(state.rates.start_s, sample.start_s))
    known = state.rates if known == state.rates else known
    known, load = rates.observe(known, mark, still=state.desired <= limits.low)
    raw, why = demand.pods(sample, load, known.start_s, spec)
    at_rest = state.desired <= limits.low and raw <= limits.low
    length_s = windows.length(spec.stabilization_s, known.start_s)
    seen = windows.Window() if at_rest else windows.record(state.window, raw, state.desired, now, length_s)
    return replace(state, rates=known, window=seen), raw, why


def _seeing(state: ScalingState, spec: ScalingSpec, now: float) -> ScalingState:
    """The state now that there is a sample again."""
    if state.blind_since is None:
        return state
    if now - state.blind_since > max(SILENCE_S, STALE_PERIODS * spec.poll_s):
        length_s = windows.length(spec.stabilization_s, state.rates.start_s)
        state = replace(state, window=windows.opened(state.desired, now, length_s))
    return replace(state, blind_since=None)


def _limits(spec: ScalingSpec, now: float) -> Bounds:
    """Bounds of spec and schedules, with max_inflight's own: more slots than it allows could never be busy."""
    found = bounds(spec.min_replicas, spec.max_replicas, spec.schedules, now)
    ceiling = math.ceil(spec.max_inflight / spec.concurrency)
    if ceiling < found.high:
        found = replace(found, high=ceiling, low=min(found.low, ceiling), high_by="max_inflight")
    return found


def _bounded(raw: int, limits: Bounds) -> tuple[int, str]:
    """Within the bounds, and which of them decided; empty when none did."""
    if raw > limits.high:
        return limits.high, limits.high_by
    if raw < limits.low:
        return limits.low, limits.low_by
    return raw, ""


def _named(limiter: str, sample: Sample, spec: ScalingSpec) -> str:
    """A ceiling that expired leases fill is a matter of the reclaimer, not of max_inflight."""
    return "stale_leases" if limiter == "max_inflight" and sample.expired >= spec.max_inflight else limiter


def _missing(sample: Sample | None, spec: ScalingSpec, now: float) -> str:
    """Why there is no sample of now; empty when there is one."""
    if sample is None:
        return "database_error"
    return "stale_sample" if now - sample.at > max(STALE_PERIODS * spec.poll_s, STALE_AT_LEAST_S) else ""


def _settled(state: ScalingState, sample: Sample | None, spec: ScalingSpec, desired: int, why: str, now: float) -> Decision:
    """A person decided; what the work asks for is told all the same."""
    raw = None
    if sample is not None:
        state, raw, _ = _learn(replace(state, blind_since=None), sample, spec, Bounds(desired, desired), now)
    state = replace(state, window=windows.Window(), resting=True)
    if desired != state.desired:
        state = replace(state, desired=desired, step_at=now, step_base=desired)
    return Decision(desired, raw, why, state)


def _hold(state: ScalingState, limits: Bounds, why: str, now: float) -> Decision:
    """Never down on an error; up to the minimum, which does not depend on what the database says."""
    if state.blind_since is None:
        state = replace(state, blind_since=now)
    if state.desired < limits.low:
        raised = replace(state, desired=limits.low, step_at=now, step_base=limits.low)
        return Decision(limits.low, None, limits.low_by, raised)
    return Decision(state.desired, None, why, state)
