"""Operations without I/O, and the two drivers that run them: sync and async come from one definition.

An *operation* is one transaction: a generator that yields a `Batch` of statements, receives their rows, and returns its
result. A *flow* is a generator that yields operations and receives their results (or has their errors thrown in); it is what
the public functions are made of. The drivers differ only in `await`.

On a connection of our own (autocommit, idle) the driver opens the transaction itself: READ COMMITTED whatever the default
is, waits bounded, planner guarded (`sql/limits.sql`), all statements of a batch in one round trip. Inside the caller's
transaction the statements run bare: his isolation, his timeouts, his commit.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from leasequeue import sql
from leasequeue.errors import BadInput
from leasequeue.rows import Result, aresult_of, result_of
from leasequeue.wire import Wire

T = TypeVar("T")

# A statement waits this long for a row or table lock, apart from the lease: a claim that waits longer is worth less than a retry.
LOCK_TIMEOUT_MS = 300
STATEMENT_TIMEOUT_MS = 10_000
# 40001 serialization_failure, 40P01 deadlock_detected, 55P03 lock_not_available: the transaction rolled back whole, run it again.
# 0A000: a column was added, and a prepared `RETURNING t.*` "must not change result type"; psycopg forgets its plans at ROLLBACK.
# 26000 invalid_sql_statement_name: somebody else deallocated ours.
RETRIED = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.InvalidSqlStatementName,
    errors.FeatureNotSupported,
)
ATTEMPTS = 4
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
ISOLATION = "SHOW transaction_isolation"


@dataclass(frozen=True, slots=True)
class Query:
    """One rendered statement and its parameters.

    Args:
        text: with `%(name)s` for parameters.
        params: by name, or in order for `%s`.
        raw: rows may come as text with a codec (`Result.codec`), as they do on a worker's own connections.
    """

    text: str
    params: Mapping[str, Any] | Sequence[Any] | None
    raw: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Statements sent together, each of which returns rows. `last`: COMMIT may follow in the same round trip."""

    queries: tuple[Query, ...]
    last: bool = False


