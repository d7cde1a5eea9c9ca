"""The engine over a sync connection. `leasequeue.aio` is its async twin; both run the same flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from leasequeue.claim import Claimed, claim_flow
from leasequeue.config import BlockedHead, LeaseConfig
from leasequeue.errors import LeaseNotHeld
from leasequeue.fence import (
    Completion,
    Settlement,
    completion_list,
    lease_outcome_flow,
    release_unheld_flow,
    renew_flow,
    resolve_flow,
    set_result_query,
    settle_flow,
    wanted,
)
from leasequeue.item import Lease
from leasequeue.maintain import Reclaimed, defer_flow, promote_flow, prune_flow, reclaim_flow
from leasequeue.mark import ClaimMark
from leasequeue.outcomes import Outcomes
from leasequeue.owner import OwnedBy, disown_flow, own_table_flow
from leasequeue.run import run, single
from leasequeue.runs import Run, RunRecord, record_run_flow, runs_flow, start_run_flow, swept_flow
from leasequeue.sample import Stats, sample_flow, stats_flow
from leasequeue.spare import Skips
from leasequeue.states import Outcome
from leasequeue.table import Table
from leasequeue.verdict import backoff_s
from leasequeue.workers import (
    MAX_CORDON_S,
    STALE_S,
    Heartbeat,
    WorkerCounters,
    WorkerRow,
    cordon_flow,
    deregister_flow,
    heartbeat_flow,
    held_by_pods_flow,
    register_flow,
    workers_flow,
)


def claim(
    conn: psycopg.Connection[Any],
    table: Table,
    *,
    worker_id: str,
    n: int,
    config: LeaseConfig,
    lanes: Sequence[str] | None = None,
    mark: ClaimMark | None = None,
    registered: bool = False,
    skips: Skips | None = None,
) -> Claimed:
    """Lease up to `n` due items to `worker_id`, committed when this returns.

    Args:
        conn: a connection; on one inside a transaction the leases belong to that transaction.
        table: the queue.
        worker_id: identity of the process; leases carry it.
        n: most items to take, 1 to 200.
        config: lease duration, ceiling policy, lane policy.
        lanes: only items of these lanes; None takes all, items without a lane among them.
        mark: keyset mark of this process, for plain claims; see `ClaimMark`.
        registered: honour this process's row in the worker registry: no row or a cordon means no items, and `admission` says so.
        skips: rows that refused to be changed, passed over for a while; see `Skips`. One for all calls of a thread; None searches anew each
            time.

    Returns:
        Items in claim order: priority DESC, created_at, id.

    Raises:
        BadInput: n out of range, or an empty worker id.
        psycopg.Error: the database refused or did not answer; after a lost connection the claim may have happened, see
            `release_unheld`.
    """
    flow = claim_flow(
        table, worker_id=worker_id, n=n, config=config, lanes=lanes, mark=mark, registered=registered, skips=skips
    )
    return run(conn, flow)


def renew(conn: psycopg.Connection[Any], table: Table, leases: Sequence[Lease], *, config: LeaseConfig) -> Outcomes:
    """Extend leases to one lease duration from now, all in one statement; never shortens one.

    Args:
        conn: a connection; its own thread's, so that a busy handler cannot delay it.
        table: the queue.
        leases: leases of one worker.
        config: lease duration.

    Returns:
        Per item id: RENEWED, BUSY (the row is locked, try again), LOST, or ALREADY_RESOLVED (completed by this lease).
    """
    return run(conn, renew_flow(table, leases, config=config))


def resolve(conn: psycopg.Connection[Any], table: Table, completions: Completion | Sequence[Completion]) -> Outcomes:
    """Complete items and store their results, fenced by owner and token, in one statement.

    On a connection of its own: a lost lease is told as LOST, a repeat as ALREADY_RESOLVED, and an item whose result the database
    refuses (SQLSTATE class 22 or 23) goes to REPAIR while the others are completed.

    Args:
        conn: a connection, idle or inside the caller's transaction.
        table: the queue.
        completions: one, or several of one worker.

    Returns:
        Outcome per item id.

    Raises:
        LeaseNotHeld: inside the caller's transaction, when any outcome is not RESOLVED.
        BadInput: a result that JSON cannot hold, or a column that the table lacks.
    """
    given = completion_list(completions)
    outcomes = run(conn, resolve_flow(table, given))
    return wanted(conn, outcomes, (Outcome.RESOLVED,))


def set_result(conn: psycopg.Connection[Any], table: Table, lease: Lease, result: Any) -> None:
    """Store the result of an item that this transaction has just resolved.

    Raises:
        LeaseNotHeld: the item is not resolved by this lease.
    """
    stored = run(conn, single(set_result_query(table, lease, result)))
    if not stored.rows:
        raise LeaseNotHeld({lease.id: Outcome.LOST})


def settle(
    conn: psycopg.Connection[Any], table: Table, settlements: Sequence[Settlement], *, config: LeaseConfig | None = None
) -> Outcomes:
    """End several leases of one worker without completion, in one statement: retry, fail, repair, release.

    Returns:
        Per item id: RETRIED, FAILED, REPAIR, RELEASED, ALREADY_RESOLVED or LOST.

    Raises:
        LeaseNotHeld: inside the caller's transaction, when any lease was not held.
        BadInput: a delay out of range.
    """
    outcomes = run(conn, settle_flow(table, settlements, config=config))
    return wanted(conn, outcomes, (Outcome.RETRIED, Outcome.FAILED, Outcome.REPAIR, Outcome.RELEASED))


def retry(
    conn: psycopg.Connection[Any],
    table: Table,
    lease: Lease,
    *,
    after_s: float | None = None,
    error: str = "",
    config: LeaseConfig | None = None,
    attempt: int = 1,
) -> Outcome:
    """Give an item back for another attempt; FAILED once `config.max_attempts` is used up.

    Args:
        conn: a connection.
        table: the queue.
        lease: the lease.
        after_s: seconds until it is due; None means exponential back-off by `attempt`.
        error: why, for `last_error`.
        config: max_attempts.
        attempt: number of the attempt that failed, for the back-off.
    """
    delay_s = backoff_s(attempt) if after_s is None else after_s
    outcomes = settle(conn, table, [Settlement(lease, "RETRY", delay_s, error or None)], config=config)
    return outcomes[lease.id]


def fail(conn: psycopg.Connection[Any], table: Table, lease: Lease, *, error: str) -> Outcome:
    """End an item for good: FAILED."""
    return (settle(conn, table, [Settlement(lease, "FAIL", error=error)]))[lease.id]


def repair(conn: psycopg.Connection[Any], table: Table, lease: Lease, *, error: str) -> Outcome:
    """Set an item aside for a person: REPAIR."""
    return (settle(conn, table, [Settlement(lease, "REPAIR", error=error)]))[lease.id]


def release(conn: psycopg.Connection[Any], table: Table, leases: Lease | Sequence[Lease], *, after_s: float = 0.0) -> Outcomes:
    """Give items back without counting the attempt: PENDING at once, or SCHEDULED `after_s` seconds from now."""
    given = [leases] if isinstance(leases, Lease) else list(leases)
    return settle(conn, table, [Settlement(lease, "RELEASE", after_s) for lease in given])


def release_unheld(
    conn: psycopg.Connection[Any], table: Table, *, worker_id: str, held_tokens: Sequence[UUID], skips: Skips | None = None
) -> int:
    """Release what the table shows as leased to `worker_id` under tokens that it does not know: a claim's reply was lost.

    Returns:
        How many items were released; their attempt is not counted.
    """
    return run(conn, release_unheld_flow(table, worker_id=worker_id, held_tokens=held_tokens, skips=skips))


def lease_outcome(conn: psycopg.Connection[Any], table: Table, lease: Lease) -> Outcome | None:
    """What an unknown COMMIT did: RESOLVED (it happened), None (it did not; the lease stands), LOST.

    Waits up to 5 s for the broken connection's transaction to end.

    Raises:
        psycopg.errors.LockNotAvailable: it did not end in time.
    """
    return run(conn, lease_outcome_flow(table, lease))


def reclaim(conn: psycopg.Connection[Any], table: Table, *, config: LeaseConfig, skips: Skips | None = None) -> Reclaimed:
    """Take back one page of leases that ended more than `config.reclaim_after_s` ago; REPAIR after `config.max_crashes`.

    Nothing within one lease duration + 15 s after the server started. Any number of reclaimers may run at once.
    """
    return run(conn, reclaim_flow(table, config=config, skips=skips))


def promote(conn: psycopg.Connection[Any], table: Table, *, limit: int = 500, skips: Skips | None = None) -> int:
    """Move up to `limit` due SCHEDULED items to PENDING; returns how many."""
    return run(conn, promote_flow(table, limit=limit, skips=skips))


def defer(conn: psycopg.Connection[Any], table: Table, *, limit: int = 500, skips: Skips | None = None) -> int:
    """Move PENDING items of the future among the first `limit` of the claim order to SCHEDULED; returns how many."""
    return run(conn, defer_flow(table, limit=limit, skips=skips))


def prune(
    conn: psycopg.Connection[Any], table: Table, *, older_than_s: float, limit: int = 1_000, skips: Skips | None = None
) -> int:
    """Delete up to `limit` items resolved more than `older_than_s` seconds ago, with their idempotency keys; returns how many."""
    return run(conn, prune_flow(table, older_than_s=older_than_s, limit=limit, skips=skips))


def stats(conn: psycopg.Connection[Any], table: Table, *, strict: BlockedHead | None = None) -> Stats:
    """Facts about one queue; see `Stats`. `strict`: lanes are strict, and this is what a blocked head does."""
    return run(conn, stats_flow(table, strict=strict))


def sample(
    conn: psycopg.Connection[Any],
    tables: Sequence[Table],
    *,
    strict: Mapping[int, BlockedHead] | None = None,
    statement_timeout_ms: int = 2_000,
) -> dict[int, Stats]:
    """Facts about several queues of one database in one read-only query, by table oid.

    Args:
        conn: a connection.
        tables: the queues.
        strict: for queues whose lanes are strict, what a blocked head does, by table oid.
        statement_timeout_ms: server-side bound.
    """
    return run(conn, sample_flow(tables, strict=strict, statement_timeout_ms=statement_timeout_ms))


def register(
    conn: psycopg.Connection[Any],
    table: Table,
    worker_id: str,
    *,
    pod_uid: str | None = None,
    pod_name: str | None = None,
    slots: int = 1,
) -> Heartbeat:
    """Add this process to the registry; inherits a cordon of its pod."""
    return run(conn, register_flow(table, worker_id, pod_uid=pod_uid, pod_name=pod_name, slots=slots))


def heartbeat(conn: psycopg.Connection[Any], table: Table, worker_id: str, counters: WorkerCounters) -> Heartbeat:
    """Say that this process lives and carry its counters; not `registered` means: register again before the next claim."""
    return run(conn, heartbeat_flow(table, worker_id, counters))


def deregister(conn: psycopg.Connection[Any], table: Table, worker_id: str | None = None, *, stale_s: float = STALE_S) -> None:
    """Remove a process (or, with None, all unseen for `stale_s` seconds that hold nothing), keeping its counters in the totals."""
    run(conn, deregister_flow(table, worker_id, stale_s=stale_s))


def workers(conn: psycopg.Connection[Any], table: Table) -> list[WorkerRow]:
    """The registered processes, each with the leases that the table shows for it."""
    return run(conn, workers_flow(table))


def cordon(conn: psycopg.Connection[Any], table: Table, pod_uids: Sequence[str], *, seconds: float = MAX_CORDON_S) -> list[str]:
    """Keep the processes of these pods from claiming for `seconds` (at most 60; 0 lifts the cordon); returns their worker ids.

    When this returns, no claim of theirs is under way and none can succeed until the cordon lapses.
    """
    return run(conn, cordon_flow(table, pod_uids, seconds=seconds))


def held_by_pods(conn: psycopg.Connection[Any], table: Table, pod_uids: Sequence[str]) -> dict[str, int]:
    """Leases that the table shows for each of these pods."""
    return run(conn, held_by_pods_flow(table, pod_uids))


def start_run(conn: psycopg.Connection[Any], table: Table, *, runner: str, max_inflight: int) -> int:
    """Open the record of a reclaimer run; returns its id."""
    return run(conn, start_run_flow(table, runner=runner, max_inflight=max_inflight))


def record_run(conn: psycopg.Connection[Any], table: Table, run_id: int, record: RunRecord, *, over: bool) -> None:
    """Write a run's figures so far; `over` closes it."""
    run(conn, record_run_flow(table, run_id, record, over=over))


def swept(conn: psycopg.Connection[Any], table: Table, *, reclaimed: int, repaired: int) -> datetime:
    """Add a sweep that ended well to the queue's totals; returns its time on the database's clock."""
    return run(conn, swept_flow(table, reclaimed=reclaimed, repaired=repaired))


def runs(conn: psycopg.Connection[Any], table: Table, *, limit: int = 1) -> list[Run]:
    """The newest recorded runs, newest first."""
    return run(conn, runs_flow(table, limit=limit))


def own_table(conn: psycopg.Connection[Any], table: Table, *, cr_uid: str, cr_namespace: str, cr_name: str) -> OwnedBy:
    """Ask to own a table; the first resource that asked keeps it."""
    return run(conn, own_table_flow(table, cr_uid=cr_uid, cr_namespace=cr_namespace, cr_name=cr_name))


def disown(conn: psycopg.Connection[Any], table: Table, *, cr_uid: str) -> bool:
    """Give the table free if that resource owns it."""
    return run(conn, disown_flow(table, cr_uid=cr_uid))
