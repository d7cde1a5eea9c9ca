"""Slot accounting: what waits, what runs, and who has to be woken. Shared by the claim loop and the slots.

The waiting line is a deque: slots take from it without a lock. Locks are met only at its ends: by a slot that finds it empty, and
once a batch by the claim loop.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from leasequeue_worker.held import Held, Registry
from leasequeue_worker.wakeup import Waker


class Board:
    """Claimed items on their way through the slots.

    Args:
        slots: how many items run at a time.
        waker: wakes the claim loop.
    """

    def __init__(self, slots: int, waker: Waker) -> None:
        self.slots = slots
        self.registry = Registry()
        self.line: deque[Held] = deque()
        self.low_water = 0
        self.waker = waker
        self.last_start = time.monotonic()
        self.closed = False
        self._arrived = threading.Condition()
        self._listeners: list[Callable[[], None]] = []

    def on_arrival(self, tell: Callable[[], None]) -> None:
        """Call `tell` after each batch that arrives (slots that are not threads)."""
        self._listeners.append(tell)

    def put(self, batch: Sequence[Held]) -> None:
        """A claim brought `batch`, in claim order."""
        self.registry.add(batch)
        if not self.line:
            self.last_start = time.monotonic()
        self.line.extend(batch)
        with self._arrived:
            self._arrived.notify(len(batch))
        for tell in self._listeners:
            tell()

    def take(self) -> Held | None:
        """The next waiting item, or None. Never blocks."""
        try:
            held = self.line.popleft()
        except IndexError:
            return None
        if len(self.line) <= self.low_water:
            self.waker.wake()
        return held

    def wait(self, timeout_s: float) -> None:
        """Block a slot until something waits, at most `timeout_s` seconds."""
        with self._arrived:
            if not self.line and not self.closed:
                self._arrived.wait(timeout_s)

    def take_back(self) -> list[Held]:
        """Everything that waits and has not started: it is released instead."""
        back: list[Held] = []
        while True:
            try:
                back.append(self.line.popleft())
            except IndexError:
                return back

    def close(self) -> None:
        """No more items: wake the slots so that they see it."""
        with self._arrived:
            self.closed = True
            self._arrived.notify_all()

    def running(self) -> list[Held]:
        """Items in a handler now."""
        return [held for held in self.registry.all() if held.running]
