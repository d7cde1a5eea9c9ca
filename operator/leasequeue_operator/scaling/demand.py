"""How many pods the work asks for, before any bound.

    slots = max(λS + β√(λS), max(λS, A·s) + (Q+E)·s, A)     s = min(1, S/T)
    slots ≤ Q+E+A + λ(D + poll)

A are items in flight as far as there are slots for them; what is fetched ahead of that waits, and counts to Q.

Square-root slack (Erlang C): with λS slots the queue of random arrivals grows without end, and the slack that keeps the wait
short grows with the root alone. The drain comes on top of what the load needs anyway, and of running items that will not
end within T. Nobody can work on what is not there: the cap is the work in sight and what comes until a pod of now could
take it.
"""

from __future__ import annotations

import math

from leasequeue_operator.scaling import drain
from leasequeue_operator.scaling.model import DEFAULT_START_S, Sample, ScalingSpec
from leasequeue_operator.scaling.rates import Load

# Less than half an item until a pod could be there: not worth a pod. It lets a queue with an item now and then rest at zero.
WORTH_A_POD = 0.5


def pods(sample: Sample, load: Load, start_s: float | None, spec: ScalingSpec) -> tuple[int, str]:
    """Pods that the work asks for, and what asked for them.

    Args:
        sample: the queue now.
        load: arrivals and service time.
        start_s: seconds a pod takes to start.
        spec: targets and concurrency.

    Returns:
        Pods, and one of rate, drain, latency, in_flight, in_sight, idle. Never fewer for a deeper queue.
    """
    slots, why = _slots(sample, load, drain.target_s(spec, sample, start_s), spec)
    coming = load.rate * ((DEFAULT_START_S if start_s is None else start_s) + spec.poll_s)
    if sample.in_sight == 0 and coming < WORTH_A_POD:
        return 0, "idle"
    sight = sample.in_sight + coming
    if slots > sight:
        slots, why = sight, "in_sight"
    return max(1, math.ceil(slots / spec.concurrency - 1e-9)), why


def _slots(sample: Sample, load: Load, target: float, spec: ScalingSpec) -> tuple[float, str]:
    live = _in_slots(sample, spec)
    waiting = sample.due + sample.expired + sample.assigned - live
    steady = load.rate * load.service_s if load.service_s is not None else 0.0
    share = drain.share(load.service_s, target)
    asked = {
        "rate": steady + spec.slack * math.sqrt(steady),
        "in_flight": float(live),
        "drain" if target == spec.drain_s else "latency": (max(steady, live * share) + waiting * share) if waiting else 0.0,
    }
    why = max(asked, key=lambda name: asked[name])
    return asked[why], why


def _in_slots(sample: Sample, spec: ScalingSpec) -> int:
    """Items in flight that can be in a slot: those that workers fetched ahead wait like any other.

    Otherwise each pod that is added fetches more ahead, and what it holds asks for the next one.
    """
    return min(sample.assigned, sample.running * spec.concurrency) if sample.running else sample.assigned
