"""The first item of an idle queue, told by the database instead of by the next poll.

One connection a database listens on the channels of all its queues. Not promised: that a notification arrives. None comes
through a transaction pooler, none while the connection is away, and a client that writes plain SQL sends none; polling goes on
whatever happens here. A storm is read in gulps, a few a second, so that it costs the same however large it is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import structlog
from psycopg import sql

from leasequeue import dsn
from leasequeue.errors import LeaseQueueError
from leasequeue_operator.observe import address

log = structlog.get_logger()

CONNECT_DEADLINE_S = 8.0
QUERY_DEADLINE_S = 5.0
# Between two looks at what was sent.
GULP_EVERY_S = 0.2
# A connection that says nothing is asked, so that one whose peer has vanished is noticed.
PROBE_EVERY_S = 60.0
# A pooler may have been taken away, or a server be there in its place.
POOLED_AGAIN_S = 600.0
BACKOFF_BASE_S, BACKOFF_CAP_S = 1.0, 60.0

FAULTS = (psycopg.Error, LeaseQueueError, TimeoutError, OSError)


class Listener:
    """Listens on one database, in a task of its own from the first wanted channel on.

    Args:
        text: connection string.
        heard: called with the channels that something was sent on; each once a gulp.
        verified: see `address.connect`.
    """

    def __init__(self, text: str, heard: Callable[[set[str]], None], verified: str = "") -> None:
        self._dsn, self._verified, self._heard = text, verified, heard
        self._wanted: frozenset[str] = frozenset()
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._closed = False

    def want(self, channels: Iterable[str]) -> None:
        """Listen on these channels from now on, and on no others."""
        wanted = frozenset(channels)
        if wanted == self._wanted:
            return
        self._wanted = wanted
        self._stirred.set()
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._listen_for_ever(), name="listen")

    async def close(self) -> None:
        """End the task and its connection."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listen_for_ever(self) -> None:
        while True:
            wait_s = POOLED_AGAIN_S
            try:
                await self._listen_until_pooled()
            except FAULTS as ex:
                self._failures += 1
                longest = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(self._failures, 10))
                wait_s = longest * random.uniform(0.7, 1.0)
                log.info("listening_failed", reason=type(ex).__name__, again_in_s=round(wait_s, 1))
            await asyncio.sleep(wait_s)

    async def _listen_until_pooled(self) -> None:
        """Listen until the connection fails; returns at once where a transaction pooler stands between."""
        async with asyncio.timeout(CONNECT_DEADLINE_S):
            conn = await address.connect(self._dsn, self._verified, "leasequeue-operator-listen")
        try:
            if dsn.is_pooled(conn):
                log.info("not_listening", reason="a transaction pooler stands between; queues are polled")
                return
            await self._listen(conn)
        finally:
            await conn.close()

    async def _listen(self, conn: psycopg.AsyncConnection[Any]) -> None:
        sent: set[str] = set()
        conn.add_notify_handler(lambda notify: sent.add(notify.channel))  # what comes while we ask something
        on: frozenset[str] = frozenset()
        while True:
            self._stirred.clear()
            wanted = self._wanted
            async with asyncio.timeout(QUERY_DEADLINE_S):
                await _change(conn, on, wanted)
                await conn.execute("SELECT 1", prepare=False)
            # What was sent before this moment was sent to nobody.
            sent |= wanted - on
            on, self._failures = wanted, 0
            await self._hear(conn, on, sent)

    async def _hear(self, conn: psycopg.AsyncConnection[Any], on: frozenset[str], sent: set[str]) -> None:
        """Pass on what is sent, until other channels are wanted or it is time to ask whether anybody is there."""
        loop = asyncio.get_running_loop()
        until = loop.time() + PROBE_EVERY_S
        while self._wanted == on and (left_s := until - loop.time()) > 0:
            conn.pgconn.consume_input()
            while notify := conn.pgconn.notifies():
                sent.add(notify.relname.decode())
            if sent:
                self._heard(set(sent))
                sent.clear()
                await asyncio.sleep(GULP_EVERY_S)
            else:
                await self._stir(conn, left_s)

    async def _stir(self, conn: psycopg.AsyncConnection[Any], at_most_s: float) -> None:
        """Wait until something can be read, or other channels are wanted."""
        loop, descriptor = asyncio.get_running_loop(), conn.fileno()
        loop.add_reader(descriptor, self._stirred.set)
        try:
            async with asyncio.timeout(at_most_s):
                await self._stirred.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(descriptor)
        self._stirred.clear()


async def _change(conn: psycopg.AsyncConnection[Any], on: frozenset[str], wanted: frozenset[str]) -> None:
    """In one message, since a thousand queues at a round trip each would not be done within any deadline."""
    parts = [sql.SQL("UNLISTEN {}").format(sql.Identifier(channel)) for channel in sorted(on - wanted)]
    parts += [sql.SQL("LISTEN {}").format(sql.Identifier(channel)) for channel in sorted(wanted - on)]
    if parts:
        await conn.execute(sql.SQL("; ").join(parts), prepare=False)
