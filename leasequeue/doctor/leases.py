"""Judges the leases: held twice, leaked, stuck, too many. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from leasequeue.config import SETTINGS
from leasequeue.doctor import remedy
from leasequeue.doctor.facts import Facts, LeaseRow
from leasequeue.doctor.finding import Code, Finding, Severity, seconds, so_many, some
from leasequeue.doctor.limits import MAX_LEASE_S
from leasequeue.workers import WorkerRow

ENDLESS_S = 86_400.0
RESTART_GRACE_S = 15.0  # reclaim.sql leaves every lease alone for one lease duration and this after a start of the server


def judge(facts: Facts) -> Iterator[Finding]:
    """Every finding about leases."""
    for rule in RULES:
        yield from rule(facts)


# --- DOUBLE_LEASE ----------------------------------------------------------------------------------------------------


def stolen(facts: Facts) -> Iterator[Finding]:
    """Between the looks another owner stands in a row whose lease went on: its token is the same, so no claim of ours did it."""
    before = {row.id: row for row in facts.first.leases}
    taken = []
    for row in facts.second.leases:
        old = before.get(row.id)
        same_lease = old is not None and old.token is not None and old.token == row.token
        if old is not None and same_lease and (old.leased_by != row.leased_by or old.leased_at != row.leased_at):
            taken.append((old, row))
    if not taken:
        return
    owners = [{"id": new.id, "from": old.leased_by, "to": new.leased_by} for old, new in taken[:10]]
    yield Finding(
        Code.DOUBLE_LEASE, "stolen", Severity.CRITICAL,
        f"{so_many(len(taken), 'item was', 'items were')} taken over within {seconds(facts.watched_s)} while their lease lasted: the owner or the time of "
        "the lease changed, the token did not",
        "A writer sets ASSIGNED without looking at the state first and without a token of its own. Both it and the former holder "
        "now work on the item; the former holder's completion is refused, what it did elsewhere is not undone.",
        "Let that writer claim through LeaseQueue: " + remedy.command(facts, "claim", "--worker-id", "W", "--batch-size", "N")
        + "; or at least with AND state = 'PENDING' in its UPDATE and lease_token = gen_random_uuid()",
        {"taken_over": len(taken), "changes": owners}, some(new.id for _, new in taken),
    )  # fmt: skip


def overwritten(facts: Facts) -> Iterator[Finding]:
    """Between the looks the lease of a row was replaced by one without a token, though it had not ended."""
    before = {row.id: row for row in facts.first.leases}
    replaced = []
    for row in facts.second.leases:
        old = before.get(row.id)
        if old is None or old.token is None or row.token is not None or row.leased_by == old.leased_by:
            continue
        if old.left_s is not None and old.left_s > facts.watched_s:
            replaced.append((old, row))
    if replaced:
        yield Finding(
            Code.DOUBLE_LEASE, "overwritten", Severity.WARNING,
            f"{so_many(len(replaced), 'live lease was', 'live leases were')} replaced within {seconds(facts.watched_s)} by leases without a token",
            "A writer that does not know tokens took the items from their holders, or a holder gave them back just then.",
            "Find the writer by its leased_by and stop it, or let it claim through LeaseQueue: "
            + remedy.command(facts, "claim", "--worker-id", "W", "--batch-size", "N"),
            {"replaced": len(replaced), "owners": sorted({str(new.leased_by) for _, new in replaced})[:10]},
            some(new.id for _, new in replaced),
        )  # fmt: skip


def shared_token(facts: Facts) -> Iterator[Finding]:
    """One token on several rows: tokens are made per row and lease, so these were copied."""
    rows = defaultdict(list)
    for row in facts.second.leases:
        if row.token is not None:
            rows[row.token].append(row)
    shared = [row for group in rows.values() if len(group) > 1 for row in group]
    if shared:
        yield Finding(
            Code.DOUBLE_LEASE, "shared_token", Severity.CRITICAL,
            f"{len(shared)} ASSIGNED items share a lease token with another item",
            "Rows were copied with their lease (INSERT … SELECT, a restored part of the table), so that the same work is leased "
            "twice; or a writer gives one token to a whole batch, and the fence no longer tells its leases apart.",
            "Keep one row of each pair: " + remedy.release_sql(facts, some(row.id for row in shared))
            + " -- only for copies; writers must use gen_random_uuid() per row",
            {"items": len(shared), "tokens": len({row.token for row in shared}),
             "owners": sorted({str(row.leased_by) for row in shared})[:10]},
            some(row.id for row in shared),
        )  # fmt: skip


def finished_again(facts: Facts) -> Iterator[Finding]:
    """ASSIGNED and resolved_at: the item was finished before and is leased once more."""
    again = [row for row in facts.second.leases if row.resolved]
    if again:
        yield Finding(
            Code.DOUBLE_LEASE, "leased_after_completion", Severity.CRITICAL,
            f"{so_many(len(again), 'ASSIGNED item carries', 'ASSIGNED items carry')} resolved_at: completed before, and leased again",
            "A writer set ASSIGNED or PENDING on finished items without looking at the state. Their work is being done twice.",
            f"UPDATE {facts.table} SET state = 'RESOLVED' WHERE state = 'ASSIGNED' AND resolved_at IS NOT NULL AND id::text IN "
            f"({remedy.literals(some(row.id for row in again))}) -- the holder's completion is then refused",
            {"items": len(again), "owners": sorted({str(row.leased_by) for row in again})[:10]}, some(row.id for row in again),
        )  # fmt: skip


def same_key(facts: Facts) -> Iterator[Finding]:
    """Several rows with one idempotency key: the same work exists, and may be leased, more than once."""
    found = facts.duplicates
    if found is None or not found.keys:
        return
    leased = f", {found.leased_keys} of them leased more than once right now" if found.leased_keys else ""
    yield Finding(
        Code.DOUBLE_LEASE, "same_key", Severity.CRITICAL,
        f"{so_many(found.keys, 'idempotency key belongs', 'idempotency keys belong')} to several items ({found.items} items, {found.open} unfinished){leased}",
        "The unique index on idempotency_key is missing or INVALID, and the same work was enqueued twice.",
        f"Decide which row of each key stays (SELECT idempotency_key, count(*) FROM {facts.table} GROUP BY 1 HAVING count(*) > 1), "
        f"delete the others, then: {remedy.adopt(facts)}",
        {"keys": found.keys, "items": found.items, "unfinished": found.open, "leased_more_than_once": found.leased_keys},
        found.example,
    )  # fmt: skip


def shared_lane(facts: Facts) -> Iterator[Finding]:
    """Strict lanes: two leases in one lane at a time."""
    if not facts.strict:
        return
    lanes: dict[str, list[LeaseRow]] = defaultdict(list)
    for row in facts.second.leases:
        if row.lane is not None:
            lanes[row.lane].append(row)
    shared = {lane: rows for lane, rows in lanes.items() if len(rows) > 1}
    rows = [row for group in shared.values() for row in group]
    if shared:
        yield Finding(
            Code.DOUBLE_LEASE, "shared_lane", Severity.CRITICAL,
            f"{so_many(len(shared), 'strict lane has', 'strict lanes have')} more than one lease at a time ({len(rows)} leases)",
            "A worker runs without strict lanes (lease.lanes.strict, LEASEQUEUE_STRICT_LANES), or a plain-SQL client claims from them.",
            "Start every worker of this queue with --strict-lanes; where lanes are no order: "
            + remedy.command(facts, "schema", "adopt") + " and doctor --no-strict-lanes",
            {"lanes": sorted(shared)[:10], "leases": len(rows), "owners": sorted({str(row.leased_by) for row in rows})[:10]},
            some(row.id for row in rows),
        )  # fmt: skip


def unleased_work(facts: Facts) -> Iterator[Finding]:
    """A worker holds more than the table leases to it. Between two of its heartbeats it claimed nothing and held the same number,
    so what it holds did not change; the table was read in between."""
    for old, new in _beats(facts):
        unchanged = (old.claimed_total, old.held) == (new.claimed_total, new.held)
        missing = min(old.held - old.leases, new.held - new.leases)
        if unchanged and missing > 0:
            yield Finding(
                Code.DOUBLE_LEASE, "unleased_work", Severity.CRITICAL,
                f"worker {new.worker_id} works on {missing} items that the table no longer leases to it",
                "Its leases ended without its knowing (no renewal got through), or a writer took them: somebody else may hold the "
                "same items. LeaseQueue refuses the late completion; effects outside PostgreSQL happen twice.",
                f"Look at who holds them now ({remedy.command(facts, 'list', '--state', 'ASSIGNED')}) and end this worker if it "
                "does not notice within one lease duration",
                {"worker_id": new.worker_id, "held": new.held, "leased_in_table": new.leases, "lost_total": new.lost_total},
            )  # fmt: skip


def shared_identity(facts: Facts) -> Iterator[Finding]:
    """Cumulative counters of one worker fell: two processes report under one name, and take each other's leases for their own."""
    for old, new in _beats(facts):
        if new.claimed_total < old.claimed_total or new.busy_ms_total < old.busy_ms_total:
            yield Finding(
                Code.DOUBLE_LEASE, "shared_identity", Severity.CRITICAL,
                f"two processes report as worker {new.worker_id}: its count of claims fell from {old.claimed_total} to "
                f"{new.claimed_total}",
                "A worker_id was fixed by configuration or by a copied process. Each of the two may renew, complete and give back "
                "what the other holds.",
                "Give each process an identity of its own; leasequeue-worker makes one at each start",
                {"worker_id": new.worker_id, "claimed_total": [old.claimed_total, new.claimed_total],
                 "busy_ms_total": [old.busy_ms_total, new.busy_ms_total]},
            )  # fmt: skip


