"""Judges what waits: starving items, blocked lanes, poison items. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from leasequeue.doctor import remedy
from leasequeue.doctor.facts import DueRow, Facts, LaneRow, Suspect
from leasequeue.doctor.finding import Code, Finding, Severity, seconds, so_many, some
from leasequeue.schema.columns import quote
from leasequeue.workers import WorkerRow

OPEN = ("PENDING", "SCHEDULED")
QUICK_ATTEMPTS = 3


def judge(facts: Facts) -> Iterator[Finding]:
    """Every finding about order and poison items."""
    for rule in RULES:
        yield from rule(facts)


# --- STARVATION ------------------------------------------------------------------------------------------------------


def starving(facts: Facts) -> Iterator[Finding]:
    """The due item that waits longest, and why nobody takes it."""
    late = [row for row in facts.due if row.due_s > facts.limits.oldest_due_s]
    if not late:
        return
    oldest = max(late, key=lambda row: row.due_s)
    sign, cause, fix = _why(facts, oldest)
    above = sum(row.priority > oldest.priority for row in facts.due)
    yield Finding(
        Code.STARVATION, sign, Severity.CRITICAL,
        f"item {oldest.id} (priority {oldest.priority}) has been due for {seconds(oldest.due_s)}; "
        f"{_passed(facts, oldest)} items of higher priority were leased meanwhile and are in work",
        cause, fix,
        {"oldest_due_s": round(oldest.due_s), "priority": oldest.priority, "due_priorities_above": above,
         "leased_above": _passed(facts, oldest), "assigned": len(facts.second.leases), "max_inflight": facts.max_inflight,
         "workers": len(_alive(facts)), "workers_cordoned": sum(w.cordoned for w in _alive(facts))},
        some(row.id for row in late),
    )  # fmt: skip


def _alive(facts: Facts) -> list[WorkerRow]:
    return [w for w in facts.second.workers if w.unseen_s <= facts.limits.worker_unseen_s]


def _passed(facts: Facts, item: DueRow) -> int:
    """Leases of higher priority that were taken while the item was due."""
    return sum(
        row.priority > item.priority and row.leased_s is not None and row.leased_s < item.due_s for row in facts.second.leases
    )


def _why(facts: Facts, item: DueRow) -> tuple[str, str, str]:
    alive = _alive(facts)
    if _passed(facts, item):
        return (
            "priority",
            "Items of higher priority keep coming and are served first, as the order demands; the rest never has its turn.",
            f"More workers (scaling.maxReplicas), or a fair chance for this item: UPDATE {facts.table} SET priority = "
            f"(SELECT max(priority) FROM {facts.table} WHERE state = 'PENDING') WHERE id::text = {remedy.literals([item.id])} AND "
            "state = 'PENDING'",
        )
    if not alive and not facts.second.leases:
        return (
            "no_workers",
            "No worker has reported and nothing is leased: the fleet is at zero, suspended, or cannot reach the database.",
            "kubectl describe leasequeue says why it is at zero; by hand: leasequeue-worker --handler package.module:function",
        )
    if alive and all(worker.cordoned for worker in alive):
        return (
            "cordoned",
            "Every worker is cordoned: a scale-down is under way and has not ended, or its operator died within the last minute.",
            "Cordons lapse by themselves within 60 s; look again then",
        )
    if len(facts.second.leases) >= facts.max_inflight:
        return (
            "ceiling",
            f"{len(facts.second.leases)} items are in flight, and max_inflight is {facts.max_inflight}: under Enforce nothing more "
            "is claimed until one ends.",
            "Raise lease.maxInflight, or find what holds leases for so long: "
            + remedy.command(facts, "list", "--state", "ASSIGNED"),
        )
    return (
        "capacity",
        "The workers do not keep up; or all of them serve lanes that this item does not belong to; or its row is locked by another "
        "transaction, and claims pass it over (see LOCK_CONTENTION).",
        "More workers or slots (scaling.maxReplicas, worker.concurrency); at least one worker without --lane",
    )


def unpromoted(facts: Facts) -> Iterator[Finding]:
    """SCHEDULED items whose time has come and that stay SCHEDULED."""
    late = facts.unpromoted
    if late.items:
        yield Finding(
            Code.STARVATION, "not_promoted", Severity.CRITICAL,
            f"{so_many(late.items, 'SCHEDULED item has', 'SCHEDULED items have')} been due for up to {seconds(late.late_s)} and nobody makes that PENDING",
            "Neither a worker (each promotes about once a second) nor the reclaimer runs on this queue.",
            remedy.command(facts, "reclaim") + " -- promotes too; then see why neither runs",
            {"items": late.items, "late_s": round(late.late_s)}, late.ids,
        )  # fmt: skip


def blocked_lanes(facts: Facts) -> Iterator[Finding]:
    """Lanes that stand still behind a head that waits for a person, or that is scheduled for later."""
    if not facts.strict or facts.limits.on_blocked_head == "Pass":
        return
    person = [row for row in facts.lanes if row.state in ("FAILED", "REPAIR")]
    later = [row for row in facts.lanes if row.state == "SCHEDULED" and row.due_s > facts.limits.oldest_due_s]
    yield from _lanes(person, "lane_blocked", "a head that is FAILED or in REPAIR: no worker will touch it",
                      _requeue(facts, person))  # fmt: skip
    yield from _lanes(later, "lane_scheduled", "a head that is not due yet",
                      "Wait, or make the head due: "
                      f"UPDATE {facts.table} SET run_at = now() WHERE state = 'SCHEDULED' AND id::text IN "
                      f"({remedy.literals(some(row.id for row in later))})")  # fmt: skip


def _requeue(facts: Facts, rows: Sequence[LaneRow]) -> str:
    return remedy.command(facts, "requeue", "--id", rows[0].id, "--reason", "mended") + " -- once it is mended" if rows else ""


def _lanes(rows: Sequence[LaneRow], sign: str, what: str, fix: str) -> Iterator[Finding]:
    if not rows:
        return
    waiting = sum(row.waiting for row in rows)
    yield Finding(
        Code.STARVATION, sign, Severity.CRITICAL,
        f"{so_many(len(rows), 'lane stands', 'lanes stand')} still behind {what}; due items waiting there: {waiting}, the longest for "
        f"{seconds(max(row.due_s for row in rows))}",
        "Items of one lane run strictly in order, and the queue blocks on such heads (lease.lanes.onBlockedHead: Block).",
        fix, {"lanes": [row.lane for row in rows[:10]], "blocked": len(rows), "waiting": waiting}, some(row.id for row in rows),
    )  # fmt: skip


# --- POISON ----------------------------------------------------------------------------------------------------------


def crashing(facts: Facts) -> Iterator[Finding]:
    """Items whose workers died, or lost them, several times."""
    limit = facts.limits.poison_crashes
    counts = {item.id: item.crash_count for item in facts.suspects if item.crash_count >= limit}
    counts |= {row.id: row.crash_count for row in facts.second.leases if row.crash_count >= limit}
    if not counts:
        return
    aside = sum(item.id in counts and item.state in ("REPAIR", "FAILED") for item in facts.suspects)
    yield Finding(
        Code.POISON, "crashes", Severity.CRITICAL,
        f"{so_many(len(counts), 'item', 'items')} ended a lease {limit} times or more without a completion (at most "
        f"{max(counts.values())}); {aside} of them are set aside",
        "The item kills its worker (out of memory, a crash in native code), or its handler runs longer than its lease and hinders "
        "the renewal (a handler that holds the GIL needs isolation: process).",
        f"Look at one: {remedy.command(facts, 'show', '--id', min(counts))}; the reclaimer sets it aside (REPAIR) after max_crashes "
        f"{facts.limits.max_crashes}",
        {"items": len(counts), "max_crash_count": max(counts.values()), "set_aside": aside}, some(counts),
    )  # fmt: skip


def failing(facts: Facts) -> Iterator[Finding]:
    """Items that were leased and failed quickly, again and again: on average faster than `quick_s` an attempt."""
    quick = [item for item in facts.suspects if _quick(item, facts.limits.quick_s)]
    ids = {item.id for item in quick} | _looping(facts)
    if not ids:
        return
    attempts = max([item.attempt for item in facts.suspects if item.id in ids] or [0])
    yield Finding(
        Code.POISON, "quick_failures", Severity.WARNING,
        f"{so_many(len(ids), 'item fails', 'items fail')} quickly, again and again (up to {attempts} attempts, under {seconds(facts.limits.quick_s)} each)",
        "The handler refuses them at once; or it asks for a retry without a pause; or a plain-SQL client puts them back to PENDING.",
        f"Look at last_error: {remedy.command(facts, 'show', '--id', min(ids))}; raise Repair or Fail for what a retry cannot mend",
        {"items": len(ids), "max_attempt": attempts}, some(ids),
    )  # fmt: skip


def _quick(item: Suspect, quick_s: float) -> bool:
    if item.state not in OPEN or item.attempt < QUICK_ATTEMPTS or item.age_s is None:
        return False
    return item.age_s / item.attempt < quick_s


def _looping(facts: Facts) -> set[str]:
    """Items leased at the first look that have begun at least two further attempts since."""
    before = {row.id: row.attempt for row in facts.first.leases}
    now = {item.id: item.attempt for item in facts.suspects} | {row.id: row.attempt for row in facts.second.leases}
    return {item for item, attempt in now.items() if item in before and attempt >= before[item] + 2}


def uncapped(facts: Facts) -> Iterator[Finding]:
    """Items that were tried at least max_attempts times and are tried again."""
    limit = facts.limits.max_attempts
    rows = [item for item in facts.suspects if item.state in OPEN and item.attempt >= limit]
    if rows:
        yield Finding(
            Code.POISON, "attempts", Severity.WARNING,
            f"{so_many(len(rows), 'item was', 'items were')} tried {limit} times or more (at most {max(item.attempt for item in rows)}), and not for the last time",
            "They were requeued by hand or reclaimed after their last attempt; or a writer outside LeaseQueue puts them back.",
            f"Look at one: {remedy.command(facts, 'show', '--id', rows[0].id)}",
            {"items": len(rows), "max_attempt": max(item.attempt for item in rows)}, some(item.id for item in rows),
        )  # fmt: skip


def refusing(facts: Facts) -> Iterator[Finding]:
    """Items that the database lets nobody change, since they break a CHECK that was added NOT VALID."""
    for name, counted in facts.refusing.items():
        constraint = quote(name)
        yield Finding(
            Code.POISON, "refuses_change", Severity.CRITICAL,
            f"{so_many(counted.items, 'unfinished item breaks', 'unfinished items break')} CHECK {name}, which was added NOT VALID: no claim, "
            "completion or repair of such a row is taken; workers pass it over",
            "The constraint was added without a look at the rows that were there; PostgreSQL checks it at every later change of any column.",
            f"Mend the values; then ALTER TABLE {facts.table} VALIDATE CONSTRAINT {constraint}; or ALTER TABLE {facts.table} DROP CONSTRAINT "
            f"{constraint}",
            {"check": name, "items": counted.items}, counted.ids,
        )  # fmt: skip


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    starving, unpromoted, blocked_lanes, crashing, failing, uncapped, refusing,
)  # fmt: skip
