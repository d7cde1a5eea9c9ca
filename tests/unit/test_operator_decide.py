"""The scaling decision: properties over any history, and the cases that other autoscalers got wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasequeue_operator.scaling import saved
from leasequeue_operator.scaling.decide import Decision, Sample, ScalingSpec, ScalingState, decide
from leasequeue_operator.scaling.schedule import Window, bounds, is_open

START = 1_800_000_000.0


def sample(at: float, due: int = 0, expired: int = 0, assigned: int = 0) -> Sample:
    return Sample(at, due, expired, assigned)


def run(
    spec: ScalingSpec, depths: Iterable[int | None], state: ScalingState | None = None, start: float = START
) -> list[Decision]:
    """Decisions over a history of depths, one a poll; None is a database error."""
    state = state or ScalingState()
    made = []
    for n, due in enumerate(depths):
        now = start + n * spec.poll_s
        made.append(decide(state, None if due is None else sample(now, due), spec, now))
        state = made[-1].state
    return made


specs = st.builds(
    ScalingSpec,
    min_replicas=st.integers(0, 20),
    max_replicas=st.integers(20, 200),
    concurrency=st.integers(1, 16),
    max_inflight=st.integers(100, 2000),
    poll_s=st.sampled_from([1.0, 5.0, 30.0]),
    stabilization_s=st.sampled_from([0.0, 10.0, 60.0, 300.0]),
)
depths = st.lists(st.one_of(st.none(), st.integers(0, 5000)), min_size=1, max_size=120)


@given(specs, depths)
@settings(max_examples=200, deadline=None)
def test_never_over_the_cap_and_never_under_the_minimum(spec: ScalingSpec, depths: list[int | None]) -> None:
    cap = min(spec.max_replicas, math.ceil(spec.max_inflight / spec.concurrency))
    for decision in run(spec, depths):
        assert min(spec.min_replicas, cap) <= decision.desired <= cap


@given(specs, depths, st.integers(0, 5000), st.integers(0, 5000))
@settings(max_examples=200, deadline=None)
def test_monotone_in_depth(spec: ScalingSpec, history: list[int | None], one: int, other: int) -> None:
    state = run(spec, history)[-1].state
    now = START + len(history) * spec.poll_s
    low, high = sorted((one, other))
    assert decide(state, sample(now, low), spec, now).desired <= decide(state, sample(now, high), spec, now).desired


@given(specs, depths)
@settings(max_examples=200, deadline=None)
def test_an_error_holds(spec: ScalingSpec, history: list[int | None]) -> None:
    last = run(spec, history)[-1]
    now = START + len(history) * spec.poll_s
    held = decide(last.state, None, spec, now)
    assert held.desired == last.desired
    stale = decide(last.state, sample(now - 3600, 0), spec, now)
    assert stale.desired == last.desired
    assert (held.limiter, stale.limiter) == ("database_error", "stale_sample")


@given(specs, depths)
@settings(max_examples=200, deadline=None)
def test_a_step_down_takes_half_at_most_and_a_step_up_doubles_at_most(spec: ScalingSpec, history: list[int | None]) -> None:
    before = 0
    steps: list[tuple[float, int]] = []  # number of pods over time
    for n, decision in enumerate(run(spec, history)):
        now = START + n * spec.poll_s
        if before and decision.desired < before:
            assert decision.desired >= before - max(1, before // 2)
        if before and decision.desired > before:
            # Over the last 15 s it grew to no more than twice, or by ten, from what it was then.
            then = [count for at, count in steps if now - at <= 15 and count > 0]
            base = then[0] if then else before
            assert decision.desired <= max(2 * max(base, before), max(base, before) + 10, spec.min_replicas)
        steps.append((now, decision.desired))
        before = decision.desired


@given(specs.filter(lambda s: s.min_replicas == 0), depths)
@settings(max_examples=300, deadline=None)
def test_zero_only_after_nothing_was_there_through_the_window(spec: ScalingSpec, history: list[int | None]) -> None:
    before = 0
    for n, decision in enumerate(run(spec, history)):
        if before > 0 and decision.desired == 0:
            first = max(0, n - int(spec.stabilization_s / spec.poll_s))
            assert all(due == 0 for due in history[first : n + 1] if due is not None)
            assert n * spec.poll_s >= spec.stabilization_s
        before = decision.desired


@given(specs, depths, st.integers(0, 119))
@settings(max_examples=200, deadline=None)
def test_a_restart_never_goes_below_the_uninterrupted_run(spec: ScalingSpec, history: list[int | None], at: int) -> None:
    at = min(at, len(history) - 1)
    whole = run(spec, history)
    now = START + (at + 1) * spec.poll_s
    again = saved.read(saved.write(whole[at].state), whole[at].desired, now, spec)
    later = run(spec, history[at + 1 :], again, now)
    for restarted, uninterrupted in zip(later, whole[at + 1 :], strict=True):
        assert restarted.desired >= uninterrupted.desired


def test_from_zero_directly_to_what_is_needed() -> None:
    assert run(ScalingSpec(max_replicas=50), [40])[0].desired == 40


def test_starting_pods_are_not_asked_for_twice() -> None:
    # 3 rows wait while the image is pulled for 90 s: the number stays.
    assert {d.desired for d in run(ScalingSpec(max_replicas=100), [3] * 18)} == {3}


def test_growth_is_stepped_and_says_so() -> None:
    made = run(ScalingSpec(max_replicas=100, poll_s=5), [4, 90, 90, 90, 90, 90, 90, 90])
    assert [d.desired for d in made] == [4, 14, 14, 28, 28, 28, 56, 56]
    assert made[1].limiter == "step_up"


def test_the_ceiling_bounds_the_fleet_and_is_named() -> None:
    decision = run(ScalingSpec(max_replicas=100, concurrency=50, max_inflight=200), [10_000])[0]
    assert (decision.desired, decision.raw, decision.limiter) == (4, 200, "max_inflight")


def test_a_ceiling_full_of_expired_leases_is_named_so() -> None:
    spec = ScalingSpec(max_replicas=300, max_inflight=200)
    decision = decide(ScalingState(), sample(START, due=50, expired=200), spec, START)
    assert (decision.desired, decision.limiter) == (200, "stale_leases")


def test_live_leases_alone_keep_the_fleet() -> None:
    spec = ScalingSpec(stabilization_s=10, poll_s=5)
    state = ScalingState(desired=3)
    for n in range(20):
        now = START + n * 5
        decision = decide(state, sample(now, assigned=3), spec, now)
        state = decision.state
    assert decision.desired == 3


def test_down_by_the_maximum_of_the_window_in_halves() -> None:
    spec = ScalingSpec(max_replicas=100, stabilization_s=60, poll_s=5)
    made = run(spec, [16] + [0] * 40)
    desired = [d.desired for d in made]
    assert desired[:12] == [16] * 12  # through the window
    assert sorted(set(desired), reverse=True) == [16, 8, 4, 2, 1, 0]
    assert desired[-1] == 0


def test_an_outage_starts_the_window_anew() -> None:
    spec = ScalingSpec(stabilization_s=60, poll_s=5)
    made = run(spec, [8] + [None] * 60 + [0] * 11)
    assert [d.desired for d in made] == [8] * 72


def test_a_lowered_maximum_counts_at_once() -> None:
    state = run(ScalingSpec(max_replicas=50), [40])[0].state
    lowered = decide(state, sample(START + 5, 40), ScalingSpec(max_replicas=10), START + 5)
    assert (lowered.desired, lowered.limiter) == (10, "max_replicas")


def test_a_person_decides_in_manual_mode_and_on_suspend() -> None:
    spec = ScalingSpec(manual_replicas=7, max_replicas=5)
    assert decide(ScalingState(), sample(START, 900), spec, START).desired == 7
    suspended = decide(ScalingState(desired=7), sample(START, 900), replace(spec, suspend=True), START)
    assert (suspended.desired, suspended.limiter) == (0, "suspend")


def test_what_the_work_asks_for_is_told_in_manual_mode_too() -> None:
    decision = decide(ScalingState(), sample(START, 40), ScalingSpec(manual_replicas=3, max_replicas=5), START)
    assert (decision.desired, decision.raw, decision.limiter) == (3, 40, "manual")


def test_the_minimum_holds_without_a_database() -> None:
    assert decide(ScalingState(), None, ScalingSpec(min_replicas=2), START).desired == 2


def test_an_unreadable_saved_state_only_delays_a_decrease() -> None:
    state = saved.read({"marks": "x", "stepAt": None}, 5, START, ScalingSpec())
    assert state.desired == 5
    assert decide(state, sample(START, 0), ScalingSpec(), START).desired == 5


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


OFFICE = Window("office", "0 8 * * 1-5", "0 18 * * 1-5", low=5, high=20)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-03-02T08:00:00", True),  # the minute it opens
        ("2026-03-02T07:59:59", False),
        ("2026-03-02T17:59:59", True),
        ("2026-03-02T18:00:00", False),
        ("2026-03-01T12:00:00", False),  # a Sunday
    ],
)
def test_a_schedule_is_open_from_start_to_end(at: str, expected: bool) -> None:
    assert is_open(OFFICE, moment(at)) is expected


def test_a_schedule_in_another_time_zone_through_the_autumn_change() -> None:
    berlin = replace(OFFICE, time_zone="Europe/Berlin", start="0 8 * * *", end="0 18 * * *")
    assert is_open(berlin, moment("2026-10-24T06:30:00"))  # summer: 08:30
    assert not is_open(berlin, moment("2026-10-26T06:30:00"))  # winter: 07:30


def test_bounds_of_schedules() -> None:
    monday = moment("2026-03-02T12:00:00")
    found = bounds(0, 10, [OFFICE, replace(OFFICE, name="busy", low=8, high=None)], monday)
    assert (found.low, found.high, found.low_by, found.high_by) == (8, 20, "schedule:busy", "schedule:office")
    closed = replace(OFFICE, name="closed", low=None, high=0)
    found = bounds(3, 10, [closed], monday)
    assert (found.low, found.high) == (0, 0)


def test_a_schedule_raises_the_minimum_and_is_named() -> None:
    monday = moment("2026-03-02T12:00:00")
    decision = decide(ScalingState(), sample(monday, 0), ScalingSpec(schedules=(OFFICE,)), monday)
    assert (decision.desired, decision.limiter) == (5, "schedule:office")
