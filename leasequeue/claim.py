"""Claim: lease due rows to a worker, in order, never one row to two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Literal

from leasequeue.arrays import text_array
from leasequeue.config import SETTINGS, LeaseConfig
from leasequeue.errors import BadInput
from leasequeue.item import Item, column_index
from leasequeue.mark import WHOLE, ClaimMark
from leasequeue.rows import Result
from leasequeue.run import Batch, Flow, Operation, Query, Steps
from leasequeue.table import Table

Admission = Literal["open", "cordoned", "unregistered"]
# Advisory locks share one key space with everybody: the upper half marks ours ("LQ" and the use), the lower is the table's oid.
CEILING_CLASS = 0x4C510001
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim brought.

    Args:
        items: leased items, in claim order.
        admission: `cordoned` or `unregistered` say why a registered claim brought nothing.
        full: as many as were asked for.
    """

    items: list[Item]
    admission: Admission
    full: bool


def claim_flow(
    table: Table,
    *,
    worker_id: str,
    n: int,
    config: LeaseConfig,
    lanes: Sequence[str] | None = None,
    mark: ClaimMark | None = None,
    registered: bool = False,
) -> Flow[Claimed]:
    """Flow behind `claim`; see there."""
    if not worker_id:
        raise BadInput("worker_id", worker_id, "is empty")
    n = SETTINGS["batch_size"].check(n)
    claiming = _Claim(table, worker_id, n, config, list(lanes) if lanes else None, mark, registered)
    claimed: Claimed = yield Operation(
        claiming.steps,
        durable=config.max_inflight_policy == "Enforce" or config.strict_lanes,
        one_plan=lanes is None and not config.strict_lanes,
    )
    return claimed


@dataclass(frozen=True, slots=True)
class _Claim:
    """One claim; `steps` may run more than once (retries), each time from the start."""

    table: Table
    worker_id: str
    n: int
    config: LeaseConfig
    lanes: list[str] | None
    mark: ClaimMark | None
    registered: bool

    def steps(self) -> Steps[Claimed]:
        first = self._first()
        if self.config.strict_lanes:
            results = yield Batch((*first, self._lane_lock()))
            held = results[-1].column("lane")
            (leased,) = yield Batch((self._strict(held),), last=True)
            results.append(leased)
        else:
            results = yield Batch((*first, self._plain()), last=True)
        return self._claimed(results)

    def _first(self) -> list[Query]:
        """Locks that must be held before the claim's snapshot is taken."""
        queries = []
        if self.registered:
            queries.append(Query(self.table.sql("claim_admission"), self._identity()))
        if self.config.max_inflight_policy == "Enforce":
            key = CEILING_CLASS << 32 | self.table.oid
            queries.append(Query(self.table.sql("claim_ceiling"), {"ceiling_key": key}))
        return queries

    def _identity(self) -> dict[str, Any]:
        return {"queue": self.table.oid, "worker_id": self.worker_id}

    def _common(self) -> dict[str, Any]:
        enforced = self.config.max_inflight_policy == "Enforce"
        return {
            **self._identity(),
            "lease_ms": self.config.lock_timeout_ms,
            "n": self.n,
            "registered": self.registered,
            "max_inflight": self.config.max_inflight if enforced else None,
        }

    def _plain(self) -> Query:
        if self.lanes is not None:
            return Query(self.table.sql("claim_lanes"), {**self._common(), "lanes": self.lanes})
        segments = self.mark.segments() if self.mark else WHOLE
        ranges = {
            "after_neg": text_array(segments.after_neg),
            "after_at": text_array(segments.after_at),
            "after_id": text_array(segments.after_id),
            "upto_neg": text_array(segments.upto_neg),
        }
        return Query(self.table.sql("claim"), {**self._common(), **ranges})

    def _lane_lock(self) -> Query:
        return Query(
            self.table.sql("lane_lock"),
            {"queue": self.table.oid, "lanes": self.lanes, "pass": self.config.on_blocked_head == "Pass", "n": self.n},
        )

    def _strict(self, held: list[str]) -> Query:
        return Query(
            self.table.sql("claim_strict"),
            {
                **self._common(),
                "lanes": held,
                "pass": self.config.on_blocked_head == "Pass",
                "unlaned": self.lanes is None,
            },
        )

    def _claimed(self, results: list[Result]) -> Claimed:
        leased = results[-1]
        index = column_index(leased.names)
        rows = leased.rows
        if len(rows) > self.n:  # the statement forbids it; a planner bug must not go unseen
            raise RuntimeError(f"claim of {self.table.label} returned {len(rows)} rows for n={self.n}")
        # RETURNING has no order. Two stable sorts: created_at and id, then priority falling. Times as distances from one in UTC, since
        # Python compares two times of one zone by their wall clocks, which run backwards once a year.
        at, item_id = index["created_at"], index["id"]
        rows.sort(key=lambda row: (row[at] - EPOCH, row[item_id]))
        rows.sort(key=itemgetter(index["priority"]), reverse=True)
        items = [Item(index, row) for row in rows]
        if self.mark and self.lanes is None and not self.config.strict_lanes:
            self.mark.advance(items, self.n)
        return Claimed(items, self._admission(results[0]), len(items) == self.n)

    def _admission(self, first: Result) -> Admission:
        if not self.registered:
            return "open"
        if not first.rows:
            return "unregistered"
        return "cordoned" if first.scalar else "open"
