"""`leasequeue enqueue`: JSON lines into a queue."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import IO, Any

import click
import psycopg

from leasequeue import jsonio
from leasequeue.bulk import enqueue_many
from leasequeue.cli.options import Target, target
from leasequeue.cli.output import print_json, say
from leasequeue.enqueue import OnDuplicate, enqueue
from leasequeue.errors import BadInput
from leasequeue.load import PART_ROWS
from leasequeue.table import Table

# Up to here the answer names each item; beyond, COPY streams the rows and the answer counts them.
SMALL_ROWS = 1_000
NumberedRow = tuple[int, Mapping[str, Any]]
PROGRESS_EVERY_S = 2.0


@click.command("enqueue")
@target
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--on-duplicate", type=click.Choice(["skip", "error"]), default="skip", show_default=True, help="What an idempotency_key that exists already does.")  # fmt: skip
@click.option("--chunk", type=click.IntRange(min=1), metavar="N", help="Commit after N rows each; without it the load is all or nothing.")  # fmt: skip
def enqueue_command(target: Target, file: IO[str], on_duplicate: OnDuplicate, chunk: int | None) -> int:
    """Add items from FILE (- reads stdin): JSON lines, one object a row, column to value.

    Amounts and 64-bit ids may be JSON strings. Of the lease columns a row may give id, idempotency_key, priority, run_at, lane,
    trace_id and source_hash; a run_at of the future makes it SCHEDULED. An unknown column is refused with its line number.
    """
    lines = numbered_rows(file)
    with target.queue() as (conn, table):
        first = list(islice(lines, SMALL_ROWS + 1))
        if len(first) <= SMALL_ROWS and chunk is None:
            return _add_few(conn, table, first, on_duplicate, target)
        return _add_many(conn, table, chain(first, lines), on_duplicate, chunk, target)


def numbered_rows(file: IO[str]) -> Iterator[NumberedRow]:
    """Line number and row of each line that is not blank.

    Raises:
        BadInput: names the line that is no JSON, or no UTF-8.
    """
    number = 0
    try:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _row(number, line)
    except UnicodeDecodeError:
        raise BadInput(f"line {number + 1}", "", "is not UTF-8") from None


def _row(number: int, line: str) -> Mapping[str, Any]:
    try:
        row: Mapping[str, Any] = jsonio.loads(line, distinct=True)
    except BadInput as ex:
        raise BadInput(f"line {number}", ex.value, ex.problem) from None
    return row


def _add_few(
    conn: psycopg.Connection[Any], table: Table, pairs: list[NumberedRow], on_duplicate: OnDuplicate, target: Target
) -> int:
    numbers = [number for number, _ in pairs]
    rows = [row for _, row in pairs]
    added = enqueue(conn, table, rows, on_duplicate=on_duplicate, where=lambda n: f"line {numbers[n - 1]}")
    items = [{"id": one.id, "created": one.created} for one in added]
    _tell(len(added), sum(one.created for one in added), target, items=items)
    return 0


def _add_many(
    conn: psycopg.Connection[Any],
    table: Table,
    pairs: Iterable[NumberedRow],
    on_duplicate: OnDuplicate,
    chunk: int | None,
    target: Target,
) -> int:
    lines = Lines()
    loaded = enqueue_many(
        conn,
        table,
        lines.rows(pairs),
        chunk=chunk,
        on_duplicate=on_duplicate,
        progress=None if target.as_json else Progress(),
        where=lines.where,
    )
    _tell(loaded.rows, loaded.created, target)
    return 0


class Lines:
    """Lines of the rows read last: a load may refuse one some time after it was read."""

    def __init__(self) -> None:
        self._last: deque[int] = deque(maxlen=2 * PART_ROWS)
        self._read = 0

    def rows(self, pairs: Iterable[NumberedRow]) -> Iterator[Mapping[str, Any]]:
        """The rows, whose lines are remembered on the way."""
        for line, row in pairs:
            self._last.append(line)
            self._read += 1
            yield row

    def where(self, row: int) -> str:
        """Where a row stands, by its number from 1."""
        return f"line {self._last[row - 1 - self._read + len(self._last)]}"


class Progress:
    """Says on stderr how many rows were read, every few seconds."""

    def __init__(self) -> None:
        self._due = time.monotonic() + PROGRESS_EVERY_S

    def __call__(self, rows: int) -> None:
        """Take the number of rows read so far."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + PROGRESS_EVERY_S
            click.echo(f"{rows} rows read", err=True)


def _tell(rows: int, created: int, target: Target, **more: Any) -> None:
    if target.as_json:
        print_json({"rows": rows, "created": created, "duplicates": rows - created, **more})
    else:
        say(f"{created} items enqueued, {rows - created} were there before")