def _beats(facts: Facts) -> Iterator[tuple[WorkerRow, WorkerRow]]:
    """Workers that reported between the two looks, as seen before and after."""
    before = {worker.worker_id: worker for worker in facts.first.workers}
    for new in facts.second.workers:
        old = before.get(new.worker_id)
        if old is not None and new.seen_at > old.seen_at:
            yield old, new


# --- LEASE_LEAK, STUCK, INFLIGHT_EXCEEDED ----------------------------------------------------------------------------


def leaked(facts: Facts) -> Iterator[Finding]:
    """Leases that ended long enough ago for the reclaimer to have taken them back, and are still there."""
    limits = facts.limits
    late_s = limits.reclaim_after_s + limits.reclaimer_s
    up_s = facts.upkeep.server_up_s
    if up_s is not None and up_s < limits.lease_s + RESTART_GRACE_S + limits.reclaimer_s:
        return
    rows = [row for row in facts.second.leases if row.left_s is not None and row.left_s < -late_s]
    if not rows:
        return
    oldest = max(-(row.left_s or 0.0) for row in rows)
    yield Finding(
        Code.LEASE_LEAK, "not_reclaimed", Severity.CRITICAL,
        f"{so_many(len(rows), 'lease', 'leases')} ended and nobody reclaims them; the first ended {seconds(oldest)} ago, {_sweep_text(facts)}",
        _leak_cause(facts), remedy.command(facts, "reclaim") + " -- and see why the reclaimer's CronJob does not run",
        {"leases": len(rows), "oldest_ended_s": round(oldest), "reclaim_after_s": limits.reclaim_after_s,
         "last_sweep": facts.upkeep.swept_at.isoformat() if facts.upkeep.swept_at else None,
         "max_crash_count": max(row.crash_count for row in rows)},
        some(row.id for row in rows),
    )  # fmt: skip


