"""A queue and its workers as counters over time, for tests of the scaling: arrivals in, finished items out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from leasequeue_operator.scaling import saved
from leasequeue_operator.scaling.decide import Decision, Sample, ScalingSpec, ScalingState, decide

START = 1_800_000_000.0


@dataclass(frozen=True)
class Tick:
    """What happens in one poll period: items that arrive, those that end, their seconds; `blind`: the look fails."""

    arrive: int = 0
    finish: int = 0
    service_s: float = 1.0
    expired: int = 0
    blind: bool = False


def samples(ticks: Iterable[Tick], spec: ScalingSpec, slots: int = 8) -> Iterator[tuple[float, Sample | None]]:
    """(time, sample) of each look, at the end of each tick; `slots` are busy at most."""
    there = finished = busy_ms = 0
    for n, tick in enumerate(ticks):
        there += tick.arrive
        done = min(tick.finish, there)
        there, finished, busy_ms = there - done, finished + done, busy_ms + int(done * tick.service_s * 1000)
        assigned = min(there, slots)
        expired = min(tick.expired, assigned)
        at = START + n * spec.poll_s
        sample = Sample(at, there - assigned, expired, assigned - expired, finished=finished, busy_ms=busy_ms)
        yield at, None if tick.blind else sample


def run(looks: Iterable[tuple[float, Sample | None]], spec: ScalingSpec, state: ScalingState | None = None) -> list[Decision]:
    """The decisions of one process."""
    state, made = state or ScalingState(), []
    for at, sample in looks:
        made.append(decide(state, sample, spec, at))
        state = made[-1].state
    return made


def run_with_restarts(looks: Iterable[tuple[float, Sample | None]], spec: ScalingSpec, every: int) -> list[Decision]:
    """The decisions of processes that end after each `every` looks; a status is written when the memory changes."""
    state, made, written, current = ScalingState(), [], saved.write(ScalingState()), 0
    for n, (at, sample) in enumerate(looks):
        if n and n % every == 0:
            state = saved.read(written, current, at, spec)
        made.append(decide(state, sample, spec, at))
        state, current = made[-1].state, made[-1].desired
        if saved.write(state) != written:
            written = saved.write(state)
    return made
