"""`ctx.transaction()`: a handler's effects and its item's completion in one commit, behind the fence.

Order: fence (the item is resolved under its token, which also locks the row), effects, result, COMMIT. A worker that lost its lease is
stopped before its first effect; until the commit nobody can lease the row.

A connection that breaks at COMMIT leaves the outcome unknown. Running again would double the effects if it did commit; so the
outcome is read back by id, owner and token, with the row locked, which waits until the old backend has committed or rolled
back: RESOLVED means done; ASSIGNED means that nothing happened, and the error goes to the handler's caller as a retry.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

import leasequeue
from leasequeue import aio, sql
from leasequeue.dsn import DsnSource, aconnect, connect, redact
from leasequeue.errors import BadInput, LeaseNotHeld, OutcomeUnknown
from leasequeue.fence import Completion
from leasequeue.process.faults import Fault, classify, is_lost
from leasequeue.states import Outcome
from leasequeue.table import Table
from leasequeue.verdict import Repair
from leasequeue_worker.context import ResultBox
from leasequeue_worker.held import Held
from leasequeue_worker.link import Watchdog, cut

T = TypeVar("T")
TWICE = "ctx.transaction() is open already for this item; tx.transaction() makes a savepoint in it"
FENCE_LIMIT_S = 10.0
COMMIT_LIMIT_S = 15.0
# How long an unknown outcome is asked for. The old backend ends at the latest when the server notices its dead client.
OUTCOME_WAIT_S = 60.0
_APPLICATION = "leasequeue-worker handler"


class NothingCommitted(Exception):
    """The connection broke at COMMIT and the database says that the transaction rolled back."""


class TransactionMisused(Exception):
    """The handler used the connection in a way that parts its effects from the item's completion; nothing is told as done."""


class _Turn:
    """Which item's transaction is open on a slot's connection: two at once would be savepoints of each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Held | None = None

    def take(self, held: Held) -> None:
        """`held` begins. What an earlier item left open is no hindrance: its connection is dropped.

        Raises:
            TransactionMisused: `held` has one open already, in whichever task or thread of its handler.
        """
        _begin(held)
        with self._lock:
            if self._held is held:
                raise TransactionMisused(TWICE)
            self._held = held

    def give(self, held: Held) -> None:
        """`held` ended."""
        with self._lock:
            if self._held is held:
                self._held = None


def _begin(held: Held) -> None:
    if held.committed:
        raise LeaseNotHeld({held.item.lease.id: Outcome.ALREADY_RESOLVED})
    if held.fenced:
        raise TransactionMisused(TWICE)


def _as_we_left_it(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """False where a handler left a transaction open after its block: ours would be a savepoint in it, and commit nothing."""
    return conn.autocommit and conn.info.transaction_status is TransactionStatus.IDLE


def _forget_settings(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """What a handler may have set on the connection object itself."""
    conn.row_factory = tuple_row
    _take_result(conn)


def _can_commit(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a COMMIT that would not commit: the server answers it with ROLLBACK, as no error."""
    status = conn.info.transaction_status
    if status is TransactionStatus.INERROR:
        raise TransactionMisused(
            "a statement failed inside ctx.transaction() and its error was caught, so nothing in it can commit; "
            "put a statement that may fail inside `with tx.transaction():`, a savepoint"
        )
    if status is TransactionStatus.IDLE:
        raise TransactionMisused("ctx.transaction() was ended by the handler's own COMMIT or ROLLBACK; leave both to the block")


def _take_result(conn: Any) -> Any:
    """What a handler set by `tx.result = value`; not left for the next item on this connection."""
    return vars(conn).pop("result", None)


def _refused(error: Exception) -> BaseException:
    """A result that JSON or the database cannot hold needs a person, not another attempt."""
    if isinstance(error, psycopg.Error):
        if classify(error) is not Fault.DATA:
            return error
        return Repair(f"the result was refused by the database: {error.diag.message_primary} ({error.sqlstate})")
    return Repair(f"the result was refused: {error}")


def _decided(outcome: Outcome | None, held: Held) -> None:
    """What an outcome that was read back means. Returns when the transaction committed."""
    if outcome is Outcome.RESOLVED:
        return
    if outcome is None:
        raise NothingCommitted("the connection broke at COMMIT; the transaction rolled back")
    raise LeaseNotHeld({held.item.lease.id: outcome})


