"""The loads: arrivals per second over time, and what is particular about each."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.autoscaling.world import Result, World


@dataclass(frozen=True)
class Trace:
    """One load.

    Args:
        name: as in the table.
        length_s: how long it is watched.
        rate: arrivals per second at a time.
        service_s: mean seconds of a job.
        dumps: items that arrive all at once, by time.
        start_s: how long a pod takes to start.
        max_replicas: most pods.
        slots: of a pod.
        ceiling: most items in flight.
        outage: from and to, when the database does not answer.
        drain_s: drain target that LeaseQueue and the expert's SQL are given.
    """

    name: str
    length_s: int
    rate: Callable[[float], float]
    service_s: float = 4.0
    dumps: tuple[tuple[float, int], ...] = ()
    start_s: float = 5.0
    max_replicas: int = 20
    slots: int = 4
    ceiling: int = 10_000
    outage: tuple[float, float] = (-1.0, -1.0)
    drain_s: float = 30.0


class Scaler:
    """An autoscaler: looks each second, and scales when it wants to."""

    name = ""

    def tick(self, world: World) -> None:
        """One second has passed. `world.blind` says that no metric can be read."""
        raise NotImplementedError


def between(start: float, end: float, rate: float, otherwise: float = 0.0) -> Callable[[float], float]:
    """`rate` from `start` to `end`, `otherwise` before and after."""
    return lambda t: rate if start <= t < end else otherwise


TRACES = (
    Trace("steady", 900, between(10, 490, 5.0)),
    Trace("sine", 2400, lambda t: 4.0 * (1 - math.cos(2 * math.pi * t / 1200)) if t < 2100 else 0.0),
    Trace("10x step", 900, lambda t: 0.0 if t < 10 or t >= 490 else 10.0 if 190 <= t < 370 else 1.0),
    Trace("bursts", 1200, lambda t: 10.0 if 10 <= t < 910 and (t - 10) % 180 < 30 else 0.0),
    Trace("fast jobs", 900, between(10, 490, 60.0), service_s=0.05),
    Trace("dump of 1,100", 900, between(0, 0, 0.0), dumps=((10.0, 1100),)),
    Trace("dump of 4,000", 1200, between(0, 0, 0.0), dumps=((10.0, 4000),)),
    Trace("long jobs 100 s", 1200, lambda t: 0.0 if t < 10 or t >= 690 else 0.3 if t < 130 else 0.08, service_s=100.0),
    Trace("long jobs 600 s", 4800, between(10, 2410, 0.03), service_s=600.0),
    Trace("ceiling 40", 900, between(10, 490, 8.0), ceiling=40),
    Trace("outage in mid-ramp", 900, between(10, 490, 8.0), outage=(30.0, 150.0)),
    Trace("slow pod starts", 1200, lambda t: 0.0 if t < 10 or t >= 790 else 8.0 if 300 <= t < 600 else 2.0, start_s=90.0),
)


def arrivals(trace: Trace, seed: int = 1) -> list[float]:
    """When each item arrives, seconds since the beginning, in order: the same whoever asks."""
    rng = random.Random(f"{trace.name}/{seed}")
    dumps = dict(trace.dumps)
    found: list[float] = []
    for second in range(trace.length_s):
        found += [float(second)] * dumps.get(float(second), 0)
        found += sorted(second + rng.random() for _ in range(poisson(rng, trace.rate(second))))
    return found


def run(trace: Trace, scaler: Scaler, seed: int = 1) -> Result:
    """Simulate one load under one autoscaler."""
    world = World(random.Random(seed), trace.slots, trace.start_s, trace.ceiling, trace.service_s)
    coming = deque(arrivals(trace, seed))
    for second in range(trace.length_s):
        world.blind = trace.outage[0] <= second < trace.outage[1]
        now: list[float] = []
        while coming and coming[0] < second + 1:
            now.append(coming.popleft())
        scaler.tick(world)
        world.step(now)
    world.result.left = len(world.queue) + len(world.cut)
    return world.result


def poisson(rng: random.Random, mean: float) -> int:
    """A number of arrivals with that mean."""
    if mean <= 0:
        return 0
    if mean > 30:
        return max(0, round(rng.gauss(mean, math.sqrt(mean))))
    limit, product, count = math.exp(-mean), rng.random(), 0
    while product > limit:
        product *= rng.random()
        count += 1
    return count
