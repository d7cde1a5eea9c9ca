"""Facts about queues, read in one grouped query: what stats, the operator's scaling, its status and its metrics are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from leasequeue.config import BlockedHead
from leasequeue.rows import Result, in_utc
from leasequeue.run import Flow, Operation, Query, one
from leasequeue.states import State
from leasequeue.table import Table

COUNT_CAP = 1_000_000  # beyond it no decision changes; an index-only count of this many takes about 0.1 s


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """Strict lanes at one moment.

    Args:
        unlaned: PENDING items without a lane, capped.
        claimable: lanes whose head may be claimed now.
        blocked: lanes whose head needs a person (FAILED or REPAIR).
        later: lanes whose head is not due yet.
        busy: lanes with an item in flight.
    """

    unlaned: int
    claimable: int
    blocked: int
    later: int
    busy: int


@dataclass(frozen=True, slots=True)
class Stats:
    """One queue at one moment of the database's clock.

    Args:
        now: database clock.
        counts: items per state, all six, zeros included; PENDING and SCHEDULED are capped at `COUNT_CAP`.
        resolved_exact: False when RESOLVED is an estimate from the planner's statistics (tables over 64 MB).
        scheduled_due: SCHEDULED items whose time has come, capped.
        expired: ASSIGNED items past their expiry.
        oldest_expired_at: expiry of the lease that ended first and is still ASSIGNED.
        oldest_pending_at: created_at of the oldest due PENDING item.
        next_due_at: earliest run_at among SCHEDULED.
        claimed_total, finished_total, lost_total, busy_ms_total: cumulative over all processes, ended ones included.
        reclaimed_total, repaired_total: cumulative over all sweeps.
        swept_at: last sweep that ended well.
        workers, workers_busy, workers_cordoned: processes seen in the last 30 s.
        held: items that live processes say they hold.
        lanes: where lanes are strict, what they are at.
    """

    now: datetime
    counts: Mapping[State, int]
    resolved_exact: bool
    scheduled_due: int
    expired: int
    oldest_expired_at: datetime | None
    oldest_pending_at: datetime | None
    next_due_at: datetime | None
    claimed_total: int
    finished_total: int
    lost_total: int
    busy_ms_total: int
    reclaimed_total: int
    repaired_total: int
    swept_at: datetime | None
    workers: int
    workers_busy: int
    workers_cordoned: int
    held: int
    lanes: LaneFacts | None = None

    @property
    def assigned(self) -> int:
        """Items in flight."""
        return self.counts[State.ASSIGNED]

    @property
    def due(self) -> int:
        """Items that a worker could take now: PENDING, and SCHEDULED whose time has come."""
        return self.counts[State.PENDING] + self.scheduled_due

    @property
    def claimable(self) -> int:
        """Items that could be taken at the same time now: all due ones, but of strict lanes one each."""
        if self.lanes is None:
            return self.due
        return self.lanes.unlaned + self.lanes.claimable

    @property
    def idle(self) -> bool:
        """Nothing due and nothing in flight."""
        return self.due == 0 and self.assigned == 0


def sample_query(tables: Sequence[Table], strict: Mapping[int, BlockedHead] | None = None, cap: int = COUNT_CAP) -> Query:
    """One read-only query for all the given queues of one database."""
    texts = [_part(n, table, (strict or {}).get(table.oid)) for n, table in enumerate(tables)]
    params: dict[str, Any] = {f"queue_{n}": table.oid for n, table in enumerate(tables)}
    return Query("\nUNION ALL\n".join(texts), {**params, "cap": cap})


def _part(n: int, table: Table, blocked_head: BlockedHead | None) -> str:
    if blocked_head is None and table.strict:
        blocked_head = "Block"  # the claim index holds no rows in lanes: they are counted lane by lane, whoever asks
    if blocked_head is None:
        return table.sql("sample", n=str(n), unlaned="", lane_facts="NULL::jsonb")
    lane_facts = table.sql("sample_lanes", **{"pass": "true" if blocked_head == "Pass" else "false"})
    return table.sql("sample", n=str(n), unlaned=" AND c.lane IS NULL", lane_facts=lane_facts)


def stats_of(row: Mapping[str, Any]) -> Stats:
    """Build `Stats` from a row of sample.sql."""
    laned = row["lane_facts"] or {}
    pending = row["pending"] + laned.get("pending", 0)
    others = pending + sum(row[k] for k in ("assigned", "scheduled", "failed", "repair"))
    exact = row["resolved_exact"]
    resolved = exact if exact is not None else max(0, row["rows_estimate"] - others)
    counts = {
        State.PENDING: pending,
        State.ASSIGNED: row["assigned"],
        State.RESOLVED: resolved,
        State.SCHEDULED: row["scheduled"],
        State.FAILED: row["failed"],
        State.REPAIR: row["repair"],
    }
    totals = {
        "claimed_total": (row["claimed_total"] or 0) + row["live_claimed"],
        "finished_total": (row["finished_total"] or 0) + row["live_finished"],
        "lost_total": (row["lost_total"] or 0) + row["live_lost"],
        "busy_ms_total": (row["busy_ms_total"] or 0) + row["live_busy_ms"],
        "reclaimed_total": row["reclaimed_total"] or 0,
        "repaired_total": row["repaired_total"] or 0,
    }
    same = ("scheduled_due", "expired", "workers", "workers_busy", "workers_cordoned", "held")
    times = ("now", "oldest_expired_at", "oldest_pending_at", "next_due_at", "swept_at")
    facts: dict[str, Any] = {k: row[k] for k in same} | {k: in_utc(row[k]) for k in times}
    facts["oldest_pending_at"] = _earlier(facts["oldest_pending_at"], laned.get("oldest"))
    return Stats(counts=counts, resolved_exact=exact is not None, **totals, **facts, lanes=_lane_facts(row))


def _earlier(unlaned: datetime | None, laned_epoch: float | None) -> datetime | None:
    laned = None if laned_epoch is None else datetime.fromtimestamp(float(laned_epoch), UTC)
    known = [at for at in (unlaned, laned) if at is not None]
    return min(known, default=None)


def _lane_facts(row: Mapping[str, Any]) -> LaneFacts | None:
    laned = row["lane_facts"]
    if laned is None:
        return None
    return LaneFacts(row["pending"], laned["claimable"], laned["blocked"], laned["later"], laned["busy"])


def sample_flow(
    tables: Sequence[Table], *, strict: Mapping[int, BlockedHead] | None = None, statement_timeout_ms: int = 2_000
) -> Flow[dict[int, Stats]]:
    """Flow behind `sample`."""
    if not tables:
        return {}
    query = sample_query(tables, strict)
    result: Result = yield Operation(lambda: one(query), durable=False, statement_timeout_ms=statement_timeout_ms)
    return {int(row["queue"]): stats_of(row) for row in result.dicts()}


def stats_flow(table: Table, *, strict: BlockedHead | None = None) -> Flow[Stats]:
    """Flow behind `stats`."""
    sampled = yield from sample_flow([table], strict={table.oid: strict} if strict else None, statement_timeout_ms=10_000)
    return sampled[table.oid]
