"""`enqueue_many`: any number of items through COPY, in bounded memory.

Rows stream into a temporary table on the server and are inserted from there in the order given, so the client never holds more
than one row. All or nothing, unless `chunk` asks for commits on the way. The loops of the two drivers differ only in `await`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import psycopg
from psycopg import errors
from psycopg.rows import tuple_row

from leasequeue import sql
from leasequeue.encode import RowEncoder
from leasequeue.enqueue import LOCK_TIMEOUT_MS, DuplicateKey, OnDuplicate, check_on_duplicate, insert_parts, notify_query
from leasequeue.errors import BadInput
from leasequeue.run import BEGIN, Operation, Query, callers_transaction, one
from leasequeue.table import Table

LOAD_TIMEOUT_MS = 3_600_000
PROGRESS_ROWS = 5_000
MAX_SHAPES = 1_000

Rows = Iterable[Mapping[str, Any]]
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Loaded:
    """How many rows were given and how many items this call created; the others' keys were there before."""

    rows: int
    created: int


@dataclass(slots=True)
class _Load:
    """State of one load: encodes rows, numbers them, and knows the sets of columns seen in this transaction."""

    table: Table
    on_duplicate: OnDuplicate
    progress: Progress | None
    where: Callable[[int], str]
    encoder: RowEncoder = field(init=False)
    shapes: dict[tuple[str, ...], int] = field(default_factory=dict)
    rows: int = 0
    created: int = 0

    def __post_init__(self) -> None:
        check_on_duplicate(self.on_duplicate)
        self.encoder = RowEncoder(self.table)

    def records(self, rows: Rows) -> Iterator[tuple[int, int, str]]:
        """Rows of the temporary table."""
        self.shapes.clear()
        for row in rows:
            self.rows += 1
            columns, text = self.encoder.encode(row, self.where(self.rows))
            shape = self.shapes.setdefault(columns, len(self.shapes))
            if shape >= MAX_SHAPES:
                raise BadInput("rows", len(self.shapes), f"more than {MAX_SHAPES} different sets of columns in one load")
            yield self.rows, shape, text
            if self.progress and self.rows % PROGRESS_ROWS == 0:
                self.progress(self.rows)

    def inserts(self, start: Any) -> list[Query]:
        """One INSERT for each set of columns."""
        conflict = "ON CONFLICT (idempotency_key) DO NOTHING" if self.on_duplicate == "skip" else ""
        return [
            Query(
                self.table.sql("enqueue_load_insert", **insert_parts(columns), conflict=conflict),
                {"start": start, "shape": shape},
            )
            for columns, shape in self.shapes.items()
        ]


def limits() -> Query:
    """Waits of a load: a lock as for any enqueue, the statements up to an hour."""
    nothing = Query(sql.text("enqueue_load_start"), {})
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
        where: names a row by its number, for errors.

    Raises:
        BadInput: a row does not fit the table; names row, column and value.
        DuplicateKey: see `on_duplicate`.
        psycopg.Error: the database refused the rows or did not answer.
    """
    load = _Load(table, on_duplicate, progress, where)
    for page in _pages(rows, chunk):
        with _duplicates(), _transaction(conn):
            _load_page(conn, load, page, notify)
        if progress:
            progress(load.rows)
    return Loaded(load.rows, load.created)


def _pages(rows: Rows, chunk: int | None) -> Iterator[Rows]:
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
        detail = error.diag.message_detail or ""
        head, _, tail = detail.partition(")=(")
        if head != "Key (idempotency_key":
            raise
        raise DuplicateKey(tail.rpartition(") already exists")[0]) from None


@contextmanager
def _transaction(conn: psycopg.Connection[Any]) -> Iterator[None]:
    if callers_transaction(conn):
        yield
        conn.execute(sql.text("enqueue_load_drop"), prepare=False)
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


def _load_page(conn: psycopg.Connection[Any], load: _Load, page: Rows, notify: bool) -> None:
    conn.execute(sql.text("enqueue_load_table"), prepare=False)
    with conn.cursor(row_factory=tuple_row) as cursor:
        with cursor.copy(sql.text("enqueue_load_copy")) as copy:
            for record in load.records(page):
                copy.write_row(record)
        start = cursor.execute(sql.text("enqueue_load_start"), prepare=False).fetchone()
        before = load.created
        for query in load.inserts(start and start[0]):
            load.created += cursor.execute(query.text, query.params, prepare=False).rowcount
        if notify and load.created > before:
            cursor.execute(notify_query(load.table).text, notify_query(load.table).params, prepare=False)


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
    load = _Load(table, on_duplicate, progress, where)
    for page in _pages(rows, chunk):
        with _duplicates():
            async with _atransaction(conn):
                await _aload_page(conn, load, page, notify)
        if progress:
            progress(load.rows)
    return Loaded(load.rows, load.created)


@asynccontextmanager
async def _atransaction(conn: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    if callers_transaction(conn):
        yield
        await conn.execute(sql.text("enqueue_load_drop"), prepare=False)
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


async def _aload_page(conn: psycopg.AsyncConnection[Any], load: _Load, page: Rows, notify: bool) -> None:
    await conn.execute(sql.text("enqueue_load_table"), prepare=False)
    async with conn.cursor(row_factory=tuple_row) as cursor:
        async with cursor.copy(sql.text("enqueue_load_copy")) as copy:
            for record in load.records(page):
                await copy.write_row(record)
        start = await (await cursor.execute(sql.text("enqueue_load_start"), prepare=False)).fetchone()
        before = load.created
        for query in load.inserts(start and start[0]):
            load.created += (await cursor.execute(query.text, query.params, prepare=False)).rowcount
        if notify and load.created > before:
            await cursor.execute(notify_query(load.table).text, notify_query(load.table).params, prepare=False)
