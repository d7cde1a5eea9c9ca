"""Enqueue: add items in order, each idempotency key once, in the caller's transaction or one of our own.

`enqueue` is for the items of one event, up to 10,000 in a call; `enqueue_many` streams any number through COPY.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import psycopg
from psycopg.rows import tuple_row

from leasequeue import tracing
from leasequeue.encode import RowEncoder, Shape, Texts
from leasequeue.errors import BadInput, LeaseQueueError
from leasequeue.rows import Result
from leasequeue.run import RETRIED, Batch, Flow, Operation, Query, Steps, arun, callers_transaction, one, run, single
from leasequeue.table import Table, quoted

OnDuplicate = Literal["skip", "error"]

MAX_ROWS = 10_000
ROUNDS = 3
# An insert waits for another transaction that holds the same key; that is the caller's work, not a row to skip.
LOCK_TIMEOUT_MS = 5_000
STATEMENT_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Enqueued:
    """One given row: id of its item, and whether this call created it (False: its key was there before)."""

    id: Any
    created: bool


class DuplicateKey(LeaseQueueError):
    """`on_duplicate="error"`: a key exists already (or twice in one call). Nothing was enqueued; a caller's own transaction
    must roll back.

    Args:
        key: the idempotency key.
        id: id of the item that holds it; None where it is not known.
    """

    def __init__(self, key: str, item_id: Any = None) -> None:
        self.key, self.id = key, item_id
        held = f"by item {item_id}" if item_id is not None else "already"
        super().__init__(f"idempotency_key={key!r} is held {held}; nothing was enqueued (--on-duplicate skip passes over it)")


def enqueue(
    conn: psycopg.Connection[Any],
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    on_duplicate: OnDuplicate = "skip",
    notify: bool = True,
    where: Callable[[int], str] = "row {}".format,
) -> list[Enqueued]:
    """Add items; all of them or none.

    Args:
        conn: a connection; inside a transaction the items belong to that transaction (transactional outbox).
        table: the queue.
        rows: column → value, at most 10,000 (see `enqueue_many`). Of the lease columns a row may give id, idempotency_key,
            priority, run_at, lane, trace_id, source_hash; a run_at of the future makes it SCHEDULED.
        on_duplicate: `skip` gives the id of the item that holds the key; `error` enqueues nothing then.
        notify: wake listeners when the transaction commits.
        where: names a row by its number, for errors.

    Returns:
        One answer a row, in the order given. created_at rises strictly in that order.

    Raises:
        BadInput: a row does not fit the table; names row, column and value.
        DuplicateKey: see `on_duplicate`.
        psycopg.Error: the database refused the rows (a constraint of the table's own) or did not answer.
    """
    inside, met = callers_transaction(conn), False
    if len(rows) == 1 and tracing.active() is None:
        check_on_duplicate(on_duplicate)
        try:
            added = _add_at_once(conn, table, rows[0], notify=notify, inside=inside, where=where)
        except RETRIED:
            if inside:
                raise
        else:
            if added is not None:
                return [added]
            met = True
    return run(conn, enqueue_flow(table, rows, on_duplicate=on_duplicate, notify=notify, inside=inside, met=met, where=where))


def _add_at_once(
    conn: psycopg.Connection[Any],
    table: Table,
    row: Mapping[str, Any],
    *,
    notify: bool,
    inside: bool,
    where: Callable[[int], str],
) -> Enqueued | None:
    """The usual call, one new row, without the flow around it, which costs as much again; None where no row was added."""
    shape, texts = RowEncoder.of(table).encode(row, 1, where)
    query = _insert_one(table, shape, texts, notify=notify, inside=inside)
    made = conn.cursor(row_factory=tuple_row).execute(query.text, query.params).fetchone()
    return None if made is None else Enqueued(made[0], created=True)


async def aenqueue(
    conn: psycopg.AsyncConnection[Any],
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    on_duplicate: OnDuplicate = "skip",
    notify: bool = True,
) -> list[Enqueued]:
    """Async twin of `enqueue`."""
    inside = callers_transaction(conn)
    return await arun(conn, enqueue_flow(table, rows, on_duplicate=on_duplicate, notify=notify, inside=inside))


def enqueue_flow(
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    on_duplicate: OnDuplicate,
    notify: bool,
    inside: bool,
    met: bool = False,
    where: Callable[[int], str] = "row {}".format,
) -> Flow[list[Enqueued]]:
    """Flow behind `enqueue`. `inside`: in the caller's transaction. `met`: the only row was not added just now, most likely for its key."""
    check_on_duplicate(on_duplicate)
    if len(rows) > MAX_ROWS:
        raise BadInput("rows", len(rows), f"at most {MAX_ROWS} in one call; enqueue_many takes any number")
    if not rows:
        return []
    adding = partial(_add_flow, table, on_duplicate=on_duplicate, notify=notify, inside=inside, met=met, where=where)
    if tracing.active() is None:
        return (yield from adding(rows))
    rows, began_ns = tracing.stamped(rows), time.time_ns()
    added = yield from adding(rows)
    tracing.enqueued(table.label, [(row, a.id) for row, a in zip(rows, added, strict=True) if a.created], began_ns)
    return added


def _add_flow(
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    on_duplicate: OnDuplicate,
    notify: bool,
    inside: bool,
    met: bool,
    where: Callable[[int], str],
) -> Flow[list[Enqueued]]:
    encoder = RowEncoder.of(table)
    encoded = [encoder.encode(row, number, where) for number, row in enumerate(rows, 1)]
    if len(encoded) == 1:
        shape, texts = encoded[0]
        alone = None if met else (yield from _one_flow(table, shape, texts, notify=notify, inside=inside))
        if alone is None:
            alone = yield from _holder_flow(table, shape, texts, on_duplicate)
        if alone is not None:
            return [alone]
    adding = _Enqueue(table, rows, encoded, on_duplicate, notify)
    added: list[Enqueued] = yield Operation(
        adding.steps, lock_timeout_ms=LOCK_TIMEOUT_MS, statement_timeout_ms=STATEMENT_TIMEOUT_MS
    )
    return added


def check_on_duplicate(value: str) -> None:
    """Refuse anything but `skip` and `error`.

    Raises:
        BadInput: another value.
    """
    if value not in ("skip", "error"):
        raise BadInput("on_duplicate", value, "must be skip or error")


def notify_query(table: Table) -> Query:
    """Query that wakes listeners at commit."""
    return Query(table.sql("enqueue_notify"), {"channel": table.channel})


def insert_parts(columns: Sequence[str]) -> dict[str, str]:
    """Fragments of the INSERT for rows that give these columns."""
    names = [quoted(name) for name in columns]
    # A row may give no column at all; the statement then needs one whose default is the row's.
    given = bool(names)
    return {
        "columns": ", ".join(names) if given else quoted("lane"),
        "values": ", ".join(f"r.{name}" for name in names) if given else "NULL",
        "run_at": "r.run_at" if "run_at" in columns else "NULL::timestamptz",
    }


def _one_flow(table: Table, shape: Shape, texts: Texts, *, notify: bool, inside: bool) -> Flow[Enqueued | None]:
    """One row by one statement; None where it was not added."""
    insert = _insert_one(table, shape, texts, notify=notify, inside=inside)
    made: Result = yield Operation(
        lambda: one(insert), lock_timeout_ms=LOCK_TIMEOUT_MS, statement_timeout_ms=STATEMENT_TIMEOUT_MS, alone=True
    )
    return Enqueued(made.scalar, created=True) if made.rows else None


def _holder_flow(table: Table, shape: Shape, texts: Texts, on_duplicate: OnDuplicate) -> Flow[Enqueued | None]:
    """The holder of one row's key; None: there is none (a trigger swallowed the row, or the holder was deleted just now), which the general
    way sorts out."""
    if "idempotency_key" not in shape.columns:
        return None
    key = texts[shape.columns.index("idempotency_key")]
    holders = yield from single(existing_query(table, [key]))
    if not holders.rows:
        return None
    holder = holders.rows[0][1]
    if on_duplicate == "error":
        raise DuplicateKey(str(key), holder)
    return Enqueued(holder, created=False)


def _insert_one(table: Table, shape: Shape, texts: Texts, *, notify: bool, inside: bool) -> Query:
    name = f"enqueue_one {notify} {inside}"
    text = shape.statements.get(name)
    if text is None:
        text = shape.statements[name] = table.sql(
            "enqueue_one",
            columns=", ".join(map(quoted, shape.columns)) or quoted("lane"),
            values=", ".join(["%s"] * len(shape.columns)) or "NULL",
            bounds="" if inside else f"WHEN set_config('lock_timeout', '{LOCK_TIMEOUT_MS}ms', true) IS NULL THEN NULL",
            run_at="NULL" if shape.run_at is None else "%s",
            wake=f", pg_notify('{table.channel}', '')" if notify else "",
        )
    return Query(text, texts if shape.run_at is None else [*texts, texts[shape.run_at]])


def existing_query(table: Table, keys: list[str | None]) -> Query:
    """Query for the rows that hold these keys."""
    return Query(table.sql("enqueue_existing"), {"keys": keys})


@dataclass(frozen=True, slots=True)
class _Enqueue:
    """One call; `steps` may run more than once (retries), each time from the start."""

    table: Table
    rows: Sequence[Mapping[str, Any]]
    encoded: list[tuple[Shape, Texts]]
    on_duplicate: OnDuplicate
    notify: bool

    def steps(self) -> Steps[list[Enqueued]]:
        answers: list[Enqueued | None] = [None] * len(self.rows)
        for _ in range(ROUNDS):
            open_rows = [n for n, answer in enumerate(answers) if answer is None]
            runs = self._runs(open_rows)
            inserts = yield Batch(tuple(self._insert(numbers) for numbers in runs))
            for numbers, inserted in zip(runs, inserts, strict=True):
                self._note_created(answers, numbers, inserted)
            skipped = [n for n, answer in enumerate(answers) if answer is None]
            if not skipped:
                break
            (existing,) = yield Batch((self._existing(skipped),))
            self._note_existing(answers, skipped, existing)
            if all(answers):
                break
        else:  # a holder was deleted each time between the two statements
            raise LeaseQueueError(f"{self.table.label}: keys appear and vanish while they are enqueued; run it again")
        done = [answer for answer in answers if answer is not None]
        yield Batch(self._wake(any(answer.created for answer in done)), last=True)
        return done

    def _runs(self, numbers: list[int]) -> list[list[int]]:
        """Neighbouring rows that give the same columns: one INSERT each, so that the order given is the order made."""
        runs: list[list[int]] = []
        for n in numbers:
            if runs and self.encoded[runs[-1][-1]][0] is self.encoded[n][0]:
                runs[-1].append(n)
            else:
                runs.append([n])
        return runs

    def _insert(self, numbers: list[int]) -> Query:
        shape = self.encoded[numbers[0]][0]
        text = "[" + ",".join(shape.json(self.encoded[n][1]) for n in numbers) + "]"
        return Query(self.table.sql("enqueue", **insert_parts(shape.columns)), {"rows": text})

    def _note_created(self, answers: list[Enqueued | None], numbers: list[int], inserted: Result) -> None:
        """Inserted rows come back in order, less those whose key was there: walk both lists together."""
        made = sorted(inserted.rows, key=lambda row: row[2])
        position = 0
        for n in numbers:
            key = self.rows[n].get("idempotency_key")
            if position < len(made) and made[position][1] == key:
                answers[n] = Enqueued(made[position][0], created=True)
                position += 1
        if position != len(made):
            raise LeaseQueueError(f"{self.table.label}: a trigger changes idempotency_key at INSERT; rows cannot be told apart")

    def _existing(self, numbers: list[int]) -> Query:
        keys = [self.rows[n].get("idempotency_key") for n in numbers]
        if None in keys:
            raise LeaseQueueError(f"{self.table.label}: a trigger of the table keeps rows from being inserted")
        return existing_query(self.table, keys)

    def _note_existing(self, answers: list[Enqueued | None], numbers: list[int], existing: Result) -> None:
        holders = dict(existing.rows)
        for n in numbers:
            key = self.rows[n]["idempotency_key"]
            if self.on_duplicate == "error":
                twice = sum(row.get("idempotency_key") == key for row in self.rows) > 1
                raise DuplicateKey(key, None if twice else holders.get(key))
            if key in holders:
                answers[n] = Enqueued(holders[key], created=False)

    def _wake(self, created: bool) -> tuple[Query, ...]:
        return (notify_query(self.table),) if self.notify and created else ()
