"""A bell that one thread waits for: no ring is lost, and none is heard twice."""

from __future__ import annotations

import threading
import time

from leasequeue_worker.bell import Bell


def test_a_ring_before_the_wait_ends_it_at_once_and_only_once() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0.01)


def test_a_ring_ends_a_wait_without_end() -> None:
    bell, heard = Bell(), threading.Event()

    def listen() -> None:
        bell.wait()
        heard.set()

    threading.Thread(target=listen, daemon=True).start()
    assert not heard.wait(0.05)
    bell.ring()
    assert heard.wait(5)


def test_whatever_was_put_before_a_ring_is_seen_after_a_wait() -> None:
    """Two ringers, one waiter that looks after each wait, as the completions thread does: nothing stays behind."""
    bell, put, taken = Bell(), [0, 0], 0

    def ringer(number: int) -> None:
        for _ in range(3_000):
            put[number] += 1
            bell.ring()

    threads = [threading.Thread(target=ringer, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 30
    while taken < 6_000 and time.monotonic() < until:
        if bell.wait(5):
            taken = sum(put)
    assert taken == 6_000
