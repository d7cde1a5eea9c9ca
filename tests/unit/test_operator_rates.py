"""Arrivals and service time from counters."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasequeue_operator.scaling.rates import Load, Mark, Rates, observe


def learnt(counts: list[int], poll_s: float = 5.0, service_s: float = 2.0, rates: Rates | None = None) -> tuple[Rates, Load]:
    """After looks between which `counts` items arrived and ended."""
    rates, load = rates or Rates(), Load(0.0, None)
    last = rates.marks[-1] if rates.marks else Mark(1000.0, 0, 0, 0)
    at, arrived, finished = last.at, last.arrived, last.finished
    for count in [0, *counts] if not rates.marks else counts:
        at, arrived, finished = at + poll_s, arrived + count, finished + count
        rates, load = observe(rates, Mark(at, arrived, finished, int(finished * service_s * 1000)), still=False)
    return rates, load


def test_a_steady_load_is_known_closely() -> None:
    rng = random.Random(4)
    counts = [sum(rng.random() < 0.25 for _ in range(100)) for _ in range(60)]  # 5/s
    _, load = learnt(counts)
    assert load.rate == pytest.approx(5.0, rel=0.1)


def test_a_tenfold_load_is_believed_at_the_second_look() -> None:
    before, calm = learnt([5] * 40)
    assert calm.rate == pytest.approx(1.0, rel=0.1)
    assert learnt([50, 50], rates=before)[1].rate == pytest.approx(10.0, rel=0.1)


def test_a_dump_is_no_flood() -> None:
    before, _ = learnt([5] * 40)
    during, load = learnt([4000], rates=before)
    assert load.rate < 1.5
    _, load = learnt([5, 5, 5], rates=during)
    assert load.rate == pytest.approx(1.0, rel=0.2)


def test_an_end_is_believed_after_ten_seconds() -> None:
    before, _ = learnt([50] * 40)
    assert learnt([0] * 5, rates=before)[1].rate < 0.5


def test_a_slow_change_is_followed() -> None:
    _, load = learnt([5 + n // 4 for n in range(240)])
    assert load.rate == pytest.approx(12.5, rel=0.25)


def test_counters_that_fall_are_another_table() -> None:
    before, _ = learnt([50] * 40)
    rates, load = observe(before, Mark(9000.0, 3, 0, 0), still=False)
    assert (rates.marks, load.rate) == ((Mark(9000.0, 3, 0, 0),), before.settled)


def test_the_service_time_follows() -> None:
    before, load = learnt([20] * 40, service_s=2.0)
    assert load.service_s == pytest.approx(2.0)
    last = before.marks[-1]
    later = Mark(last.at + 60, last.arrived + 240, last.finished + 240, last.busy_ms + 240 * 8000)
    _, load = observe(before, later, still=False)
    assert load.service_s == pytest.approx(2 + 6 * 240 / 260, rel=0.001)


def test_the_history_of_a_table_tells_the_service_time_at_first_sight() -> None:
    assert observe(Rates(), Mark(1000.0, 500, 400, 1_200_000), still=False)[1].service_s == 3.0
    assert observe(Rates(), Mark(1000.0, 500, 0, 0), still=False)[1].service_s is None


@given(st.lists(st.integers(0, 200), max_size=60), st.integers(0, 3000), st.integers(0, 3000))
@settings(max_examples=300, deadline=None)
def test_more_arrivals_never_lower_the_rate(counts: list[int], one: int, other: int) -> None:
    before, _ = learnt(counts)
    low, high = sorted((one, other))
    assert learnt([low], rates=before)[1].rate <= learnt([high], rates=before)[1].rate + 1e-9
