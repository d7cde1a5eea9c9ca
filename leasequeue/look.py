"""Looking at items: lists by state, one item with its audit log. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from leasequeue.errors import BadInput
from leasequeue.item import Item, column_index
from leasequeue.maintain import check_page
from leasequeue.rows import Result
from leasequeue.run import Flow, Operation, Query, arun, one, run
from leasequeue.states import State
from leasequeue.table import Table

# What needs a look first comes first; finished items, which may be millions, last.
ORDER = (State.ASSIGNED, State.REPAIR, State.FAILED, State.PENDING, State.SCHEDULED, State.RESOLVED)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that a person did to an item."""

    at: Any
    actor: str
    action: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """One item and what people did to it, oldest first."""

    item: Item
    audit: list[AuditEntry]


def list_items(
    conn: psycopg.Connection[Any],
    table: Table,
    *,
    states: Sequence[State] = ORDER,
    lane: str | None = None,
    worker_id: str | None = None,
    limit: int = 50,
) -> list[Item]:
    """Items by state: leased by worker, waiting in claim order, scheduled by due time, others oldest first.

    Args:
        conn: a connection.
        table: the queue.
        states: which states, in the order to list them.
        lane: only items of this lane.
        worker_id: only items that this worker holds or completed.
        limit: most items, 1 to 10,000.

    Raises:
        BadInput: the limit is out of range.
    """
    return run(conn, list_flow(table, states=states, lane=lane, worker_id=worker_id, limit=limit))


async def alist_items(
    conn: psycopg.AsyncConnection[Any],
    table: Table,
    *,
    states: Sequence[State] = ORDER,
    lane: str | None = None,
    worker_id: str | None = None,
    limit: int = 50,
) -> list[Item]:
    """Async twin of `list_items`."""
    return await arun(conn, list_flow(table, states=states, lane=lane, worker_id=worker_id, limit=limit))


def list_flow(
    table: Table, *, states: Sequence[State], lane: str | None, worker_id: str | None, limit: int
) -> Flow[list[Item]]:
    """Flow behind `list_items`: one statement a state, each read from the front of its own index."""
    room = check_page(limit)
    items: list[Item] = []
    for state in states:
        if room == 0:
            break
        page = yield from _page(table, state, {"lane": lane, "worker_id": worker_id, "n": room})
        items += page
        room -= len(page)
    return items


def _page(table: Table, state: State, params: dict[str, Any]) -> Flow[list[Item]]:
    query = Query(table.sql(f"list_{state.value.lower()}"), params)
    result: Result = yield Operation(lambda: one(query), durable=False, free_plans=state is State.RESOLVED)
    index = column_index(result.names)
    return [Item(index, row) for row in result.rows]


def show(conn: psycopg.Connection[Any], table: Table, *, item_id: Any = None, key: str | None = None) -> Shown | None:
    """One item with its audit log, or None.

    Args:
        conn: a connection.
        table: the queue.
        item_id: its id, or
        key: its idempotency key.

    Raises:
        BadInput: not exactly one of the two.
    """
    return run(conn, show_flow(table, item_id=item_id, key=key))


async def ashow(
    conn: psycopg.AsyncConnection[Any], table: Table, *, item_id: Any = None, key: str | None = None
) -> Shown | None:
    """Async twin of `show`."""
    return await arun(conn, show_flow(table, item_id=item_id, key=key))


def show_flow(table: Table, *, item_id: Any, key: str | None) -> Flow[Shown | None]:
    """Flow behind `show`."""
    if (item_id is None) == (key is None):
        raise BadInput("id", item_id, "give exactly one of an id and an idempotency key")
    statement = "show_by_id" if key is None else "show_by_key"
    found_query = Query(table.sql(statement), {"id": item_id, "key": key})
    found: Result = yield Operation(lambda: one(found_query), durable=False)
    if not found.rows:
        return None
    item = Item(column_index(found.names), found.rows[0])
    audit_query = Query(table.sql("show_audit"), {"queue": table.oid, "item_id": str(item.id)})
    audit: Result = yield Operation(lambda: one(audit_query), durable=False)
    return Shown(item, [AuditEntry(*row) for row in audit.rows])
