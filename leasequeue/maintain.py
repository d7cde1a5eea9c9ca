"""Upkeep that the reclaimer runs (and workers help with): reclaim, promote, defer, prune. Each call is one page, one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from leasequeue.config import LeaseConfig
from leasequeue.errors import BadInput
from leasequeue.rows import Result
from leasequeue.run import Flow, Operation, Query, one
from leasequeue.states import State
from leasequeue.table import Table

MAX_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class ReclaimedItem:
    """An item taken back from a worker that neither finished nor renewed it; `state` is PENDING or REPAIR."""

    id: Any
    state: State
    leased_by: str | None
    trace_id: UUID | None
    source_hash: str | None
    idempotency_key: str | None
    attempt: int
    crash_count: int


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """One page of reclaimed items. `full`: there may be more."""

    items: list[ReclaimedItem]
    full: bool

    @property
    def repaired(self) -> int:
        """How many went to REPAIR."""
        return sum(item.state is State.REPAIR for item in self.items)


def check_page(n: int) -> int:
    """Return a page size within 1 to 10,000.

    Raises:
        BadInput: out of range.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_PAGE:
        raise BadInput("limit", n, f"must be a whole number of items from 1 to {MAX_PAGE}")
    return n


def reclaim_flow(table: Table, *, config: LeaseConfig) -> Flow[Reclaimed]:
    """Flow behind `reclaim`."""
    query = Query(
        table.sql("reclaim"),
        {
            "reclaim_after_s": float(config.reclaim_after_s),
            "lease_ms": config.lock_timeout_ms,
            "max_crashes": config.max_crashes,
            "n": config.reclaim_batch,
        },
    )
    result: Result = yield Operation(lambda: one(query))
    items = [ReclaimedItem(row[0], State(row[1]), *row[2:]) for row in result.rows]
    return Reclaimed(items, len(items) == config.reclaim_batch)


def _page_flow(table: Table, statement: str, limit: int, **params: Any) -> Flow[int]:
    query = Query(table.sql(statement), {"n": check_page(limit), **params})
    result: Result = yield Operation(lambda: one(query), free_plans=statement == "prune")
    return len(result.rows)


def promote_flow(table: Table, *, limit: int = 500) -> Flow[int]:
    """Flow behind `promote`."""
    return _page_flow(table, "promote", limit)


def defer_flow(table: Table, *, limit: int = 500) -> Flow[int]:
    """Flow behind `defer`."""
    return _page_flow(table, "defer_strict" if table.strict else "defer", limit)


def prune_flow(table: Table, *, older_than_s: float, limit: int = 1_000) -> Flow[int]:
    """Flow behind `prune`."""
    if not older_than_s > 0:
        raise BadInput("older_than_s", older_than_s, "must be more than 0 seconds")
    return _page_flow(table, "prune", limit, older_than_s=float(older_than_s))
