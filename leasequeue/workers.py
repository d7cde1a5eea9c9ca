"""The registry of worker processes: who lives, what it holds, and the cordon that keeps it from claiming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from leasequeue.errors import BadInput
from leasequeue.rows import Result
from leasequeue.run import Batch, Flow, Operation, Query, Steps, one
from leasequeue.table import Table

MAX_CORDON_S = 60.0  # a dead operator's cordons lapse by themselves
STALE_S = 86_400.0


@dataclass(frozen=True, slots=True)
class WorkerCounters:
    """What a process says of itself with each heartbeat; totals are cumulative since its start."""

    held: int = 0
    running: int = 0
    claimed_total: int = 0
    finished_total: int = 0
    lost_total: int = 0
    busy_ms_total: int = 0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Answer to a heartbeat. Not `registered`: register again before the next claim."""

    registered: bool
    cordoned: bool


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A process as the database sees it. `leases` is counted in the table, `held` is what the process last said."""

    worker_id: str
    pod_uid: str | None
    pod_name: str | None
    slots: int
    held: int
    running: int
    claimed_total: int
    finished_total: int
    lost_total: int
    busy_ms_total: int
    started_at: datetime
    seen_at: datetime
    unseen_s: float
    cordoned: bool
    leases: int


def register_flow(
    table: Table, worker_id: str, *, pod_uid: str | None = None, pod_name: str | None = None, slots: int = 1
) -> Flow[Heartbeat]:
    """Flow behind `register`."""
    params = {
        "queue": table.oid, "worker_id": worker_id, "pod_uid": pod_uid, "pod_name": pod_name, "slots": slots,
    }  # fmt: skip
    pods = [pod_uid] if pod_uid else []
    queries = (_pod_lock(table, pods), Query(table.sql("worker_register"), params))
    result: Result = yield Operation(lambda: _last(queries))
    return Heartbeat(True, bool(result.scalar))


def heartbeat_flow(table: Table, worker_id: str, counters: WorkerCounters) -> Flow[Heartbeat]:
    """Flow behind `heartbeat`."""
    query = Query(table.sql("worker_heartbeat"), {"queue": table.oid, "worker_id": worker_id, **asdict(counters)})
    result: Result = yield Operation(lambda: one(query), durable=False)
    return Heartbeat(bool(result.rows), bool(result.scalar))


def deregister_flow(table: Table, worker_id: str | None = None, *, stale_s: float = STALE_S) -> Flow[None]:
    """Flow behind `deregister`: one process, or (None) all that were not seen for `stale_s` seconds and hold nothing."""
    query = Query(table.sql("worker_deregister"), {"queue": table.oid, "worker_id": worker_id, "stale_s": float(stale_s)})
    yield Operation(lambda: one(query))


def workers_flow(table: Table) -> Flow[list[WorkerRow]]:
    """Flow behind `workers`."""
    query = Query(table.sql("worker_list"), {"queue": table.oid})
    result: Result = yield Operation(lambda: one(query), durable=False)
    return [WorkerRow(**row) for row in result.dicts()]


def cordon_flow(table: Table, pod_uids: Sequence[str], *, seconds: float) -> Flow[list[str]]:
    """Flow behind `cordon` and `uncordon`."""
    if not 0 <= seconds <= MAX_CORDON_S:
        raise BadInput("seconds", seconds, f"must be from 0 to {MAX_CORDON_S:g} seconds")
    pods = sorted(set(pod_uids))
    params = {"queue": table.oid, "pod_uids": pods, "seconds": float(seconds)}
    queries = (_pod_lock(table, pods), Query(table.sql("worker_cordon"), params))
    # Waits for claims under way, each of which is bounded by the statement timeout.
    result: Result = yield Operation(lambda: _last(queries), lock_timeout_ms=2_000)
    cordoned: list[str] = result.column("worker_id")
    return cordoned


def held_by_pods_flow(table: Table, pod_uids: Sequence[str]) -> Flow[dict[str, int]]:
    """Flow behind `held_by_pods`."""
    query = Query(table.sql("worker_held"), {"queue": table.oid, "pod_uids": sorted(set(pod_uids))})
    result: Result = yield Operation(lambda: one(query))
    return dict(result.rows)


def _pod_lock(table: Table, pods: Sequence[str]) -> Query:
    return Query(table.sql("worker_pod_lock"), {"queue": table.oid, "pod_uids": list(pods)})


def _last(queries: tuple[Query, ...]) -> Steps[Result]:
    results: list[Any] = yield Batch(queries, last=True)
    last: Result = results[-1]
    return last
