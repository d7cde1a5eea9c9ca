"""The memory of a decision as plain JSON in the status, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leasequeue_operator.scaling import window as windows
from leasequeue_operator.scaling.model import ScalingSpec, ScalingState
from leasequeue_operator.scaling.rates import MARK_EVERY_S, Mark, Rates
from leasequeue_operator.scaling.window import Window

# A fleet that does not rest is saved once a minute: an older memory missed something.
MISSED_S = 30.0


def write(state: ScalingState) -> dict[str, Any]:
    """The state as JSON; what is empty is left out."""
    rates = state.rates
    found: dict[str, Any] = {
        "desired": state.desired,
        "marks": [[m.at, m.arrived, m.finished, m.busy_ms] for m in rates.marks],
        "settled": rates.settled,
        "serviceSeconds": rates.service_s,
        "startSeconds": rates.start_s,
        "maxima": [[at, n] for at, n in state.window.entries],
        "stepAt": state.step_at,
        "stepBase": state.step_base if state.step_at is not None else None,
        "blindSince": state.blind_since,
        "resting": state.resting or None,
    }
    return {key: value for key, value in found.items() if value is not None and value != []}


def applied(status: Mapping[str, Any]) -> int:
    """Pods that the Deployment was left with when the memory was written: more than desired while a decrease is under way."""
    return int(status.get("applied") or status["desired"])


def read(status: Mapping[str, Any], current: int, now: float, spec: ScalingSpec) -> ScalingState:
    """Go on after a restart.

    What is missing counts against a decrease: an unreadable or old memory, or another number of pods than it says, opens
    the window anew with the pods that are there.

    Args:
        status: what `write` gave, or anything unreadable.
        current: pods the Deployment asks for now.
        now: seconds since 1970 UTC.
        spec: periods.
    """
    try:
        state = _parsed(status)
        expected = range(state.desired, applied(status) + 1)
    except (KeyError, TypeError, ValueError):
        return ScalingState(current, window=windows.opened(current, now, spec.stabilization_s))
    newest = state.rates.marks[-1].at if state.rates.marks else 0.0
    longest = max(MARK_EVERY_S, spec.poll_s) + MISSED_S + 2 * spec.poll_s
    missed = not state.resting and state.blind_since is None and not 0 <= now - newest <= longest
    if missed or current not in expected:
        anew = windows.opened(current, now, windows.length(spec.stabilization_s, state.rates.start_s))
        return ScalingState(current, state.rates, anew, blind_since=state.blind_since)
    return state


def _parsed(status: Mapping[str, Any]) -> ScalingState:
    service_s, start_s, step_at, blind = (status.get(k) for k in ("serviceSeconds", "startSeconds", "stepAt", "blindSince"))
    rates = Rates(
        tuple(
            Mark(float(at), int(arrived), int(finished), int(busy)) for at, arrived, finished, busy in status.get("marks", ())
        ),
        float(status.get("settled", 0)),
        None if service_s is None else float(service_s),
        None if start_s is None else float(start_s),
    )
    return ScalingState(
        int(status["desired"]),
        rates,
        Window(tuple((float(at), int(n)) for at, n in status.get("maxima", ()))),
        None if step_at is None else float(step_at),
        int(status.get("stepBase") or 0),
        None if blind is None else float(blind),
        bool(status.get("resting")),
    )
