"""`enqueue_many`: any number of items through COPY, in bounded memory.

Rows stream straight into the queue's table, in parts of `PART_ROWS`; the client never holds more than one part. A part whose keys are
(partly) there already is rolled back to where it began and goes through a temporary table and INSERT … ON CONFLICT DO NOTHING instead.
All or nothing, unless `chunk` asks for commits on the way. What is sent comes from generators without I/O (`Load`); the drivers at the
end differ only in `await`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, islice
from typing import Any

import psycopg
from psycopg import errors
from psycopg.rows import tuple_row

from leasequeue import sql
from leasequeue.copytext import Instants, line
from leasequeue.encode import RowEncoder, Shape
from leasequeue.enqueue import LOCK_TIMEOUT_MS, DuplicateKey, OnDuplicate, check_on_duplicate, notify_query
from leasequeue.errors import BadInput
from leasequeue.run import BEGIN, Operation, Query, callers_transaction, one
from leasequeue.table import Table, quoted

LOAD_TIMEOUT_MS = 3_600_000
PROGRESS_ROWS = 5_000
# Rows of one savepoint. Large, since each is a subtransaction, and more than 64 of those in one transaction slow down everybody's
# snapshots; bounded, since the client keeps the part's text until it is in.
PART_ROWS = 20_000
SENT_ROWS = 200  # rows of one message: tens of kilobytes

Rows = Iterable[Mapping[str, Any]]
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Loaded:
    """How many rows were given and how many items this call created; the others' keys were there before."""

    rows: int
    created: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A COPY … FROM STDIN, and the text to send."""

    text: str
    data: Iterator[str]


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one statement: rows touched, and the first row returned."""

    count: int
    row: tuple[Any, ...] | None = None


Steps = Generator[Query | Copy, Answer, None]


