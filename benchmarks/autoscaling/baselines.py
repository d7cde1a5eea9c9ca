"""Emulations of other autoscalers, with their own periods and windows.

`KedaHpa` is KEDA 2.x in front of the HorizontalPodAutoscaler, with the defaults of both: KEDA looks every polling interval
whether there is anything at all (0 → 1, and 1 → 0 after 300 s without), the HPA computes ceil(metric / target) every 15 s with
10 % tolerance, climbs to max(2 × current, 4) a sync, and follows the maximum of the last 300 s downwards. A metric that fails
freezes the number. Pods that go are taken by the ReplicaSet controller, whoever works in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from benchmarks.autoscaling.traces import Scaler, Trace
from benchmarks.autoscaling.world import World

SYNC_S = 15
STABILIZATION_S = 300
COOLDOWN_S = 300
TOLERANCE = 0.1


class KedaHpa(Scaler):
    """KEDA with the HPA.

    Args:
        name: in the table.
        trace: whose maximum it is given.
        metric: what the trigger's SQL returns.
        target: average value a pod.
        poll_s: polling interval.
    """

    def __init__(self, name: str, trace: Trace, metric: Callable[[World], float], target: float, poll_s: int = 30) -> None:
        self.name, self._metric, self._target, self._poll_s, self._max = name, metric, target, poll_s, trace.max_replicas
        self._active_at = -math.inf
        self._recommended: list[tuple[float, int]] = []

    def tick(self, world: World) -> None:
        """See `Scaler`."""
        if world.blind:
            return
        # The first item of every load comes at 10 s, in the middle between two looks: that is the mean of what users meet.
        if (world.now - 10 - self._poll_s // 2) % self._poll_s == 0:
            self._activate(world)
        if world.now % SYNC_S == 7 and world.replicas > 0:
            world.scale(self._hpa(world))

    def _activate(self, world: World) -> None:
        if self._metric(world) > 0:
            self._active_at = world.now
            if world.replicas == 0:
                world.scale(1)
        elif world.replicas > 0 and world.now - self._active_at >= COOLDOWN_S:
            world.scale(0)

    def _hpa(self, world: World) -> int:
        current, metric = world.replicas, self._metric(world)
        wanted = math.ceil(metric / self._target)
        if abs(metric / (self._target * current) - 1) <= TOLERANCE:
            wanted = current
        wanted = min(max(wanted, 1), self._max)
        self._recommended = [(at, n) for at, n in self._recommended if at > world.now - STABILIZATION_S]
        self._recommended.append((world.now, wanted))
        wanted = max(wanted, min(current, max(n for _, n in self._recommended)))
        return min(wanted, max(2 * current, 4))


class QueueTimeBand(Scaler):
    """Scales on the age of the oldest item: half as many more above 10 s, one fewer a minute below 1 s for five minutes."""

    name = "queue-time band"

    def __init__(self, trace: Trace) -> None:
        self._max, self._calm_since, self._next_at = trace.max_replicas, 0.0, 0.0

    def tick(self, world: World) -> None:
        """See `Scaler`."""
        if world.blind or world.now < self._next_at:
            return
        self._next_at = world.now + 10
        age_s = world.oldest_age_s or 0.0
        if age_s >= 1.0:
            self._calm_since = world.now
        if world.queue and world.replicas == 0:
            world.scale(1)
        elif age_s > 10.0:
            world.scale(min(self._max, world.replicas + max(1, world.replicas // 2)))
        elif world.now - self._calm_since >= STABILIZATION_S and world.replicas > 0:
            self._calm_since += 60
            floor = 1 if world.running else 0
            world.scale(max(floor, world.replicas - 1))


def default(trace: Trace) -> KedaHpa:
    """The SQL most people write: assigned and pending, as many a pod as it has slots."""
    return KedaHpa("KEDA assigned+pending", trace, lambda w: len(w.queue) + len(w.cut) + w.running, trace.slots)


def pending_only(trace: Trace) -> KedaHpa:
    """The other SQL most people write."""
    return KedaHpa("KEDA pending only", trace, lambda w: len(w.queue), trace.slots)


def expert(trace: Trace) -> KedaHpa:
    """SQL with the drain formula, the exact service time and the ceiling, every 15 s."""

    def slots(world: World) -> float:
        share = min(1.0, trace.service_s / trace.drain_s)
        return min(float(trace.ceiling), world.running + len(world.queue) * share)

    return KedaHpa("KEDA expert SQL", trace, slots, trace.slots, poll_s=15)