class Transactions:
    """Transactions of one slot's sync handlers, on a connection of the slot's own, opened on first use.

    Args:
        source: where the DSN comes from.
        table: gives the queue's table.
        lease_s: lease duration, seconds.
        watchdog: bounds the fence and the COMMIT.
        stage: told "fenced", "committed" and "idle"; a child process passes it on to its parent.
    """

    def __init__(
        self,
        source: DsnSource,
        table: Callable[[], Table],
        *,
        lease_s: float,
        watchdog: Watchdog,
        stage: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._source, self._table, self._lease_s, self._watchdog, self._stage = source, table, lease_s, watchdog, stage
        self._conn: psycopg.Connection[Any] | None = None
        self._used: psycopg.Connection[Any] | None = None
        self._turn = _Turn()

    def open(self, held: Held, result: ResultBox) -> AbstractContextManager[psycopg.Connection[Any]]:
        """One transaction about one item; see `Context.transaction`."""
        return self._transaction(held, result)

    @contextmanager
    def _transaction(self, held: Held, box: ResultBox) -> Iterator[psycopg.Connection[Any]]:
        self._turn.take(held)
        try:
            conn, table = self._clean(), self._table()
            block = conn.transaction()
            self._bounded(conn, FENCE_LIMIT_S, block.__enter__)
            try:
                self._bounded(conn, FENCE_LIMIT_S, lambda: leasequeue.resolve(conn, table, Completion(held.item.lease)))
                held.fenced = True
                self._stage("fenced")
                yield conn
                _can_commit(conn)
                self._store_result(conn, table, held, box)
            except BaseException as ex:
                block.__exit__(type(ex), ex, ex.__traceback__)
                raise
            self._commit(conn, block, table, held)
        finally:
            held.fenced = False
            self._turn.give(held)
            self._stage("committed" if held.committed else "idle")

    def _clean(self) -> psycopg.Connection[Any]:
        """The slot's connection, without a trace of the handler that had it before."""
        conn = self._connection()
        if self._used is conn:
            if not _as_we_left_it(conn):
                conn.close()
            else:
                _forget_settings(conn)
                conn.isolation_level = conn.read_only = conn.deferrable = None
                self._bounded(conn, FENCE_LIMIT_S, lambda: conn.execute(sql.text("session_reset"), prepare=False))
            conn = self._connection()
        self._used = conn
        return conn

    def _store_result(self, conn: psycopg.Connection[Any], table: Table, held: Held, box: ResultBox) -> None:
        result = _take_result(conn)
        result = box.value if result is None else result
        if result is not None:
            conn.row_factory = tuple_row
            try:
                leasequeue.set_result(conn, table, held.item.lease, result)
            except (psycopg.Error, BadInput) as ex:
                raise _refused(ex) from ex

    def _commit(self, conn: psycopg.Connection[Any], block: Any, table: Table, held: Held) -> None:
        try:
            self._bounded(conn, COMMIT_LIMIT_S, lambda: block.__exit__(None, None, None))
        except psycopg.Error:
            if not is_lost(conn):
                raise  # the server answered: it refused the COMMIT (a deferred constraint) and rolled back
            conn.close()
            _decided(self._read_outcome(table, held), held)
        held.committed = True

    def _read_outcome(self, table: Table, held: Held) -> Outcome | None:
        give_up = time.monotonic() + OUTCOME_WAIT_S
        while True:
            try:
                return self._ask_outcome(self._connection(), table, held)
            except psycopg.Error as ex:
                if time.monotonic() > give_up:
                    raise OutcomeUnknown(f"COMMIT of item {held.item.lease.id}: the outcome could not be read back") from ex
            time.sleep(random.uniform(0.1, 0.5))

    def _ask_outcome(self, conn: psycopg.Connection[Any], table: Table, held: Held) -> Outcome | None:
        return self._bounded(conn, FENCE_LIMIT_S, lambda: leasequeue.lease_outcome(conn, table, held.item.lease))

    def _bounded(self, conn: psycopg.Connection[Any], limit_s: float, call: Callable[[], T]) -> T:
        key = self._watchdog.watch(conn, limit_s)
        try:
            return call()
        finally:
            self._watchdog.release(key)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            try:
                self._conn = connect(self._source, lease_s=self._lease_s, application_name=_APPLICATION)
            except BadInput as ex:
                raise psycopg.OperationalError(str(ex)) from None
            except psycopg.OperationalError as ex:
                raise type(ex)(redact(str(ex))) from None
        return self._conn

    def close(self) -> None:
        """End the connection, and with it a transaction under way. Any thread: the drain ends what still runs."""
        if self._conn is not None and not self._conn.closed:
            cut(self._conn)


class TransactionsAsync:
    """Async twin of `Transactions`: one connection a slot, used by that slot's tasks alone."""

    def __init__(
        self,
        source: DsnSource,
        table: Callable[[], Table],
        *,
        lease_s: float,
        stage: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._source, self._table, self._lease_s, self._stage = source, table, lease_s, stage
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._used: psycopg.AsyncConnection[Any] | None = None
        self._turn = _Turn()

    def open(self, held: Held, result: ResultBox) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """One transaction about one item; see `AsyncContext.transaction`."""
        return self._transaction(held, result)

    @asynccontextmanager
    async def _transaction(self, held: Held, box: ResultBox) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        self._turn.take(held)
        try:
            conn, table = await self._clean(), self._table()
            block = conn.transaction()
            async with asyncio.timeout(FENCE_LIMIT_S):
                await block.__aenter__()
            try:
                async with asyncio.timeout(FENCE_LIMIT_S):
                    await aio.resolve(conn, table, Completion(held.item.lease))
                held.fenced = True
                self._stage("fenced")
                yield conn
                _can_commit(conn)
                await self._store_result(conn, table, held, box)
            except BaseException as ex:
                await block.__aexit__(type(ex), ex, ex.__traceback__)
                raise
            await self._commit(conn, block, table, held)
        finally:
            held.fenced = False
            self._turn.give(held)
            self._stage("committed" if held.committed else "idle")

    async def _clean(self) -> psycopg.AsyncConnection[Any]:
        """The slot's connection, without a trace of the handler that had it before."""
        conn = await self._connection()
        if self._used is conn:
            if not _as_we_left_it(conn):
                await conn.close()
            else:
                _forget_settings(conn)
                await conn.set_isolation_level(None)
                await conn.set_read_only(None)
                await conn.set_deferrable(None)
                async with asyncio.timeout(FENCE_LIMIT_S):
                    await conn.execute(sql.text("session_reset"), prepare=False)
            conn = await self._connection()
        self._used = conn
        return conn

    async def _store_result(self, conn: psycopg.AsyncConnection[Any], table: Table, held: Held, box: ResultBox) -> None:
        result = _take_result(conn)
        result = box.value if result is None else result
        if result is not None:
            conn.row_factory = tuple_row
            try:
                await aio.set_result(conn, table, held.item.lease, result)
            except (psycopg.Error, BadInput) as ex:
                raise _refused(ex) from ex

    async def _commit(self, conn: psycopg.AsyncConnection[Any], block: Any, table: Table, held: Held) -> None:
        """COMMIT in a task of its own: a cancelled handler must not leave it half said."""
        commit = asyncio.ensure_future(self._commit_whole(conn, block, table, held))
        try:
            await asyncio.shield(commit)
        except asyncio.CancelledError:
            await asyncio.wait([commit])  # bounded by its own deadlines
            raise

    async def _commit_whole(self, conn: psycopg.AsyncConnection[Any], block: Any, table: Table, held: Held) -> None:
        try:
            async with asyncio.timeout(COMMIT_LIMIT_S):
                await block.__aexit__(None, None, None)
        except (psycopg.Error, TimeoutError) as ex:
            if not isinstance(ex, TimeoutError) and not is_lost(conn):
                raise
            await conn.close()
            _decided(await self._read_outcome(table, held), held)
        held.committed = True

    async def _read_outcome(self, table: Table, held: Held) -> Outcome | None:
        give_up = time.monotonic() + OUTCOME_WAIT_S
        while True:
            try:
                conn = await self._connection()
                async with asyncio.timeout(FENCE_LIMIT_S):
                    return await aio.lease_outcome(conn, table, held.item.lease)
            except (psycopg.Error, TimeoutError) as ex:
                if isinstance(ex, TimeoutError) and self._conn is not None:
                    await self._conn.close()
                if time.monotonic() > give_up:
                    raise OutcomeUnknown(f"COMMIT of item {held.item.lease.id}: the outcome could not be read back") from ex
            await asyncio.sleep(random.uniform(0.1, 0.5))

    async def _connection(self) -> psycopg.AsyncConnection[Any]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            try:
                self._conn = await aconnect(self._source, lease_s=self._lease_s, application_name=_APPLICATION)
            except BadInput as ex:
                raise psycopg.OperationalError(str(ex)) from None
            except psycopg.OperationalError as ex:
                raise type(ex)(redact(str(ex))) from None
        return self._conn

    def close(self) -> None:
        """End the connection, and with it a transaction under way. Any thread."""
        if self._conn is not None and not self._conn.closed:
            cut(self._conn)