@dataclass(slots=True)
class _Part:
    """Rows of one shape, encoded: their text, to send again, and their numbers, to name the one that the server refuses."""

    shape: Shape
    kept: list[str] = field(default_factory=list)
    numbers: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class Load:
    """State of one load.

    Args:
        table: the queue.
        on_duplicate: what a key does that is there already.
        notify: wake listeners.
        progress: told how many rows were read.
        where: names a row by its number.
    """

    table: Table
    on_duplicate: OnDuplicate
    notify: bool
    progress: Progress | None
    where: Callable[[int], str]
    rows: int = 0
    created: int = 0
    _instants: Instants | None = None
    _direct: bool = True  # COPY can go into the table itself
    _met: bool = False  # keys of the last part were there already: most likely the next one's are, too

    def __post_init__(self) -> None:
        check_on_duplicate(self.on_duplicate)

    def transaction(self, rows: Iterator[Mapping[str, Any]]) -> Steps:
        """Everything between BEGIN and COMMIT."""
        begun = yield Query(self.table.sql("enqueue_load_start"), {"table": self.table.oid})
        assert begun.row is not None
        clock, self._direct = begun.row
        last = self._instants.last if self._instants else None
        self._instants = Instants(clock if last is None else max(clock, last + timedelta(microseconds=1)))
        before = self.created
        for first in rows:
            yield from self._part(chain([first], islice(rows, PART_ROWS - 1)))
        if self.notify and self.created > before:
            yield notify_query(self.table)

    def _part(self, rows: Iterator[Mapping[str, Any]]) -> Steps:
        """Rows of the first one's shape are sent while they are read; those of other shapes follow."""
        others: dict[tuple[str, ...], _Part] = {}
        encoded = self._encoded(rows)
        first = next(encoded)
        part = _Part(first[0])
        yield from self._copy(part, self._sent(part, chain([first], encoded), others))
        for other in others.values():
            yield from self._copy(other, iter(other.kept))

    def _encoded(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[tuple[Shape, str, int]]:
        encode, where, instants, progress = RowEncoder.of(self.table).encode, self.where, self._instants, self.progress
        assert instants is not None
        for row in rows:
            self.rows = number = self.rows + 1
            shape, texts = encode(row, number, where)
            yield shape, line(shape, texts, instants), number
            if progress and number % PROGRESS_ROWS == 0:
                progress(number)

    def _sent(
        self, part: _Part, encoded: Iterator[tuple[Shape, str, int]], others: dict[tuple[str, ...], _Part]
    ) -> Iterator[str]:
        """Messages of the part's rows; rows of other shapes go to `others`."""
        lines: list[str] = []
        keep = self._keyed(part.shape)
        for shape, text, number in encoded:
            if shape is not part.shape:
                other = others.setdefault(shape.columns, _Part(shape))
                other.kept.append(text)
                other.numbers.append(number)
                continue
            lines.append(text)
            part.numbers.append(number)
            if len(lines) == SENT_ROWS:
                message = "".join(lines)
                lines.clear()
                if keep:
                    part.kept.append(message)
                yield message
        message = "".join(lines)
        if keep:
            part.kept.append(message)
        yield message

    def _keyed(self, shape: Shape) -> bool:
        """Whether rows of the shape may meet a key that is passed over."""
        return self.on_duplicate == "skip" and "idempotency_key" in shape.columns

    def _copy(self, part: _Part, data: Iterator[str]) -> Steps:
        """Bring a part in; its text is complete in `part.kept` when `data` ends."""
        keyed = self._keyed(part.shape)
        with _row_named(part, self.where):
            if not self._direct or (keyed and self._met):
                yield from self._insert(part, data)
                return
            if not keyed:
                self.created += (yield Copy(self._statement("enqueue_load_copy", part.shape), data)).count
                return
            yield Query(sql.text("enqueue_load_savepoint"), None)
            try:
                copied = yield Copy(self._statement("enqueue_load_copy", part.shape), data)
            except errors.UniqueViolation as error:
                if _key_at_fault(error) is None:
                    raise
                yield Query(sql.text("enqueue_load_rollback"), None)
            else:
                self.created += copied.count
                yield Query(sql.text("enqueue_load_release"), None)
                return
            for _ in data:  # the refusal may have come before all was read
                pass
            yield from self._insert(part, iter(part.kept))

    def _insert(self, part: _Part, data: Iterator[str]) -> Steps:
        """By way of a temporary table: passes over keys that are there, in the table, in the part, or in a transaction under way."""
        conflict = "ON CONFLICT (idempotency_key) DO NOTHING" if self.on_duplicate == "skip" else ""
        yield Query(self._statement("enqueue_load_table", part.shape), {})
        yield Copy(self._statement("enqueue_load_stage", part.shape), data)
        inserted = yield Query(self._statement("enqueue_load_insert", part.shape, conflict=conflict), {})
        yield Query(sql.text("enqueue_load_drop"), None)
        self.created += inserted.count
        self._met = inserted.count < len(part.numbers)

    def _statement(self, name: str, shape: Shape, **fragments: str) -> str:
        columns = ", ".join(quoted(column) for column in (*shape.columns, "state", "created_at"))
        text = self.table.sql(name, columns=columns, **fragments)
        return (
            text.replace("%%", "%") if name in ("enqueue_load_copy", "enqueue_load_stage") else text
        )  # COPY takes no parameters


_LINE = re.compile(r"\D(\d+)(?:, \w+ (.*?): \"(.*)\"|:|$)", re.DOTALL)


@contextmanager
def _row_named(part: _Part, where: Callable[[int], str]) -> Iterator[None]:
    """Adds the row, column and value to what the server says when it refuses one."""
    try:
        yield
    except (errors.DataError, errors.IntegrityError) as error:
        found = _LINE.search(_copy_context(error))
        if found and 0 < int(found[1]) <= len(part.numbers):
            at = f", column {found[2]}: {found[3]!r}" if found[2] else ""
            error.add_note(f"{where(part.numbers[int(found[1]) - 1])}{at}")
        raise


def _copy_context(error: psycopg.Error) -> str:
    """What follows the table's name in `COPY name, line 12, column x: "…"`, in whatever language the server speaks."""
    context = next((text for text in (error.diag.context or "").splitlines() if text.startswith("COPY ")), "")
    return context[context.find(", ") :]


def _key_at_fault(error: errors.UniqueViolation) -> str | None:
    """The idempotency key that exists already; None when another unique constraint refused the row."""
    found = re.search(r"\(idempotency_key\)=\((.*)\)", error.diag.message_detail or "", re.DOTALL)
    return found[1] if found else None


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
    for page in _pages(rows, chunk):
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
        key = _key_at_fault(error)
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
    for page in _pages(rows, chunk):
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
