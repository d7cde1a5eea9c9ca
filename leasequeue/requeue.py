"""Requeue: a person gives FAILED and REPAIR items a fresh start; who and why goes to the audit log in the same statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from leasequeue.errors import BadInput
from leasequeue.fence import clean_error
from leasequeue.maintain import check_page
from leasequeue.rows import Result
from leasequeue.run import Flow, Operation, Query, arun, one, run
from leasequeue.states import State
from leasequeue.table import Table

REQUEUED_FROM = (State.FAILED, State.REPAIR)
LOCK_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class Requeued:
    """One item that is PENDING again, and the state it was in."""

    id: Any
    was: State


def requeue(
    conn: psycopg.Connection[Any],
    table: Table,
    *,
    ids: Sequence[Any] | None,
    actor: str,
    reason: str,
    states: Sequence[State] = REQUEUED_FROM,
    limit: int = 1_000,
) -> list[Requeued]:
    """Put items back to PENDING with attempt and crash_count 0, due now.

    Args:
        conn: a connection.
        table: the queue.
        ids: the items; None for all in `states`, a page at a time.
        actor: who asks, for the audit log.
        reason: why, for the audit log.
        states: FAILED, REPAIR or both; items in other states are left alone.
        limit: most items of this call, 1 to 10,000.

    Returns:
        The items that moved.

    Raises:
        BadInput: no actor, no reason, another state, or a limit out of range.
    """
    return run(conn, requeue_flow(table, ids=ids, actor=actor, reason=reason, states=states, limit=limit))


async def arequeue(
    conn: psycopg.AsyncConnection[Any],
    table: Table,
    *,
    ids: Sequence[Any] | None,
    actor: str,
    reason: str,
    states: Sequence[State] = REQUEUED_FROM,
    limit: int = 1_000,
) -> list[Requeued]:
    """Async twin of `requeue`."""
    return await arun(conn, requeue_flow(table, ids=ids, actor=actor, reason=reason, states=states, limit=limit))


def requeue_flow(
    table: Table, *, ids: Sequence[Any] | None, actor: str, reason: str, states: Sequence[State], limit: int
) -> Flow[list[Requeued]]:
    """Flow behind `requeue`."""
    for field, value in (("actor", actor), ("reason", reason)):
        if not value.strip():
            raise BadInput(field, value, "is empty; the audit log says who and why")
    for state in states:
        if state not in REQUEUED_FROM:
            raise BadInput("state", str(state), "must be FAILED or REPAIR; other items are not requeued")
    params = {
        "ids": None if ids is None else list(ids),
        "states": [str(state) for state in states],
        "queue": table.oid,
        "actor": clean_error(actor),
        "reason": clean_error(reason),
        "n": check_page(limit),
    }
    query = Query(table.sql("requeue"), params)
    moved: Result = yield Operation(lambda: one(query), lock_timeout_ms=LOCK_TIMEOUT_MS)
    return [Requeued(row[0], State(row[1])) for row in moved.rows]
