"""Upkeep that the reclaimer runs (and workers help with): reclaim, promote, defer, prune. Each call is one page, one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from leasequeue.arrays import text_array
from leasequeue.config import LeaseConfig
from leasequeue.errors import BadInput
from leasequeue.rows import Result
from leasequeue.run import Flow, Operation, Query, one
from leasequeue.spare import Page, Pages, Refused, Skips, sparing
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
    """One page of reclaimed items. `full`: there may be more. `refused`: items that the database would not let us change."""

    items: list[ReclaimedItem]
    full: bool
    refused: Sequence[Refused] = ()

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


def reclaim_flow(table: Table, *, config: LeaseConfig, skips: Skips | None = None) -> Flow[Reclaimed]:
    """Flow behind `reclaim`."""
    params = {
        "reclaim_after_s": float(config.reclaim_after_s),
        "lease_ms": config.lock_timeout_ms,
        "max_crashes": config.max_crashes,
        "n": config.reclaim_batch,
    }
    pages = yield from rows_of(table, "reclaim", params, skips)
    items = [ReclaimedItem(row[0], State(row[1]), *row[2:]) for result in pages.done for row in result.rows]
    return Reclaimed(items, len(items) == config.reclaim_batch, pages.refused)


def rows_of(
    table: Table, name: str, params: Mapping[str, Any], skips: Skips | None, *, verb: str = "", free_plans: bool = False
) -> Flow[Pages[Result]]:
    """Run a statement about a page of rows, sparing the others where one refuses.

    Args:
        table: the queue.
        name: the statement; takes `%(skip)s`.
        params: its other parameters.
        skips: what to pass over; None for this call alone.
        verb: its name in reports, by default `name`.
        free_plans: as of `Operation`.
    """
    skips = Skips() if skips is None else skips
    given = {**params, "skip": text_array(skips.ids())}
    whole, look = Query(table.sql(name), given), Query(table.looking(name), given)

    def operation(query: Query) -> Operation[Result]:
        return Operation(lambda: one(query), free_plans=free_plans)

    def only(ids: str) -> Operation[Result]:
        return operation(Query(table.only(name), {**given, "only": ids}))

    return sparing(Page(verb or name, lambda: operation(whole), lambda: operation(look), only), skips)


def _page_flow(table: Table, name: str, limit: int, skips: Skips | None, *, verb: str = "", **params: Any) -> Flow[int]:
    given = {"n": check_page(limit), **params}
    pages = yield from rows_of(table, name, given, skips, verb=verb, free_plans=name == "prune")
    return sum(len(result.rows) for result in pages.done)


def promote_flow(table: Table, *, limit: int = 500, skips: Skips | None = None) -> Flow[int]:
    """Flow behind `promote`."""
    return _page_flow(table, "promote", limit, skips)


def defer_flow(table: Table, *, limit: int = 500, skips: Skips | None = None) -> Flow[int]:
    """Flow behind `defer`."""
    return _page_flow(table, "defer_strict" if table.strict else "defer", limit, skips, verb="defer")


def prune_flow(table: Table, *, older_than_s: float, limit: int = 1_000, skips: Skips | None = None) -> Flow[int]:
    """Flow behind `prune`."""
    if not older_than_s > 0:
        raise BadInput("older_than_s", older_than_s, "must be more than 0 seconds")
    return _page_flow(table, "prune", limit, skips, older_than_s=float(older_than_s))