def _sweep_text(facts: Facts) -> str:
    swept_s = facts.upkeep.swept_s
    return "no sweep was ever recorded" if swept_s is None else f"the last good sweep was {seconds(swept_s)} ago"


def _leak_cause(facts: Facts) -> str:
    swept_s = facts.upkeep.swept_s
    if swept_s is None:
        return "No reclaimer has ever run on this queue."
    if facts.upkeep.run_failed:
        return "The reclaimer's last run ended with an error (leasequeue.reclaim_run.error)."
    if swept_s > facts.limits.reclaimer_s:
        return "The reclaimer no longer runs."
    return (
        "The reclaimer runs and passes these rows over: another transaction holds their locks (see LOCK_CONTENTION), row-level "
        "security hides them from its role, or its reclaim_after_s is longer than the one given here."
    )


def endless(facts: Facts) -> Iterator[Finding]:
    """Leases without an end, or with one that no lease of ours has: no reclaimer ever takes them."""
    rows = [
        row for row in facts.second.leases if row.no_end or row.endless or (row.left_s is not None and row.left_s > ENDLESS_S)
    ]
    if rows:
        yield Finding(
            Code.LEASE_LEAK, "endless", Severity.CRITICAL,
            f"{so_many(len(rows), 'lease has no end', 'leases have no end')} (lease_expires_at is NULL, infinity or more than a day ahead)",
            f"A writer set them; no lease of LeaseQueue is longer than {MAX_LEASE_S:.0f} s. If its holder dies the item is lost.",
            f"UPDATE {facts.table} SET lease_expires_at = now() WHERE state = 'ASSIGNED' AND id::text IN "
            f"({remedy.literals(some(row.id for row in rows))}) -- the reclaimer takes them from there",
            {"leases": len(rows), "owners": sorted({str(row.leased_by) for row in rows})[:10]}, some(row.id for row in rows),
        )  # fmt: skip