Steps = Generator[Batch, list[Result], T]


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One transaction.

    Args:
        steps: makes the generator; called again for each retry.
        durable: commit waits for the disk. False only for plain claims and renewals, whose loss the fence makes harmless.
        statement_timeout_ms: server-side bound on each statement.
        lock_timeout_ms: server-side bound on each wait for a lock.
        free_plans: leave the planner its choice (needed where a BRIN index is read).
        one_plan: plan each statement once a connection, whatever its parameters. For statements whose one good plan is the same for all
            of them: planning a claim of 20 anew cost a fifth of it. Not for lanes: without its values the planner misjudges them by far.
        alone: its only statement bounds its own wait for locks and is right at any isolation level, so on an idle connection it is sent
            without BEGIN, limits and COMMIT. A retry is a transaction like any other's.
        read_committed: what it reads must be newer than the locks that it takes first: in a caller's transaction of another isolation level
            it is refused.
    """

    steps: Callable[[], Steps[T]]
    durable: bool = True
    statement_timeout_ms: int = STATEMENT_TIMEOUT_MS
    lock_timeout_ms: int = LOCK_TIMEOUT_MS
    free_plans: bool = False
    one_plan: bool = False
    alone: bool = False
    read_committed: bool = False

    def limits(self) -> Query:
        """The statement that opens the transaction."""
        return _limits(self.lock_timeout_ms, self.statement_timeout_ms, self.durable, self.free_plans, self.one_plan, True)


@lru_cache(maxsize=64)
def _limits(
    lock_timeout_ms: int, statement_timeout_ms: int, durable: bool, free_plans: bool, one_plan: bool, local: bool
) -> Query:
    """`limits.sql` with its values written out: there are few of them, and it opens every transaction."""
    values = {
        "lock_timeout": f"{int(lock_timeout_ms)}ms",
        "statement_timeout": f"{int(statement_timeout_ms)}ms",
        "synchronous_commit": "on" if durable else "off",
        "free_plans": "on" if free_plans else "off",
        "plans": "force_generic_plan" if one_plan else "auto",
    }
    quoted = {name: f"'{value}'" for name, value in values.items()}
    return Query(sql.text("limits").format(**quoted, local="true" if local else "false"), None)


Flow = Generator[Operation[Any], Any, T]


def one(query: Query) -> Steps[Result]:
    """Steps of an operation that is a single statement."""
    (result,) = yield Batch((query,), last=True)
    return result


def single(query: Query, **options: Any) -> Flow[Result]:
    """Flow of a single statement in a transaction of its own."""
    result: Result = yield Operation(lambda: one(query), **options)
    return result


def callers_transaction(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """True when statements on `conn` belong to a transaction that the caller commits."""
    return not conn.autocommit or conn.pgconn.transaction_status != TransactionStatus.IDLE


@dataclass(slots=True)
class _Backoff:
    """Jittered waits between the attempts of one operation; the last attempt's error is the caller's."""

    left: int = ATTEMPTS - 1

    def next_wait_s(self) -> float | None:
        if self.left == 0:
            return None
        self.left -= 1
        return random.uniform(0.005, 0.04) * 2.0 ** (ATTEMPTS - 1 - self.left)


def run(conn: psycopg.Connection[Any], flow: Flow[T]) -> T:
    """Run a flow on a sync connection.

    Raises:
        psycopg.Error: the last error of an operation, after the bounded retries of `RETRIED`.
    """
    inside = callers_transaction(conn)
    callers_rows, conn.row_factory = conn.row_factory, tuple_row  # a connection may be the caller's own, with dict_row
    try:
        operation = next(flow)
        while True:
            try:
                outcome = _run_operation(conn, operation)
            except psycopg.Error as ex:
                if inside:  # the caller's transaction is aborted: nothing more can be tried in it
                    raise
                operation = flow.throw(ex)
            else:
                operation = flow.send(outcome)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        conn.row_factory = callers_rows


def _run_operation(conn: psycopg.Connection[Any], operation: Operation[T]) -> T:
    if callers_transaction(conn):
        if operation.read_committed:
            check_isolation(conn.execute(ISOLATION).fetchone())
        return _run_inside(conn, operation.steps())
    backoff, alone = _Backoff(), operation.alone
    while True:
        try:
            return _run_own(conn, operation, alone)
        except RETRIED:
            wait_s = backoff.next_wait_s()
            if wait_s is None:
                raise
            alone = False
            time.sleep(wait_s)


def check_isolation(found: Any) -> None:
    """Refuse an isolation level whose snapshot is older than the locks of the operation.

    Raises:
        BadInput: it is not read committed; nothing was done.
    """
    (level,) = found
    if level != "read committed":
        raise BadInput(
            "conn", level, "is the isolation of this transaction; claims under max_inflight_policy Enforce or with strict lanes need READ "
            "COMMITTED, since their snapshot must be taken after their locks: claim outside the transaction, or begin it at that level",
        )  # fmt: skip


def _run_inside(conn: psycopg.Connection[Any], steps: Steps[T]) -> T:
    try:
        batch = next(steps)
        while True:
            results = [result_of(conn.execute(q.text, q.params), conn) for q in batch.queries]
            batch = steps.send(results)
    except StopIteration as stop:
        result: T = stop.value
        return result


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a connection keeps for its session: the limits of most operations, and the statements prepared on it."""

    limits: Query
    wire: Wire


_kept: WeakKeyDictionary[psycopg.Connection[Any], _Kept] = WeakKeyDictionary()


def keep_limits(conn: psycopg.Connection[Any], *, durable: bool = True, one_plan: bool = False) -> None:
    """Set the limits of most operations on a connection for its whole session: they are not sent again with each of those, which travel
    in one packet each (`wire.py`), and one that is a single statement becomes its own transaction. Operations with other limits
    bring their own as ever.

    Args:
        conn: an idle autocommit connection that nobody else uses, with no pooler between (the settings would reach others). One in
            another encoding than UTF-8 stays as it is.
        durable: as of those operations.
        one_plan: as of those operations.
    """
    if conn.info.encoding != "utf-8":
        return
    session, usual = (
        _limits(LOCK_TIMEOUT_MS, STATEMENT_TIMEOUT_MS, durable, False, one_plan, local) for local in (False, True)
    )
    conn.execute("SET default_transaction_isolation = 'read committed'", prepare=False)
    conn.execute(session.text, prepare=False)
    _kept[conn] = _Kept(usual, Wire(conn))


def _run_own(conn: psycopg.Connection[Any], operation: Operation[T], alone: bool) -> T:
    steps = operation.steps()
    limits = operation.limits()
    kept = _kept.get(conn)
    try:
        batch = next(steps)
        if kept is not None and kept.limits == limits:
            results = _on_wire(kept.wire, steps, batch)
        elif alone:
            results = [_alone(conn, batch.queries[0])]
        else:
            results = _pipelined(conn, steps, batch, limits)
    except BaseException:
        steps.close()
        _rollback(conn)
        raise
    return _finish(steps, results)


def _on_wire(wire: Wire, steps: Steps[Any], batch: Batch) -> list[Result]:
    """A transaction in as few packets as it has batches; the results of its last one."""
    if batch.last and len(batch.queries) == 1:
        return wire.ask(batch.queries)  # one statement is its own transaction
    begin = BEGIN
    while not batch.last:
        results = wire.ask(batch.queries, before=begin)
        begin = ""
        batch = steps.send(results)
    return wire.ask(batch.queries, before=begin, after="COMMIT")


