"""What `enqueue_many` sends and in which order, as generators without I/O; `bulk.py` drives them over a connection.

Rows stream straight into the queue's table, in parts of `PART_ROWS`; the client never holds more than one part. A part whose keys are
(partly) there already is rolled back to where it began and goes through a temporary table and INSERT … ON CONFLICT DO NOTHING instead.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import psycopg
from psycopg import errors

from leasequeue import sql
from leasequeue.copytext import MAKERS, Instants, Maker, written
from leasequeue.encode import RowEncoder, Shape
from leasequeue.enqueue import OnDuplicate, check_on_duplicate, notify_query
from leasequeue.run import Query
from leasequeue.table import Table, quoted

PROGRESS_ROWS = 5_000
# Rows of one savepoint. Large, since each is a subtransaction, and more than 64 of those in one transaction slow down everybody's
# snapshots; bounded, since the client keeps the part's text until it is in.
PART_ROWS = 20_000
BLOCK_ROWS = 200  # rows that are encoded together and sent as one message: tens of kilobytes

Rows = Iterable[Mapping[str, Any]]
Progress = Callable[[int], None]


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


@dataclass(frozen=True, slots=True)
class _Block:
    """Some rows of one shape: their numbers and their COPY text."""

    shape: Shape
    numbers: list[int]
    text: str


@dataclass(slots=True)
class _Part:
    """Rows of one shape, encoded: their text, to send again, and their numbers, to name the one that the server refuses."""

    shape: Shape
    kept: list[str] = field(default_factory=list)
    numbers: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class Load:
    """One load.

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
    _makers: dict[str, Maker] = field(default_factory=dict)
    _direct: bool = True  # COPY can go into the table itself
    _met: bool = False  # keys of the last part were there already: most likely the next one's are, too

    def __post_init__(self) -> None:
        check_on_duplicate(self.on_duplicate)

    def transaction(self, rows: Iterator[Mapping[str, Any]]) -> Steps:
        """Everything between BEGIN and COMMIT."""
        begun = yield Query(self.table.sql("enqueue_load_start"), {"table": self.table.oid})
        assert begun.row is not None
        clock, self._direct, defaults = begun.row
        self._makers = {column: MAKERS[default] for column, default in defaults.items()}
        last = self._instants.at(self.rows) if self._instants else clock
        self._instants = Instants(
            max(clock, last), self.rows + 1
        )  # later than the transaction before, should the clock be set back
        before = self.created
        for first in rows:
            yield from self._part(chain([first], islice(rows, PART_ROWS - 1)))
        if self.notify and self.created > before:
            yield notify_query(self.table)

    def _part(self, rows: Iterator[Mapping[str, Any]]) -> Steps:
        """Rows of the first one's shape are sent while they are read; those of other shapes follow."""
        others: dict[tuple[str, ...], _Part] = {}
        blocks = self._blocks(rows)
        first = next(blocks)
        part = _Part(first.shape)
        yield from self._copy(part, self._sent(part, chain([first], blocks), others))
        for other in others.values():
            yield from self._copy(other, iter(other.kept))

    def _blocks(self, rows: Iterator[Mapping[str, Any]]) -> Iterator[_Block]:
        """The rows, encoded some at a time, rows of one shape together."""
        while True:
            told, groups = self.rows, self._grouped(islice(rows, BLOCK_ROWS))
            for names, (numbers, values) in groups.items():
                yield self._block(names, numbers, values)
            if self.progress and self.rows // PROGRESS_ROWS > told // PROGRESS_ROWS:
                self.progress(self.rows)
            if not groups:
                return

    def _grouped(self, rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], tuple[list[int], list[tuple[Any, ...]]]]:
        """Numbers and values of rows, by the columns that they give."""
        groups: dict[tuple[str, ...], tuple[list[int], list[tuple[Any, ...]]]] = {}
        number = self.rows
        for row in rows:
            self.rows = number = number + 1
            if type(row) is not dict and not isinstance(row, Mapping):
                RowEncoder.of(self.table).encode(row, number, self.where)  # refuses it
            names = tuple(row)
            group = groups.get(names)
            if group is None:
                group = groups[names] = ([], [])
            group[0].append(number)
            group[1].append(tuple(row.values()))
        return groups

    def _block(self, names: tuple[str, ...], numbers: list[int], values: list[tuple[Any, ...]]) -> _Block:
        encoder = RowEncoder.of(self.table)
        shape = encoder.shape(names, numbers[0], self.where)
        given = dict(zip(names, zip(*values, strict=True), strict=True))
        assert self._instants is not None
        try:
            makers = [self._makers[name] for name in self._made(shape)]
            text = written(shape, [given[name] for name in shape.columns], numbers, self._instants, makers)
        except ValueError:
            for number, row in zip(numbers, values, strict=True):
                encoder.encode(dict(zip(names, row, strict=True)), number, self.where)  # refuses the one that does not fit
            raise
        return _Block(shape, numbers, text)

    def _sent(self, part: _Part, blocks: Iterator[_Block], others: dict[tuple[str, ...], _Part]) -> Iterator[str]:
        """Messages of the part's rows; rows of other shapes go to `others`."""
        keep = self._keyed(part.shape)
        for block in blocks:
            into = part if block.shape is part.shape else others.setdefault(block.shape.columns, _Part(block.shape))
            into.numbers.extend(block.numbers)
            if keep or into is not part:
                into.kept.append(block.text)
            if into is part:
                yield block.text

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
                if key_at_fault(error) is None:
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

    def _made(self, shape: Shape) -> list[str]:
        """Columns of the rows that are made here, in the place of their defaults."""
        return [column for column in self._makers if column not in shape.columns]

    def _statement(self, name: str, shape: Shape, **fragments: str) -> str:
        columns = ", ".join(quoted(column) for column in (*shape.columns, *self._made(shape), "state", "created_at"))
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


def key_at_fault(error: errors.UniqueViolation) -> str | None:
    """The idempotency key that exists already; None when another unique constraint refused the row."""
    found = re.search(r"\(idempotency_key\)=\((.*)\)", error.diag.message_detail or "", re.DOTALL)
    return found[1] if found else None