def reclaimer_overdue(facts: Facts) -> Iterator[Finding]:
    """The reclaimer ran once and has stopped, while leases are out."""
    swept_s = facts.upkeep.swept_s
    if swept_s is None or not facts.second.leases or swept_s < facts.limits.reclaimer_s * 3:
        return
    yield Finding(
        Code.LEASE_LEAK, "reclaimer_overdue", Severity.WARNING,
        f"the last good sweep was {seconds(swept_s)} ago and {len(facts.second.leases)} items are leased",
        "The reclaimer's CronJob is suspended, fails, or is gone; leases of workers that die will stay.",
        remedy.command(facts, "reclaim") + " -- once, by hand; kubectl get cronjob,job shows why it does not run by itself",
        {"last_sweep_s": round(swept_s), "leases": len(facts.second.leases)},
    )  # fmt: skip


def stuck(facts: Facts) -> Iterator[Finding]:
    """Leases whose holder shows no life, and that the reclaimer may not have yet."""
    known = {worker.worker_id: worker for worker in facts.second.workers}
    late_s = facts.limits.reclaim_after_s + facts.limits.reclaimer_s
    dead, idle, unknown = [], [], []
    for row in facts.second.leases:
        worker = known.get(row.leased_by or "")
        leaked = row.left_s is not None and row.left_s < -late_s
        if leaked or row.no_end or row.endless:
            continue  # LEASE_LEAK says so
        if worker is None:
            unknown += [row] if (row.leased_s or 0.0) > facts.limits.stuck_s else []
        elif worker.unseen_s > facts.limits.worker_unseen_s:
            dead.append(row)
        elif not row.lasts:
            idle.append(row)
    yield from _stuck(facts, dead, "dead_worker", "of workers that were not seen for "
                      f"{facts.limits.worker_unseen_s:.0f} s or longer",
                      "The worker was killed, its node is gone, or it cannot reach the database.")  # fmt: skip
    yield from _stuck(facts, idle, "not_renewed", "past their end though their worker reports",
                      "The worker lives and its renewals do not get through, or it does not know of these leases (a claim's reply "
                      "was lost).")  # fmt: skip
    yield from _stuck(facts, unknown, "unregistered", f"older than {seconds(facts.limits.stuck_s)} whose holder is no "
                      "registered worker", "A client outside the fleet took them and has neither finished nor given them back.")  # fmt: skip


def _stuck(facts: Facts, rows: Sequence[LeaseRow], sign: str, what: str, cause: str) -> Iterator[Finding]:
    if not rows:
        return
    last_s = max(row.left_s or 0.0 for row in rows) + facts.limits.reclaim_after_s
    back = f"; the reclaimer takes the last of them in {seconds(last_s)}" if last_s > 0 else "; the next sweep takes them"
    yield Finding(
        Code.STUCK, sign, Severity.WARNING, f"{so_many(len(rows), 'lease', 'leases')} {what}{back}", cause,
        "Wait for the reclaimer, or, if the holder is surely gone: " + remedy.release_sql(facts, some(row.id for row in rows)),
        {"leases": len(rows), "owners": dict(Counter(str(row.leased_by) for row in rows).most_common(10)),
         "reclaimable_in_s": round(max(last_s, 0.0))},
        some(row.id for row in rows),
    )  # fmt: skip


def inflight(facts: Facts) -> Iterator[Finding]:
    """More leases than max_inflight."""
    count = len(facts.second.leases)
    if count <= facts.max_inflight:
        return
    owners = Counter(str(row.leased_by) for row in facts.second.leases)
    ended = sum(not row.lasts for row in facts.second.leases)
    yield Finding(
        Code.INFLIGHT_EXCEEDED, "over", Severity.CRITICAL,
        f"{count:,} items are ASSIGNED, {count - facts.max_inflight} over max_inflight {facts.max_inflight}; {ended} of their "
        "leases have ended",
        "Under the policy Alert nothing holds claims back; or clients outside LeaseQueue claim; or dead workers' leases pile up.",
        "Set lease.maxInflightPolicy: Enforce (LEASEQUEUE_MAX_INFLIGHT_POLICY=Enforce), or fewer or smaller workers; "
        f"maxInflight may be at most {SETTINGS['max_inflight'].high}",
        {"assigned": count, "max_inflight": facts.max_inflight, "ended": ended, "owners": dict(owners.most_common(10))},
    )  # fmt: skip


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    stolen, overwritten, shared_token, finished_again, same_key, shared_lane, unleased_work, shared_identity,
    leaked, endless, reclaimer_overdue, stuck, inflight,
)  # fmt: skip
