"""Reads of objects that many queues refer to: asked for once in a moment, whoever asks.

A thousand queues whose Secret is the same one would otherwise read it a thousand times a poll. What is handed out is at most
`SHARED_S` old, so a poll still sees a change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from leasequeue_operator.kinds import Kind

SHARED_S = 0.5

Found = dict[str, Any] | None
Find = Callable[[Kind, str, str], Awaitable[Found]]


class SharedReads:
    """Reads objects by name.

    Args:
        find: reads one; gives None where there is none, raises where that is not known.
        clock: monotonic seconds.
    """

    def __init__(self, find: Find, clock: Callable[[], float] = time.monotonic) -> None:
        self._find, self._clock = find, clock
        self._reads: dict[tuple[str, str, str], tuple[float, asyncio.Task[Found]]] = {}

    async def find(self, kind: Kind, namespace: str, name: str) -> Found:
        """One object; None where there is none.

        Raises:
            KubeError: as `find` did. A failure is shared by those who waited for it, and by nobody after them.
        """
        key = (kind.name, namespace, name)
        began, read = self._reads.get(key, (float("-inf"), None))
        if read is None or self._clock() - began > SHARED_S or (read.done() and read.exception() is not None):
            self._tidy()
            read = asyncio.create_task(self._ask(kind, namespace, name))
            self._reads[key] = (self._clock(), read)
        # One of those who wait may be cancelled; the read goes on for the others.
        return await asyncio.shield(read)

    async def _ask(self, kind: Kind, namespace: str, name: str) -> Found:
        return await self._find(kind, namespace, name)

    def _tidy(self) -> None:
        """Forget what is too old to be handed out: it holds passwords."""
        oldest = self._clock() - SHARED_S
        for key in [k for k, (began, read) in self._reads.items() if began < oldest and read.done()]:
            del self._reads[key]
