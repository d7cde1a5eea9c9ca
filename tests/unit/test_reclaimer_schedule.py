"""When a reclaimer sweeps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leasequeue_reclaimer.schedule import next_sweep_at, start_jitter_s


@settings(deadline=None)
@given(st.text(min_size=1), st.floats(0, 60))
def test_the_start_is_fixed_by_the_name_and_bounded(queue: str, longest: float) -> None:
    assert start_jitter_s(queue, longest) == start_jitter_s(queue, longest)
    assert 0 <= start_jitter_s(queue, longest) <= longest


def test_many_queues_start_spread_out() -> None:
    starts = [start_jitter_s(f"shop/queue-{n}", 5.0) for n in range(500)]
    for second in range(5):
        assert 60 <= sum(second <= s < second + 1 for s in starts) <= 140


def test_by_hand_it_starts_at_once() -> None:
    assert start_jitter_s("", 5.0) == 0.0


def test_one_sweep_only_with_interval_zero() -> None:
    assert next_sweep_at(0.0, 1.0, 0, 50.0) is None


@settings(deadline=None)
@given(st.floats(0, 1000), st.floats(0, 100), st.integers(1, 3600), st.floats(0, 2000))
def test_sweeps_keep_their_rhythm_inside_the_run(began: float, took: float, interval: int, ends: float) -> None:
    at = next_sweep_at(began, began + took, interval, ends)
    if at is not None:
        assert began + took <= at < ends
        assert at == max(began + took, began + interval)
    else:
        assert max(began + took, began + interval) >= ends