def _alone(conn: psycopg.Connection[Any], query: Query) -> Result:
    """One statement that is its own transaction."""
    try:
        return result_of(conn.execute(query.text, query.params), conn)
    except errors.FeatureNotSupported:
        conn.execute("DEALLOCATE ALL", prepare=False)  # there is no ROLLBACK here at which psycopg would forget its plans
        raise


def _pipelined(conn: psycopg.Connection[Any], steps: Steps[Any], batch: Batch, limits: Query) -> list[Result]:
    """A transaction whose statements travel together; the results of its last batch."""
    with conn.pipeline():
        conn.execute(BEGIN)
        conn.execute(limits.text, limits.params)
        while True:
            cursors = [conn.execute(q.text, q.params) for q in batch.queries]
            if batch.last:
                conn.execute("COMMIT")
                break
            batch = steps.send([result_of(cur, conn) for cur in cursors])
    return [result_of(cur, conn) for cur in cursors]


def _rollback(conn: psycopg.Connection[Any]) -> None:
    """Leave the connection idle; a connection that cannot do even that is closed, so that it is never used again."""
    if conn.closed or conn.info.transaction_status is TransactionStatus.IDLE:
        return
    try:
        conn.execute("ROLLBACK")
    except psycopg.Error:
        conn.close()
    if (kept := _kept.get(conn)) is not None:
        kept.wire.forget()  # psycopg deallocates all statements at a ROLLBACK


def _finish(steps: Steps[T], results: list[Result]) -> T:
    try:
        steps.send(results)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise RuntimeError("an operation went on after its last batch")


async def arun(conn: psycopg.AsyncConnection[Any], flow: Flow[T]) -> T:
    """Run a flow on an async connection. Same contract as `run`."""
    inside = callers_transaction(conn)
    callers_rows, conn.row_factory = conn.row_factory, tuple_row
    try:
        operation = next(flow)
        while True:
            try:
                outcome = await _arun_operation(conn, operation)
            except psycopg.Error as ex:
                if inside:  # the caller's transaction is aborted: nothing more can be tried in it
                    raise
                operation = flow.throw(ex)
            else:
                operation = flow.send(outcome)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        conn.row_factory = callers_rows


async def _arun_operation(conn: psycopg.AsyncConnection[Any], operation: Operation[T]) -> T:
    if callers_transaction(conn):
        if operation.read_committed:
            check_isolation(await (await conn.execute(ISOLATION)).fetchone())
        return await _arun_inside(conn, operation.steps())
    backoff, alone = _Backoff(), operation.alone
    while True:
        try:
            return await (_arun_alone if alone else _arun_own)(conn, operation)
        except RETRIED:
            wait_s = backoff.next_wait_s()
            if wait_s is None:
                raise
            alone = False
            await asyncio.sleep(wait_s)


async def _arun_inside(conn: psycopg.AsyncConnection[Any], steps: Steps[T]) -> T:
    try:
        batch = next(steps)
        while True:
            results = [await aresult_of(await conn.execute(q.text, q.params), conn) for q in batch.queries]
            batch = steps.send(results)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def _arun_alone(conn: psycopg.AsyncConnection[Any], operation: Operation[T]) -> T:
    steps = operation.steps()
    (query,) = next(steps).queries
    try:
        result = await aresult_of(await conn.execute(query.text, query.params), conn)
    except errors.FeatureNotSupported:
        await conn.execute("DEALLOCATE ALL", prepare=False)
        raise
    return _finish(steps, [result])


async def _arun_own(conn: psycopg.AsyncConnection[Any], operation: Operation[T]) -> T:
    steps = operation.steps()
    limits = operation.limits()
    try:
        async with conn.pipeline():
            await conn.execute(BEGIN)
            await conn.execute(limits.text, limits.params)
            batch = next(steps)
            while True:
                cursors = [await conn.execute(q.text, q.params) for q in batch.queries]
                if batch.last:
                    await conn.execute("COMMIT")
                    break
                batch = steps.send([await aresult_of(cur, conn) for cur in cursors])
        results = [await aresult_of(cur, conn) for cur in cursors]
    except BaseException:
        steps.close()
        await _arollback(conn)
        raise
    return _finish(steps, results)


async def _arollback(conn: psycopg.AsyncConnection[Any]) -> None:
    if conn.closed or conn.info.transaction_status is TransactionStatus.IDLE:
        return
    try:
        await conn.execute("ROLLBACK")
    except psycopg.Error:
        await conn.close()
