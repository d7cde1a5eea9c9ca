"""`python -m benchmarks.autoscaling.packing`: pod-seconds of loads of long jobs if no item waited and pods cost no time of their own.

A job stays on the pod that began it, and a pod is there until its last job has ended. So even pods that start at once and end at
once cost more than the jobs' own seconds, and how much more depends on which pod an item goes to:

    random        any pod with a free slot, as workers that race for items have it
    fullest       the fullest pod with a free slot, so that the others empty
    clairvoyant   the pod that has to stay the least longer for it: needs the length of every job beforehand

Greedy rules, not proven optima: a yardstick for what a decision about the number of pods can still gain.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

import click
from rich.console import Console
from rich.table import Table

from benchmarks.autoscaling.loads import LOADS
from benchmarks.autoscaling.traces import Trace, arrivals


@dataclass
class Packed:
    """A pod: when it was made, and when each of its jobs ends, seconds."""

    made: float
    ends: list[float] = field(default_factory=list)

    def busy(self, now: float) -> int:
        """Jobs that run at `now`."""
        return sum(end > now for end in self.ends)


Order = Callable[[Packed, float, float, random.Random], float]

# The pod with the lowest value takes the item: (pod, now, end of the job, rng).
ORDERS: dict[str, Order] = {
    "random": lambda _pod, _now, _end, rng: rng.random(),
    "fullest": lambda pod, now, _end, _rng: -pod.busy(now),
    "clairvoyant": lambda pod, _now, end, _rng: max(0.0, end - max(pod.ends)),
}


def pod_seconds(trace: Trace, order: Order, seed: int) -> float:
    """Pod-seconds until the end of the load, with a pod at once for each item that finds no free slot.

    Args:
        trace: the load; jobs take half to one and a half of its mean.
        order: which pod takes an item.
        seed: of arrivals and job lengths.
    """
    lengths, choice = random.Random(seed), random.Random(seed)
    alive: list[Packed] = []
    total = 0.0
    for now in arrivals(trace, seed):
        total += sum(max(p.ends) - p.made for p in alive if not p.busy(now))
        alive = [p for p in alive if p.busy(now)]
        end = now + trace.service_s * lengths.uniform(0.5, 1.5)
        free = [p for p in alive if p.busy(now) < trace.slots]
        pod = min(free, key=lambda p: order(p, now, end, choice)) if free else Packed(now)
        pod.ends.append(end)
        if not free:
            alive.append(pod)
    return total + sum(min(float(trace.length_s), max(p.ends)) - p.made for p in alive)


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=80, show_default=True, help="How many runs each figure is a mean of.")
def main(seeds: int) -> None:
    """Print them beside what KEDA was measured at."""
    table = Table(title=f"Pod-seconds if no item waited and pods started and ended at once (means of {seeds} runs)")
    for number, column in enumerate(("load", *ORDERS, "KEDA default, measured")):
        table.add_column(column, justify="left" if number == 0 else "right")
    for load in (one for one in LOADS if one.trace.service_s >= 100):
        found = [fmean(pod_seconds(load.trace, order, seed) for seed in range(1, seeds + 1)) for order in ORDERS.values()]
        keda = load.default.pod_seconds
        table.add_row(load.trace.name, *(f"{n:,.0f} ({n / keda:.2f})" for n in found), f"{keda:,.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
