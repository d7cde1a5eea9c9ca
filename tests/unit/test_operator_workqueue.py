"""The work queue: each key once, never twice at a time, bounded back-off."""

from __future__ import annotations

import asyncio
import random

from leasequeue_operator.workqueue import BACKOFF_CAP_S, WorkQueue

A, B = ("n", "a"), ("n", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[WorkQueue, Clock]:
    clock = Clock()
    return WorkQueue(clock, random.Random(1)), clock


async def now(queue: WorkQueue) -> tuple[str, str] | None:
    """The next key if one is due."""
    try:
        return await asyncio.wait_for(queue.get(), 0.01)
    except TimeoutError:
        return None


async def test_a_key_that_is_added_twice_comes_once() -> None:
    queue, _ = made()
    queue.add(A)
    queue.add(A)
    queue.add(B)
    assert [await now(queue), await now(queue), await now(queue)] == [A, B, None]


async def test_the_earlier_of_two_times_counts() -> None:
    queue, clock = made()
    queue.add(A, 60)
    queue.add(A, 5)
    queue.add(A, 30)
    assert await now(queue) is None
    clock.now += 5
    assert await now(queue) == A
    queue.done(A)
    clock.now += 100
    assert await now(queue) is None


async def test_a_key_that_is_worked_on_comes_back_when_that_is_done() -> None:
    queue, _ = made()
    queue.add(A)
    assert await now(queue) == A
    queue.add(A)
    assert await now(queue) is None
    queue.done(A)
    assert await now(queue) == A


async def test_a_waiting_worker_is_woken_by_an_earlier_key() -> None:
    queue = WorkQueue()
    queue.add(A, 3600)
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0.01)
    queue.add(B)
    assert await asyncio.wait_for(waiting, 5) == B


async def test_several_workers_share_the_keys() -> None:
    queue = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(0.01)
    queue.add(A)
    queue.add(B)
    assert set(await asyncio.wait_for(asyncio.gather(*waiting), 5)) == {A, B}


async def test_the_back_off_grows_to_its_cap_and_is_reset_by_success() -> None:
    queue, clock = made()
    waits = []
    for _ in range(12):
        waits.append(queue.add_failed(A))
        clock.now += 1000
        assert await now(queue) == A
        queue.done(A)
    assert waits[0] <= 1.0
    assert max(waits) <= BACKOFF_CAP_S
    assert all(wait >= BACKOFF_CAP_S / 2 for wait in waits[8:])
    queue.succeeded(A)
    assert queue.add_failed(A) <= 1.0


async def test_fifty_failing_keys_stay_within_twenty_tries_in_ten_minutes() -> None:
    queue, clock = made()
    tries = dict.fromkeys([("n", str(n)) for n in range(50)], 0)
    for key in tries:
        queue.add(key)
    while clock.now < 700:
        while (key := await now(queue) if queue.ready() else None) is not None:
            tries[key] += 1
            queue.add_failed(key)
            queue.done(key)
        clock.now += 0.5
    assert max(tries.values()) <= 25


async def test_a_wait_that_the_server_asks_for_is_kept() -> None:
    queue, _ = made()
    assert queue.add_failed(A, at_least_s=120) == 120


async def test_a_forgotten_key_does_not_come() -> None:
    queue, _ = made()
    queue.add(A)
    queue.forget(A)
    assert len(queue) == 0
    assert await now(queue) is None


async def test_lag_and_depth() -> None:
    queue, clock = made()
    queue.add(A)
    queue.add(B, 50)
    clock.now += 7
    assert (len(queue), queue.ready(), queue.lag_s()) == (2, 1, 7)
