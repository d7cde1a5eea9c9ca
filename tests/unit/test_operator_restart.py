"""A restart of the operator: with what the last status write left, it decides as if it had never ended."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from leasequeue_operator.scaling import saved
from leasequeue_operator.scaling.decide import ScalingSpec, ScalingState, decide
from leasequeue_operator.scaling.window import Window
from tests.support.fleet import START, Tick, run, run_with_restarts, samples

specs = st.builds(
    ScalingSpec,
    min_replicas=st.sampled_from([0, 0, 2]),
    max_replicas=st.integers(3, 60),
    concurrency=st.sampled_from([1, 4]),
    poll_s=st.sampled_from([2.0, 5.0, 15.0]),
    drain_s=st.sampled_from([30.0, 120.0]),
    stabilization_s=st.sampled_from([0.0, 30.0, 60.0, 300.0]),
)
ticks = st.builds(
    Tick,
    arrive=st.one_of(st.integers(0, 3), st.integers(0, 60), st.sampled_from([0, 500])),
    finish=st.integers(0, 60),
    service_s=st.sampled_from([0.1, 4.0, 40.0]),
    expired=st.sampled_from([0, 0, 0, 2]),
    blind=st.sampled_from([False] * 9 + [True]),
)
phases = st.lists(st.tuples(ticks, st.integers(1, 25)), min_size=1, max_size=8)


def unrolled(parts: list[tuple[Tick, int]]) -> list[Tick]:
    return [tick for tick, times in parts for _ in range(times)]


@given(specs, phases, st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_restarted_at_any_tick_it_decides_the_same(spec: ScalingSpec, parts: list[tuple[Tick, int]], every: int) -> None:
    looks = list(samples(unrolled(parts), spec))
    whole = run(looks, spec)
    again = run_with_restarts(looks, spec, every)
    assert [(d.desired, d.limiter) for d in again] == [(d.desired, d.limiter) for d in whole]


@given(specs, phases)
@settings(max_examples=100, deadline=None)
def test_the_memory_is_exact_as_json(spec: ScalingSpec, parts: list[tuple[Tick, int]]) -> None:
    for decision in run(samples(unrolled(parts), spec), spec):
        stored = json.loads(json.dumps(saved.write(decision.state)))
        newest = decision.state.rates.marks[-1].at if decision.state.rates.marks else START
        assert saved.read(stored, decision.desired, newest, spec) == decision.state or not decision.state.rates.marks


def test_a_steady_queue_is_saved_once_a_minute() -> None:
    spec = ScalingSpec(poll_s=5, stabilization_s=300)
    states = [d.state for d in run(samples([Tick(25, 25, 1.0)] * 240, spec), spec)]
    settled = states[24:]
    changes = sum(one != other for one, other in itertools.pairwise(settled))
    assert changes <= len(settled) * 5 / 60 + 1


def test_an_idle_queue_is_not_saved_at_all() -> None:
    spec = ScalingSpec(poll_s=5, stabilization_s=60)
    states = [d.state for d in run(samples([Tick(3, 0)] + [Tick(0, 3)] * 400, spec), spec)]
    assert states[-1].desired == 0
    assert len(set(states[-200:])) == 1


def test_an_operator_that_was_away_for_long_starts_the_lull_anew() -> None:
    spec = ScalingSpec(poll_s=5, stabilization_s=60)
    looks = list(samples([Tick(8, 0)] + [Tick()] * 3 + [Tick(0, 8)] + [Tick()] * 200, spec))
    kept = run(looks[:6], spec)[-1]
    assert kept.desired == 8
    later = looks[6][0] + 600
    state = saved.read(saved.write(kept.state), 8, later, spec)
    sample = replace(looks[6][1], at=later) if looks[6][1] else None
    assert decide(state, sample, spec, later).desired == 8
    assert decide(state, replace(sample, at=later + 55) if sample else None, spec, later + 55).desired == 8


def test_another_number_of_pods_than_was_saved_counts() -> None:
    state = saved.read(saved.write(ScalingState(3, window=Window(((START, 1),)))), 9, START + 5, ScalingSpec())
    assert state.desired == 9
    assert max(n for _, n in state.window.entries) == 9
