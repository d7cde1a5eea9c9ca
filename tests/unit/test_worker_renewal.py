"""What a renewal's answer means for each lease, and when a handler must stop without any answer."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasequeue import Item, Lease, Outcome, Resolve
from leasequeue_worker.held import Held, Registry
from leasequeue_worker.renewal import apply, due, unproven

LEASE_S = 30.0


def held(item_id: Any = 1, deadline: float = 100.0, **fields: Any) -> Held:
    token = uuid.uuid4()
    index = {"id": 0, "lease_token": 1, "leased_by": 2, "attempt": 3}
    made = Held(Item(index, (item_id, token, "w", 1)), Lease(item_id, token, "w"), deadline, deadline - LEASE_S)
    made.started = 1.0
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_lease_is_due_after_a_third_of_it() -> None:
    young, old = held(1, deadline=100.0), held(2, deadline=89.0)
    assert due([young, old], now=70.0, lease_s=LEASE_S) == [old]
    assert due([young, old], now=80.0, lease_s=LEASE_S) == [young, old]


def test_finished_and_cancelled_leases_are_not_renewed() -> None:
    finished, stopped = held(1, verdict=Resolve()), held(2, cancelled="max_runtime")
    assert due([finished, stopped], now=99.0, lease_s=LEASE_S) == []


def test_items_that_wait_are_renewed_too() -> None:
    waiting = held(1, started=0.0)
    assert due([waiting], now=99.0, lease_s=LEASE_S) == [waiting]


def test_renewed_counts_from_before_the_request_and_never_shortens() -> None:
    first, second = held(1, deadline=50.0), held(2, deadline=90.0)
    apply([first, second], {1: Outcome.RENEWED, 2: Outcome.RENEWED}, sent_at=40.0, lease_s=LEASE_S)
    assert (first.deadline, second.deadline) == (70.0, 90.0)


def test_busy_neither_renews_nor_loses() -> None:
    one = held(1, deadline=50.0)
    sorted_ = apply([one], {1: Outcome.BUSY}, sent_at=40.0, lease_s=LEASE_S)
    assert sorted_[Outcome.BUSY] == [one]
    assert sorted_[Outcome.LOST] == []
    assert one.deadline == 50.0


def test_lost_and_missing_answers_are_losses() -> None:
    one, two = held(1), held(2)
    assert apply([one, two], {1: Outcome.LOST}, sent_at=0.0, lease_s=LEASE_S)[Outcome.LOST] == [one, two]


@pytest.mark.parametrize("fields", [{"verdict": Resolve()}, {"fenced": True}, {"committed": True}])
def test_lost_is_no_loss_once_the_completion_is_on_its_way(fields: dict[str, Any]) -> None:
    one = held(1, **fields)
    assert apply([one], {1: Outcome.LOST}, sent_at=0.0, lease_s=LEASE_S)[Outcome.LOST] == []


def test_an_unproven_lease_stops_its_handler_at_the_last_confirmed_expiry() -> None:
    one = held(1, deadline=100.0)
    assert unproven([one], now=99.9) == []
    assert unproven([one], now=100.0) == [one]


@pytest.mark.parametrize("fields", [{"fenced": True}, {"verdict": Resolve()}, {"cancelled": "lost"}, {"started": 0.0}])
def test_nothing_to_stop(fields: dict[str, Any]) -> None:
    assert unproven([held(1, deadline=0.0, **fields)], now=100.0) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=60))
def test_whatever_the_answers_a_handler_never_outlives_its_last_confirmed_lease(turns: list[tuple[float, bool]]) -> None:
    """Random renewals, answered or not: at each moment the deadline is at most one lease after the last answered request."""
    one, now, confirmed = held(1, deadline=LEASE_S), 0.0, 0.0
    for wait, answered in turns:
        now += wait
        if due([one], now, LEASE_S) and answered:
            apply([one], {1: Outcome.RENEWED}, sent_at=now, lease_s=LEASE_S)
            confirmed = now
        assert one.deadline <= confirmed + LEASE_S + 1e-9
        assert bool(unproven([one], now)) == (now >= one.deadline)


def test_the_registry_keeps_two_leases_of_one_item_apart() -> None:
    registry, old, new = Registry(), held(1), held(1)
    registry.add([old, new])
    registry.forget([old])
    assert registry.all() == [new]
    assert registry.tokens() == [new.lease.token]


def test_cancel_tells_once_and_wakes_a_waiting_handler() -> None:
    one = held(1)
    assert not one.wait_cancelled(0.0)
    assert one.cancel("lost")
    assert not one.cancel("drain")
    assert one.wait_cancelled(0.0)
    assert one.cancelled == "lost"


def test_one_verdict_an_item_whoever_speaks_at_the_same_moment() -> None:
    for _ in range(200):
        one, said = held(1), []
        start = threading.Barrier(3)

        def speak(verdict: Resolve, one: Held = one, said: list[Resolve] = said, start: threading.Barrier = start) -> None:
            start.wait(20)
            if one.say(verdict):
                said.append(verdict)

        threads = [threading.Thread(target=speak, args=(Resolve(n),)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert said == [one.verdict]
