"""The reclaimer's run record: what each run did, and when the queue was last swept well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from leasequeue.rows import Result
from leasequeue.run import Flow, Operation, Query, one
from leasequeue.table import Table

KEEP_RUNS = 1_000


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Figures of a run so far, totals over its sweeps."""

    sweeps: int = 0
    reclaimed: int = 0
    repaired: int = 0
    promoted: int = 0
    deferred: int = 0
    pruned: int = 0
    assigned: int | None = None
    exceeded: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run. `finished_at` is None while it is under way, or when it was killed."""

    id: int
    runner: str | None
    started_at: datetime
    finished_at: datetime | None
    max_inflight: int | None
    record: RunRecord


def start_run_flow(table: Table, *, runner: str, max_inflight: int) -> Flow[int]:
    """Flow behind `start_run`."""
    query = Query(table.sql("run_start"), {"queue": table.oid, "runner": runner, "max_inflight": max_inflight})
    result: Result = yield Operation(lambda: one(query))
    return int(result.scalar)


def record_run_flow(table: Table, run_id: int, record: RunRecord, *, over: bool) -> Flow[None]:
    """Flow behind `record_run`."""
    query = Query(table.sql("run_record"), {"id": run_id, "over": over, **asdict(record)})
    yield Operation(lambda: one(query))
    if over:
        yield Operation(lambda: one(Query(table.sql("run_prune"), {"queue": table.oid, "n": KEEP_RUNS})))


def swept_flow(table: Table, *, reclaimed: int, repaired: int) -> Flow[datetime]:
    """Flow behind `swept`."""
    params = {"queue": table.oid, "reclaimed": reclaimed, "repaired": repaired}
    result: Result = yield Operation(lambda: one(Query(table.sql("run_stat"), params)))
    swept_at: datetime = result.scalar
    return swept_at


def runs_flow(table: Table, *, limit: int = 1) -> Flow[list[Run]]:
    """Flow behind `runs`."""
    result: Result = yield Operation(lambda: one(Query(table.sql("run_last"), {"queue": table.oid, "n": limit})))
    return [_run(row) for row in result.dicts()]


def _run(row: Mapping[str, Any]) -> Run:
    record = RunRecord(**{name: row[name] for name in RunRecord.__dataclass_fields__})
    return Run(row["id"], row["runner"], row["started_at"], row["finished_at"], row["max_inflight"], record)
