"""How many workers: one pure function, `decide`.

Demand is the number of slots that could be busy now: due items, expired leases (which come back), and live leases.
It is bounded by `max_inflight`, since items above it cannot be worked on whatever the fleet, and by the minimum and
maximum. Upwards at once, in steps that double at most, since each pod takes connections and starts cold; from zero
directly. Downwards by the maximum of a window and half at most in a step, since the next wave often follows the last.
To zero only when nothing waited, expired or ran through the whole window. An error or an old sample holds: unknown is
not zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from leasequeue_operator.scaling import window as windows
from leasequeue_operator.scaling.schedule import Bounds, Window, bounds

STEP_S = 15.0
STEP_UP_PODS = 10
STEP_UP_FACTOR = 2
# A sample older than this many poll periods (at least STALE_AT_LEAST_S) says nothing about now.
STALE_PERIODS = 3
STALE_AT_LEAST_S = 15.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Depth of the queue.

    Args:
        at: when it was taken, seconds since 1970 UTC.
        due: items that could be claimed now.
        expired: ASSIGNED past their expiry.
        assigned: ASSIGNED and not expired.
    """

    at: float
    due: int
    expired: int
    assigned: int


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """What the decision needs of the spec; see the CRD for units and bounds."""

    min_replicas: int = 0
    max_replicas: int = 10
    concurrency: int = 1
    max_inflight: int = 1000
    poll_s: float = 5
    stabilization_s: float = 300
    schedules: tuple[Window, ...] = ()
    manual_replicas: int | None = None
    suspend: bool = False


@dataclass(frozen=True, slots=True)
class ScalingState:
    """Memory between two decisions.

    Args:
        desired: pods decided last.
        window: stabilisation window of the demand.
        step_at: when the present step began, seconds since 1970 UTC.
        step_base: pods when it began.
    """

    desired: int = 0
    window: windows.Window = field(default_factory=windows.Window)
    step_at: float = -math.inf
    step_base: int = 0

    def to_status(self) -> dict[str, Any]:
        """As plain JSON, for the status."""
        step = {} if math.isinf(self.step_at) else {"stepAt": int(self.step_at), "stepBase": self.step_base}
        return {"desired": self.desired, **self.window.to_status(), **step}

    @classmethod
    def from_status(cls, saved: Mapping[str, Any], current: int, now: float, stabilization_s: float) -> ScalingState:
        """Go on after a restart.

        Args:
            saved: what `to_status` gave, or anything unreadable.
            current: pods the Deployment asks for now.
            now: seconds since 1970 UTC.
            stabilization_s: length of the window.
        """
        window = windows.assume(windows.Window.from_status(saved), current, now, length_s=stabilization_s)
        try:
            return cls(current, window, float(saved["stepAt"]), int(saved["stepBase"]))
        except (KeyError, TypeError, ValueError):
            return cls(current, window)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided.

    Args:
        desired: pods from now on.
        raw: pods the demand alone asks for; None when it is unknown.
        limiter: what decided, one word for status, metric and event.
        state: memory for the next decision.
    """

    desired: int
    raw: int | None
    limiter: str
    state: ScalingState


def decide(state: ScalingState, sample: Sample | None, spec: ScalingSpec, now: float) -> Decision:
    """Decide how many pods there should be.

    Args:
        state: memory of the last decision; `desired` is what the fleet is told now.
        sample: depth of the queue, None when it could not be read.
        spec: bounds and periods.
        now: seconds since 1970 UTC.
    """
    if spec.suspend:
        return _settled(state, 0, "suspend", now)
    if spec.manual_replicas is not None:
        return _settled(state, spec.manual_replicas, "manual", now)
    limits = _limits(spec, now)
    if sample is None:
        return _hold(state, limits, "database_error", now)
    if now - sample.at > max(STALE_PERIODS * spec.poll_s, STALE_AT_LEAST_S):
        return _hold(state, limits, "stale_sample", now)
    slots = sample.due + sample.expired + sample.assigned
    raw = math.ceil(slots / spec.concurrency)
    gap_s = max(60.0, STALE_PERIODS * spec.poll_s)
    seen = windows.add(state.window, raw, now, length_s=spec.stabilization_s, gap_s=gap_s)
    state = replace(state, window=seen)
    target, why = _bounded(raw, limits)
    if why == "max_inflight" and sample.expired >= spec.max_inflight:
        why = "stale_leases"
    if target > state.desired:
        return _up(state, target, raw, why, now)
    return _down(state, limits, spec, _Wanted(target, raw, why), now)


def _limits(spec: ScalingSpec, now: float) -> Bounds:
    """Bounds of spec and schedules, with max_inflight's own: more slots than it allows could never be busy."""
    found = bounds(spec.min_replicas, spec.max_replicas, spec.schedules, now)
    ceiling = math.ceil(spec.max_inflight / spec.concurrency)
    if ceiling < found.high:
        found = replace(found, high=ceiling, low=min(found.low, ceiling), high_by="max_inflight")
    return found


