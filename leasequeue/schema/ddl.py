"""Runs DDL on a live table: short transactions that give up on locks, and try again.

A statement that waits for an exclusive lock stops everybody who comes after it. So each waits at most `LOCK_TIMEOUT_MS`, the
transaction rolls back whole, and is tried again after a pause, until the deadline.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus

from leasequeue import sql as statements
from leasequeue.errors import BadInput, LeaseQueueError

T = TypeVar("T")
Conn = psycopg.Connection[Any]
Statement = sql.SQL | sql.Composed

LOCK_TIMEOUT_MS = 300
LOCK_DEADLINE_S = 60.0
SCAN_TIMEOUT_S = 3600
PAUSE_S = (0.2, 1.0)


class SchemaBusy(LeaseQueueError):
    """The table's lock could not be had in time, or another create or adopt runs. Nothing is half done: run it again."""


def render(statement: str, /, **parts: sql.Composable) -> sql.Composed:
    """The named statement with its placeholders filled in; identifiers are quoted, never pasted."""
    return sql.SQL(statements.text(statement)).format(**parts)


def raw(text: str) -> sql.SQL:
    """SQL text of our own (a default, a type checked before), never of a user."""
    return sql.SQL(text)


def require_own_connection(conn: Conn) -> None:
    """Refuse connections on which CREATE INDEX CONCURRENTLY and session locks cannot work.

    Raises:
        BadInput: inside a transaction, not autocommit, or behind a transaction pooler.
    """
    if not conn.autocommit or conn.info.transaction_status is not TransactionStatus.IDLE:
        raise BadInput("conn", "in a transaction", "schema changes need an autocommit connection outside a transaction")
    pid = conn.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    if pid is not None and pid[0] != conn.info.backend_pid:  # a pooler invents the id that it tells its client
        raise BadInput("conn", "pooled", "schema changes need a direct connection, not one through a transaction pooler")


@contextmanager
def turn(conn: Conn, key: str, deadline_s: float = LOCK_DEADLINE_S) -> Iterator[None]:
    """Hold the advisory lock of one name, so that only one create or adopt works on it at a time.

    Raises:
        SchemaBusy: somebody else held it until the deadline (seconds).
    """
    deadline = time.monotonic() + deadline_s
    while not _scalar(conn, "schema_lock", {"key": key}):
        if time.monotonic() > deadline:
            raise SchemaBusy(f"another create or adopt of {key} has been running for {deadline_s:.0f} s; wait for it")
        time.sleep(random.uniform(0.05, 0.25))
    try:
        yield
    finally:
        if not conn.closed:
            _scalar(conn, "schema_unlock", {"key": key})


def _scalar(conn: Conn, name: str, params: dict[str, Any]) -> Any:
    row = conn.execute(statements.text(name), params).fetchone()
    return row[0] if row else None


def short_transaction(conn: Conn, ddl: Sequence[Statement], *, oid: int | None, label: str) -> None:
    """Run statements that take an exclusive lock, in one transaction, retried until `LOCK_DEADLINE_S`.

    Raises:
        SchemaBusy: the lock was not to be had; names the processes that hold it.
    """

    def once() -> None:
        with conn.transaction():
            _limits(conn, LOCK_TIMEOUT_MS, 30)
            for statement in ddl:
                conn.execute(statement, prepare=False)

    patiently(conn, once, oid=oid, label=label)


def patiently(conn: Conn, once: Callable[[], T], *, oid: int | None, label: str) -> T:
    """Call `once` again while it fails for a lock, with pauses, until `LOCK_DEADLINE_S`.

    Raises:
        SchemaBusy: still locked at the deadline.
    """
    deadline = time.monotonic() + LOCK_DEADLINE_S
    while True:
        try:
            return once()
        except (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure):
            if time.monotonic() > deadline:
                raise SchemaBusy(_busy(conn, oid, label)) from None
            time.sleep(random.uniform(*PAUSE_S))


def scan(conn: Conn, statement: Statement, params: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """Run a statement that may read the whole table under a harmless lock: up to `SCAN_TIMEOUT_S`. Returns its rows."""
    with conn.transaction():
        _limits(conn, 60_000, SCAN_TIMEOUT_S)
        cursor = conn.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def concurrently(conn: Conn) -> Iterator[None]:
    """Limits for CREATE and DROP INDEX CONCURRENTLY, which refuse transactions: set for the session, then put back.

    Their waits for old transactions hold up no reader and no writer, so they may be long.
    """
    conn.execute(f"SET lock_timeout = '{SCAN_TIMEOUT_S}s'")
    conn.execute(f"SET statement_timeout = '{SCAN_TIMEOUT_S}s'")
    try:
        yield
    finally:
        if not conn.closed:
            conn.execute("RESET lock_timeout")
            conn.execute("RESET statement_timeout")


def _limits(conn: Conn, lock_timeout_ms: int, statement_timeout_s: int) -> None:
    conn.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")  # whatever the role's or the database's default is
    limits = {"lock_timeout": f"{lock_timeout_ms}ms", "statement_timeout": f"{statement_timeout_s}s"}
    conn.execute(statements.text("schema_limits"), limits)


def _busy(conn: Conn, oid: int | None, label: str) -> str:
    holders = ""
    if oid is not None:
        rows = conn.execute(statements.text("schema_blockers"), {"oid": oid}).fetchall()
        holders = "; held by " + ", ".join(f"pid {pid} ({who}, {age} s)" for pid, age, who in rows) if rows else ""
    return (
        f"table {label}: no exclusive lock within {LOCK_DEADLINE_S:.0f} s (tries of {LOCK_TIMEOUT_MS} ms each, so that "
        f"nobody queues behind them){holders}. End the long transactions or run again at a quieter time."
    )
