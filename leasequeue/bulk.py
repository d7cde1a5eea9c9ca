"""`enqueue_many`: any number of items through COPY, in bounded memory, all or nothing unless `chunk` asks for commits on the way.

What is sent comes from `load.py`; the drivers here differ only in `await`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import psycopg
from psycopg import errors
from psycopg.rows import tuple_row

from leasequeue import sql, tracing
from leasequeue.enqueue import LOCK_TIMEOUT_MS, DuplicateKey, OnDuplicate
from leasequeue.errors import BadInput
from leasequeue.load import Answer, Copy, Load, Progress, Rows, Steps, key_at_fault
from leasequeue.run import BEGIN, Operation, Query, callers_transaction, one
from leasequeue.table import Table

LOAD_TIMEOUT_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Loaded:
    """How many rows were given and how many items this call created; the others' keys were there before."""

    rows: int
    created: int


def limits() -> Query:
    """Waits of a load: a lock as for any enqueue, the statements up to an hour."""
    nothing = Query(sql.text("enqueue_load_release"), None)
    operation = Operation(
        lambda: one(nothing), lock_timeout_ms=LOCK_TIMEOUT_MS, statement_timeout_ms=LOAD_TIMEOUT_MS, free_plans=True
    )
    return operation.limits()


def enqueue_many(
    conn: psycopg.Connection[Any],
    table: Table,
    rows: Rows,
    *,
    chunk: int | None = None,
    on_duplicate: OnDuplicate = "skip",
    notify: bool = True,
    progress: Progress | None = None,
    where: Callable[[int], str] = "row {}".format,
) -> Loaded:
    """Add any number of items.

    Args:
        conn: a connection; inside a transaction everything belongs to that transaction.
        table: the queue.
        rows: column → value, read once, one at a time; columns as for `enqueue`.
        chunk: commit after so many rows (≥ 1); None for all or nothing.
        on_duplicate: `skip` passes over keys that are there; `error` stops there.
        notify: wake listeners at each commit.
        progress: called with the number of rows read so far, every 5,000 rows and at the end.
        where: names a row by its number, for errors: the row just read, or one of the last 20,000.

    Raises:
        BadInput: a row does not fit the table; names row, column and value.
        DuplicateKey: see `on_duplicate`.
        psycopg.Error: the database refused the rows or did not answer; for one row's data a note of the error names row, column and value.
    """
    load = Load(table, on_duplicate, notify, progress, where)
    for page in _pages(tracing.each_stamped(rows), chunk):
        with _duplicates(), _transaction(conn):
            _drive(conn, load.transaction(page))
        if progress:
            progress(load.rows)
    return Loaded(load.rows, load.created)


def _pages(rows: Rows, chunk: int | None) -> Iterator[Iterator[Mapping[str, Any]]]:
    """The rows in pages of `chunk`, without reading ahead of a page."""
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise BadInput("chunk", chunk, "must be a whole number of rows, at least 1")
    rest = iter(rows)
    for first in rest:
        yield chain([first], rest if chunk is None else islice(rest, chunk - 1))


@contextmanager
def _duplicates() -> Iterator[None]:
    try:
        yield
    except errors.UniqueViolation as error:
        key = key_at_fault(error)
        if key is None:
            raise
        raise DuplicateKey(key) from None


@contextmanager
def _transaction(conn: psycopg.Connection[Any]) -> Iterator[None]:
    if callers_transaction(conn):
        yield
        return
    conn.execute(BEGIN, prepare=False)
    try:
        conn.cursor(row_factory=tuple_row).execute(limits().text, limits().params)
        yield
    except BaseException:
        if not conn.closed:
            conn.rollback()
        raise
    conn.commit()


def _drive(conn: psycopg.Connection[Any], steps: Steps) -> None:
    with conn.cursor(row_factory=tuple_row) as cursor:
        try:
            step = next(steps)
            while True:
                try:
                    answer = _done(cursor, step)
                except psycopg.Error as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration:
            return


def _done(cursor: psycopg.Cursor[Any], step: Query | Copy) -> Answer:
    if isinstance(step, Query):
        cursor.execute(step.text, step.params, prepare=False)
        return Answer(cursor.rowcount, cursor.fetchone() if cursor.description else None)
    with cursor.copy(step.text) as copy:
        for message in step.data:
            copy.write(message)
    return Answer(cursor.rowcount)


async def aenqueue_many(
    conn: psycopg.AsyncConnection[Any],
    table: Table,
    rows: Rows,
    *,
    chunk: int | None = None,
    on_duplicate: OnDuplicate = "skip",
    notify: bool = True,
    progress: Progress | None = None,
    where: Callable[[int], str] = "row {}".format,
) -> Loaded:
    """Async twin of `enqueue_many`; `rows` is read in the event loop."""
    load = Load(table, on_duplicate, notify, progress, where)
    for page in _pages(tracing.each_stamped(rows), chunk):
        with _duplicates():
            async with _atransaction(conn):
                await _adrive(conn, load.transaction(page))
        if progress:
            progress(load.rows)
    return Loaded(load.rows, load.created)


@asynccontextmanager
async def _atransaction(conn: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    if callers_transaction(conn):
        yield
        return
    await conn.execute(BEGIN, prepare=False)
    try:
        await conn.cursor(row_factory=tuple_row).execute(limits().text, limits().params)
        yield
    except BaseException:
        if not conn.closed:
            await conn.rollback()
        raise
    await conn.commit()


async def _adrive(conn: psycopg.AsyncConnection[Any], steps: Steps) -> None:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        try:
            step = next(steps)
            while True:
                try:
                    answer = await _adone(cursor, step)
                except psycopg.Error as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration:
            return


async def _adone(cursor: psycopg.AsyncCursor[Any], step: Query | Copy) -> Answer:
    if isinstance(step, Query):
        await cursor.execute(step.text, step.params, prepare=False)
        return Answer(cursor.rowcount, await cursor.fetchone() if cursor.description else None)
    async with cursor.copy(step.text) as copy:
        for message in step.data:
            await copy.write(message)
    return Answer(cursor.rowcount)
