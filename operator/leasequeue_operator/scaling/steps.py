"""From the wanted number of pods to the next one: up at once in bounded steps, down by the window in halves."""

from __future__ import annotations

from dataclasses import dataclass, replace

from leasequeue_operator.scaling import window as windows
from leasequeue_operator.scaling.model import Decision, ScalingSpec, ScalingState
from leasequeue_operator.scaling.schedule import Bounds

STEP_S = 15.0
# Downwards the window has waited already: longer steps would only hold pods that nobody needs, and load that returns lifts cordons.
STEP_DOWN_S = 4.0
STEP_UP_PODS = 10
STEP_UP_FACTOR = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """Pods within the bounds, pods that the work asks for, and what decided."""

    target: int
    raw: int
    why: str


def up(state: ScalingState, wanted: Wanted, running: int, now: float) -> Decision:
    """More pods: at once, doubled or ten more in 15 s at most, since each takes connections and starts cold.

    Pods that run already, cordoned by a decrease that is not done, are no such step: `running` may be reached directly.
    """
    target, why = wanted.target, wanted.why
    if state.desired == 0:
        # From nothing there is nothing to double; the first step begins with what is asked for now.
        return Decision(target, wanted.raw, why, replace(state, desired=target, step_at=now, step_base=target))
    step_at, base = state.step_at, state.step_base
    if step_at is None or now - step_at >= STEP_S:
        step_at, base = now, state.desired
    allowed = max(base + STEP_UP_PODS, base * STEP_UP_FACTOR, state.desired, running)
    if target > allowed:
        target, why = allowed, "step_up"
    if target == state.desired:
        return Decision(target, wanted.raw, why, state)
    return Decision(target, wanted.raw, why, replace(state, desired=target, step_at=step_at, step_base=base))


def down(state: ScalingState, limits: Bounds, spec: ScalingSpec, wanted: Wanted, now: float) -> Decision:
    """As many pods or fewer: by the highest demand of the window, half of them at most in a step."""
    current = state.desired
    if current > limits.high:
        # The bound itself was lowered: that is a person's decision, not a lull.
        over = replace(state, desired=limits.high, step_at=now, step_base=limits.high)
        return Decision(limits.high, wanted.raw, limits.high_by, over)
    target, why = wanted.target, wanted.why
    length_s = windows.length(spec.stabilization_s, state.rates.start_s)
    held = windows.highest(state.window, wanted.raw, now, length_s)
    held = min(max(held, limits.low), current)
    if held > target:
        target, why = held, "stabilization"
    if target == current:
        return Decision(current, wanted.raw, why, state)
    if state.step_at is not None and now - state.step_at < STEP_DOWN_S:
        return Decision(current, wanted.raw, "step_down", state)
    lowest = current - max(1, current // 2)
    if target < lowest:
        target, why = lowest, "step_down"
    return Decision(target, wanted.raw, why, replace(state, desired=target, step_at=now, step_base=target))