def _bounded(raw: int, limits: Bounds) -> tuple[int, str]:
    if raw > limits.high:
        return limits.high, limits.high_by
    if raw < limits.low:
        return limits.low, limits.low_by
    return raw, "depth"


def _settled(state: ScalingState, desired: int, why: str, now: float) -> Decision:
    """A number that a person set. The window starts anew when the queue decides again."""
    after = ScalingState(desired, step_at=now, step_base=desired)
    return Decision(desired, None, why, after if desired != state.desired else replace(state, window=windows.Window()))


def _hold(state: ScalingState, limits: Bounds, why: str, now: float) -> Decision:
    """Never down on an error; up to the minimum, which does not depend on what the database says."""
    if state.desired < limits.low:
        raised = replace(state, desired=limits.low, step_at=now, step_base=limits.low)
        return Decision(limits.low, None, limits.low_by, raised)
    return Decision(state.desired, None, why, state)


def _up(state: ScalingState, target: int, raw: int, why: str, now: float) -> Decision:
    if state.desired == 0:
        # From nothing there is nothing to double; the first step begins with what is asked for now.
        return Decision(target, raw, why, replace(state, desired=target, step_at=now, step_base=target))
    if now - state.step_at >= STEP_S:
        state = replace(state, step_at=now, step_base=state.desired)
    allowed = max(state.step_base + STEP_UP_PODS, state.step_base * STEP_UP_FACTOR, state.desired)
    if target > allowed:
        target, why = allowed, "step_up"
    return Decision(target, raw, why, replace(state, desired=target))


@dataclass(frozen=True, slots=True)
class _Wanted:
    target: int
    raw: int
    why: str


def _down(state: ScalingState, limits: Bounds, spec: ScalingSpec, wanted: _Wanted, now: float) -> Decision:
    current = state.desired
    if current > limits.high:
        # The bound itself was lowered: that is a person's decision, not a lull.
        over = replace(state, desired=limits.high, step_at=now, step_base=limits.high)
        return Decision(limits.high, wanted.raw, limits.high_by, over)
    target, why = wanted.target, wanted.why
    if target < current:
        if not windows.covers(state.window, now, spec.stabilization_s):
            return Decision(current, wanted.raw, "stabilization", state)
        held, _ = _bounded(windows.highest(state.window, wanted.raw), limits)
        if held > target:
            target, why = min(held, current), "stabilization"
    if target == current:
        return Decision(current, wanted.raw, why, state)
    lowest = current - max(1, current // 2)
    if now - state.step_at < STEP_S:
        return Decision(current, wanted.raw, "step_down", state)
    if target < lowest:
        target, why = lowest, "step_down"
    return Decision(target, wanted.raw, why, replace(state, desired=target, step_at=now, step_base=target))
