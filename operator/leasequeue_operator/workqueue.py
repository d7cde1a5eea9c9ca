"""A work queue of keys: each key once, never by two workers at a time, delayed re-adds, a bounded back-off per key."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from itertools import count

Key = tuple[str, str]

BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 60.0


class WorkQueue:
    """Keys to be worked on.

    A key that is added while it waits keeps the earlier of the two times; one that is added while it is worked on comes
    back when that is done.

    Args:
        clock: monotonic seconds; the running loop's by default.
        rng: source of the jitter.
    """

    def __init__(self, clock: Callable[[], float] | None = None, rng: random.Random | None = None) -> None:
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._rng = rng or random.Random()
        self._heap: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._working: set[Key] = set()
        self._again: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._order = count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """Keys that wait, due or not."""
        return len(self._due)

    def ready(self) -> int:
        """Keys that are due and wait for a worker."""
        now = self._clock()
        return sum(when <= now for when in self._due.values())

    def lag_s(self) -> float:
        """How long the key that has been due for longest has waited, seconds."""
        return max([0.0, *(self._clock() - when for when in self._due.values())])

    def add(self, key: Key, after_s: float = 0.0) -> None:
        """Have `key` worked on in `after_s` seconds at the latest."""
        when = self._clock() + after_s
        if key in self._working:
            self._again[key] = min(when, self._again.get(key, when))
            return
        if when >= self._due.get(key, float("inf")):
            return
        self._due[key] = when
        heapq.heappush(self._heap, (when, next(self._order), key))
        self._changed.set()

    def add_failed(self, key: Key, at_least_s: float = 0.0) -> float:
        """Have `key` worked on again after its back-off; returns the wait in seconds.

        Args:
            key: what failed.
            at_least_s: a longer wait that the other side asked for.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        longest = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(failures, 16))
        wait_s = max(at_least_s, longest * self._rng.uniform(0.5, 1.0))
        self.add(key, wait_s)
        return wait_s

    def succeeded(self, key: Key) -> None:
        """Reset the back-off of `key`."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """Remove all memory of a key that is no more; a later `add` starts afresh."""
        self._failures.pop(key, None)
        self._due.pop(key, None)
        self._again.pop(key, None)

    async def get(self) -> Key:
        """Wait for the next due key. Call `done` when it has been worked on."""
        while True:
            now = self._clock()
            while self._heap:
                when, _, key = self._heap[0]
                if self._due.get(key) != when:  # superseded by an earlier time, or forgotten
                    heapq.heappop(self._heap)
                    continue
                if when > now:
                    break
                heapq.heappop(self._heap)
                del self._due[key]
                self._working.add(key)
                return key
            wait_s = self._heap[0][0] - now if self._heap else None
            await self._wait(wait_s)

    def done(self, key: Key) -> None:
        """The key has been worked on."""
        self._working.discard(key)
        when = self._again.pop(key, None)
        if when is not None:
            self.add(key, max(0.0, when - self._clock()))

    async def _wait(self, wait_s: float | None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            return
