"""How many items a claim takes: never hoards long jobs, fills batches with short ones, leaves the ceiling to others."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasequeue_worker.sizing import HOARD_S, Limits, Load, Pace, claim_size, hoarded, low_water, prefetch, yield_s

limits_of = st.builds(
    Limits,
    slots=st.integers(1, 1000),
    batch_size=st.integers(1, 200),
    max_inflight=st.integers(100, 10_000),
    max_replicas=st.integers(1, 10_000),
)
load_of = st.builds(
    Load,
    queued=st.integers(0, 500),
    running=st.integers(0, 1000),
    unflushed=st.integers(0, 1000),
    item_s=st.none() | st.floats(0, 1e5, allow_nan=False),
)


@settings(deadline=None)
@given(limits_of, load_of)
def test_a_claim_never_goes_past_any_limit(limits: Limits, load: Load) -> None:
    size = claim_size(limits, load)
    assert 0 <= size <= limits.batch_size
    if size:
        held = load.queued + load.running + size
        assert held <= limits.slots + prefetch(limits, load.item_s)
        assert held + load.unflushed <= limits.slots + limits.share
        assert load.unflushed < limits.slots + 2 * limits.batch_size


@settings(deadline=None)
@given(limits_of, st.none() | st.floats(0, 1e5, allow_nan=False))
def test_an_idle_worker_claims(limits: Limits, item_s: float | None) -> None:
    assert claim_size(limits, Load(0, 0, 0, item_s)) > 0


@settings(deadline=None)
@given(limits_of)
def test_the_first_claim_takes_no_more_than_the_slots(limits: Limits) -> None:
    assert claim_size(limits, Load(0, 0, 0, None)) <= limits.slots


def test_jobs_of_minutes_are_never_prefetched() -> None:
    limits = Limits(slots=4, batch_size=100, max_inflight=10_000, max_replicas=1)
    assert claim_size(limits, Load(0, 4, 0, 240.0)) == 0
    assert claim_size(limits, Load(0, 3, 0, 240.0)) == 1


def test_short_items_come_in_full_batches() -> None:
    limits = Limits(slots=1, batch_size=100, max_inflight=10_000, max_replicas=1)
    assert claim_size(limits, Load(0, 0, 0, 0.00001)) == 100
    assert claim_size(limits, Load(60, 1, 0, 0.001)) == 0  # above the low water: the next claim would be small
    assert claim_size(limits, Load(10, 1, 0, 0.001)) == 90
    assert claim_size(limits, Load(10, 1, 0, 0.00001)) == 0  # gone before the claim is back: better a full one
    assert claim_size(limits, Load(0, 1, 0, 0.00001)) == 100


def test_where_items_are_claimed_singly_the_next_one_is_claimed_while_one_waits() -> None:
    limits = Limits(slots=1, batch_size=1, max_inflight=1_000, max_replicas=1)
    assert claim_size(limits, Load(1, 0, 0, 0.00001)) == 1
    assert claim_size(limits, Load(1, 1, 0, 0.00001)) == 0
    assert claim_size(limits, Load(1, 0, 0, 2.0)) == 0  # a job of seconds is not claimed ahead


def test_a_flush_under_way_is_waited_for_instead_of_a_claim_of_one() -> None:
    limits = Limits(slots=1, batch_size=100, max_inflight=10_000, max_replicas=1)
    assert claim_size(limits, Load(0, 0, 200, 0.00001)) == 0
    assert claim_size(limits, Load(0, 0, 100, 0.00001)) == 100


def test_a_worker_leaves_most_of_the_ceiling_to_the_others() -> None:
    limits = Limits(slots=2, batch_size=200, max_inflight=1_000, max_replicas=10)
    assert prefetch(limits, 0.0001) == limits.share == 50
    everybody = limits.max_replicas * (limits.slots + limits.share)
    assert everybody <= limits.max_inflight * 0.8


@pytest.mark.parametrize(("item_s", "expected"), [(None, 0), (0.0, 100), (0.001, 100), (0.1, 10), (0.9, 1), (1.1, 0)])
def test_prefetch_is_about_a_second_of_work(item_s: float | None, expected: int) -> None:
    assert prefetch(Limits(1, 100, 10_000, 1), item_s) == expected


@settings(deadline=None)
@given(limits_of, st.none() | st.floats(0, 1e5, allow_nan=False))
def test_low_water_lets_a_quarter_remain_at_most(limits: Limits, item_s: float | None) -> None:
    assert 0 <= low_water(limits, item_s) <= prefetch(limits, item_s) / 4


def test_the_pace_follows_the_items_and_a_long_one_shows_before_it_ends() -> None:
    pace = Pace()
    assert pace.item_s(0.5) is None
    pace.finished(1.0, 100)
    assert pace.item_s(0.0) == pytest.approx(0.01)
    pace.finished(200.0, 100)
    assert pace.item_s(0.0) == pytest.approx(2.0, rel=0.01)
    assert pace.item_s(300.0) == 300.0


def test_waiting_items_go_back_when_every_slot_is_stuck() -> None:
    assert not hoarded(3, HOARD_S - 0.1)
    assert hoarded(3, HOARD_S + 0.1)
    assert not hoarded(0, HOARD_S + 100)


FOUR = Limits(slots=4, batch_size=100, max_inflight=10_000, max_replicas=5)


def test_fuller_workers_claim_long_items_first() -> None:
    waits = [yield_s(FOUR, Load(0, running, 0, 200.0)) for running in (0, 1, 2, 3)]
    assert waits == sorted(waits, reverse=True)
    assert all(a - b >= 0.02 for a, b in pairwise(waits))  # longer than a claim takes
    assert waits[-1] == 0.0


@pytest.mark.parametrize("item_s", [0.0, 0.001, 0.5, 4.0, 200.0])
def test_nobody_waits_longer_than_a_hundredth_of_an_item(item_s: float) -> None:
    assert yield_s(FOUR, Load(0, 0, 0, item_s)) <= min(0.1, item_s / 100)


def test_a_worker_with_one_slot_waits_for_nobody() -> None:
    assert yield_s(Limits(slots=1, batch_size=1, max_inflight=100, max_replicas=5), Load(0, 0, 0, 200.0)) == 0.0


@pytest.mark.parametrize("item_s", [None, 200.0])
def test_the_only_worker_of_a_queue_waits_for_nobody(item_s: float | None) -> None:
    assert yield_s(Limits(slots=20, batch_size=20, max_inflight=1_000, max_replicas=1), Load(0, 0, 0, item_s)) == 0.0


def test_who_has_not_worked_yet_comes_after_who_has_a_long_item() -> None:
    assert yield_s(FOUR, Load(0, 0, 0, None)) > yield_s(FOUR, Load(0, 1, 0, 200.0))
