"""LeaseQueue in the simulator: the operator's own pure functions, looked at as the operator looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.autoscaling.traces import Scaler, Trace
from benchmarks.autoscaling.world import World
from leasequeue_operator.scaling import saved, shrink
from leasequeue_operator.scaling.decide import Decision, Sample, ScalingSpec, ScalingState, decide

LOOK_S = 2.0
DEFAULT_WINDOW_S, DEFAULT_SLACK = ScalingSpec().stabilization_s, ScalingSpec().slack
EPOCH = 1_800_000_000.0


@dataclass(frozen=True)
class Look:
    """One decision: when, with which sample and how many pods there, what it was, and what the status held before it."""

    at: float
    sample: Sample | None
    running: int
    decision: Decision
    written: dict[str, Any]


class LeaseQueue(Scaler):
    """`decide` every poll, and at once at the first item (the database notifies); `shrink` every 2 s while it is under way.

    Args:
        trace: whose bounds and targets it is given.
        stabilization_s: length of the window.
        slack: β.
    """

    name = "LeaseQueue"

    def __init__(self, trace: Trace, stabilization_s: float = DEFAULT_WINDOW_S, slack: float = DEFAULT_SLACK) -> None:
        self.spec = ScalingSpec(
            max_replicas=trace.max_replicas, concurrency=trace.slots, max_inflight=trace.ceiling, drain_s=trace.drain_s,
            stabilization_s=stabilization_s, slack=slack,
        )  # fmt: skip
        self.state, self.shrink = ScalingState(), shrink.Shrink()
        self.written = saved.write(self.state)
        self.looks: list[Look] = []
        self._next_at, self._look_at = 0.0, 0.0

    def tick(self, world: World) -> None:
        """See `Scaler`."""
        notified = self.state.desired == 0 and bool(world.queue)
        if world.now >= self._next_at or notified:
            self._decide(world)
        if world.now >= self._look_at:
            self._approach(world)

    def _decide(self, world: World) -> None:
        self._next_at = world.now + self.spec.poll_s
        sample = None if world.blind else self._sample(world)
        decision = decide(self.state, sample, self.spec, EPOCH + world.now)
        self.looks.append(Look(EPOCH + world.now, sample, world.replicas, decision, self.written))
        self.state = decision.state
        self.written = {**saved.write(self.state), "applied": max(world.replicas, decision.desired)}
        self._look_at = 0.0

    def _sample(self, world: World) -> Sample:
        finished, busy_s = world.reported
        return Sample(
            EPOCH + world.now, len(world.queue), len(world.cut), world.running, finished=finished, busy_ms=int(busy_s * 1000),
            oldest_age_s=world.oldest_age_s, running=world.replicas,
            start_s=world.start_s if any(p.ready_at <= world.now for p in world.pods.values()) else None,
        )  # fmt: skip

    def _approach(self, world: World) -> None:
        target = self.state.desired
        if target >= world.replicas and not self.shrink.under_way and not self.shrink.leaving:
            world.scale(target)
            return
        self._look_at = world.now + LOOK_S
        if world.blind:
            self._do(world, shrink.blind(self.shrink, self._fleet(world), target, world.now))
            return
        choice = shrink.choose(self.shrink, self._fleet(world), target, world.now)
        for name in choice.uncordon:
            world.pods[name].cordoned_until = -1.0
        for name in choice.cordon:
            world.pods[name].cordoned_until = world.now + shrink.CORDON_S
        self._do(world, shrink.settle(choice.state, self._fleet(world), target, world.now))

    def _do(self, world: World, step: shrink.Step) -> None:
        for name in step.price:
            world.pods[name].priced = True
        for name in step.unprice:
            world.pods[name].priced = False
        self.shrink = step.state
        world.scale(step.replicas)

    def _fleet(self, world: World) -> shrink.Fleet:
        pods = [
            shrink.Pod(p.name, p.name, f"{p.number:06d}", world.ready(p), p.priced, len(p.jobs), p.cordoned_until > world.now)
            for p in world.pods.values()
        ]
        return shrink.Fleet(world.replicas, pods, existing=len(pods))
