"""What some lanes of a table hold: the depth that counts for whoever serves these lanes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from leasequeue.config import BlockedHead
from leasequeue.rows import Result, in_utc
from leasequeue.run import Flow, Operation, Query, arun, one
from leasequeue.sample import COUNT_CAP
from leasequeue.table import Table


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """The named lanes together, at one moment.

    Args:
        pending: due PENDING items, capped at `COUNT_CAP`.
        scheduled_due: SCHEDULED items whose time has come.
        assigned: items in flight.
        expired: of them past their expiry.
        claimable: items that could be taken at the same time now: where lanes are strict, one a lane whose head is free.
        oldest_pending_at: created_at of the oldest due PENDING item.
    """

    pending: int
    scheduled_due: int
    assigned: int
    expired: int
    claimable: int
    oldest_pending_at: datetime | None


def lane_depth_flow(table: Table, lanes: Sequence[str], *, strict: BlockedHead | None = None) -> Flow[LaneDepth]:
    """Flow behind `alane_depth`."""
    params = {"lanes": list(lanes), "cap": COUNT_CAP, "pass": strict == "Pass"}
    query = Query(table.sql("lane_depth"), params)
    result: Result = yield Operation(lambda: one(query), durable=False, statement_timeout_ms=2_000)
    row: dict[str, Any] = result.dicts()[0]
    pending, later = row["pending"], row["scheduled_due"]
    claimable = row["claimable"] if strict is not None or table.strict else pending + later
    return LaneDepth(pending, later, row["assigned"], row["expired"], claimable, in_utc(row["oldest_pending_at"]))


async def alane_depth(
    conn: psycopg.AsyncConnection[Any], table: Table, lanes: Sequence[str], *, strict: BlockedHead | None = None
) -> LaneDepth:
    """What these lanes hold.

    Args:
        conn: a connection.
        table: the queue.
        lanes: the lanes, by name.
        strict: what a blocked head does; None where lanes are not strict.
    """
    return await arun(conn, lane_depth_flow(table, lanes, strict=strict))
