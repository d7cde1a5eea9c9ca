"""Judges the server around the table: waits for locks, long transactions, what keeps dead rows, bloat. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from leasequeue.doctor import remedy
from leasequeue.doctor.facts import Facts, Holder, Pin, Wait
from leasequeue.doctor.finding import Code, Finding, Severity, seconds, so_many

GRANT_MONITOR = "GRANT pg_monitor TO the role that runs the doctor"
NEARLY_FULL = 0.9
CONNECTIONS_A_WORKER = 3  # claims, completions, renewal; handlers that use ctx.transaction() come on top
CONNECTIONS_BESIDE = 3  # the reclaimer, the operator's two
ROW_LOCKS = ("RowShareLock", "RowExclusiveLock")


def judge(facts: Facts) -> Iterator[Finding]:
    """Every finding about the server."""
    for rule in RULES:
        yield from rule(facts)


def waits(facts: Facts) -> Iterator[Finding]:
    """Who holds what others wait for. Claims wait for each other for moments; a wait counts when it lasts, or when its holder's
    transaction, which held somebody up at the first look too, is still the same one."""
    before = {wait.blocker for wait in facts.first.waits} if facts.watched_s else set()
    blockers: dict[int, list[Wait]] = defaultdict(list)
    for wait in facts.second.waits:
        same = wait.blocker in before and (wait.blocker_s or 0.0) >= facts.watched_s
        if wait.waits_s >= facts.limits.lock_wait_s or same:
            blockers[wait.blocker].append(wait)
    chained = {wait.pid for group in blockers.values() for wait in group}
    for pid, group in blockers.items():
        if pid in chained and len(blockers) > 1:
            continue  # it waits itself; whoever it waits for is the cause
        yield _contention(pid, group)


def _contention(pid: int, group: list[Wait]) -> Finding:
    first = group[0]
    age = f", transaction open for {seconds(first.blocker_s)}" if first.blocker_s is not None else ""
    state = f", {first.blocker_state}" if first.blocker_state else ""
    who = f"pid {pid} ({first.blocker_who or 'unknown'}{state}{age})"
    idle = (first.blocker_state or "").startswith("idle in transaction")
    return Finding(
        Code.LOCK_CONTENTION, "waits", Severity.CRITICAL,
        f"{so_many(len({wait.pid for wait in group}), 'session waits', 'sessions wait')} for {who}, up to {seconds(max(wait.waits_s for wait in group))}",
        "A client began a transaction and does not end it." if idle else
        "A long statement, a schema change or a prepared transaction holds the lock." if pid else
        "A prepared transaction holds the lock.",
        f"End that transaction; by force: {remedy.terminate_sql(pid)}; against the next one: ALTER ROLE … SET "
        "idle_in_transaction_session_timeout = '60s'" if pid else "SELECT gid, prepared FROM pg_prepared_xacts; then ROLLBACK PREPARED",
        {"blocker": pid, "blocker_name": first.blocker_who, "blocker_state": first.blocker_state,
         "blocker_open_s": _rounded(first.blocker_s), "waiting": len({wait.pid for wait in group}),
         "longest_wait_s": round(max(wait.waits_s for wait in group), 1), "locks": sorted({f"{w.lock} {w.mode}" for w in group}),
         "waiters": sorted({wait.who or "unknown" for wait in group})[:10]},
    )  # fmt: skip


def holders(facts: Facts) -> Iterator[Finding]:
    """Transactions that have held locks on the table for long: nobody waits for rows, claims pass them over."""
    long = [h for h in facts.holders if h.held_s is not None and h.held_s >= facts.limits.lock_held_s]
    for holder in long:
        rows = set(holder.modes) <= set(ROW_LOCKS)
        what = "rows of the table: claims pass them over without waiting" if rows else "the table itself: every claim waits"
        yield Finding(
            Code.LOCK_CONTENTION, "held", Severity.WARNING if rows else Severity.CRITICAL,
            f"pid {holder.pid} ({holder.who or 'unknown'}, {holder.state or 'unknown'}) has held locks for "
            f"{seconds(holder.held_s or 0.0)} on {what}",
            "A handler works inside ctx.transaction() for long, or a client forgot to commit.",
            f"Begin transactions late and end them early; by force: {remedy.terminate_sql(holder.pid or 0)}",
            {"pid": holder.pid, "name": holder.who, "state": holder.state, "held_s": _rounded(holder.held_s), "modes": list(holder.modes)},
        )  # fmt: skip
    prepared = [h for h in facts.holders if h.prepared]
    if prepared:
        yield _prepared(prepared)


def _prepared(found: list[Holder]) -> Finding:
    return Finding(
        Code.LOCK_CONTENTION,
        "prepared",
        Severity.WARNING,
        f"{so_many(len(found), 'prepared transaction holds', 'prepared transactions hold')} locks on the table, across restarts, until somebody decides",
        "A transaction manager prepared them and never came back.",
        "SELECT gid, prepared, owner FROM pg_prepared_xacts; then COMMIT PREPARED or ROLLBACK PREPARED each",
        {"prepared": len(found), "modes": sorted({mode for holder in found for mode in holder.modes})},
    )


def hidden(facts: Facts) -> Iterator[Finding]:
    """Sessions that hold locks or a snapshot and whose age this role may not see."""
    masked = sum(h.held_s is None and not h.prepared for h in facts.holders)
    masked += sum(pin.kind == "transaction" and pin.age_s is None for pin in facts.pins)
    if masked:
        yield Finding(
            Code.COULD_NOT_LOOK, "sessions", Severity.UNKNOWN,
            f"{so_many(masked, 'session holds', 'sessions hold')} locks on the table or an old snapshot, and this role may not see since when",
            "Only members of pg_monitor (or pg_read_all_stats) see other roles' sessions.", GRANT_MONITOR, {"sessions": masked},
        )  # fmt: skip


def pins(facts: Facts) -> Iterator[Finding]:
    """What keeps vacuum from removing dead rows, each kind with its own way out."""
    old = [pin for pin in facts.pins if _old(pin, facts)]
    dead = facts.second.counters.dead if facts.second.counters else 0
    for pin in old:
        cause, fix = _release(pin)
        age = seconds(pin.age_s) if pin.age_s is not None else f"{pin.age_xids} transactions"
        yield Finding(
            Code.PINNED_XMIN, pin.kind, Severity.WARNING,
            f"{pin.kind} {pin.name or '?'} has kept dead rows from being removed for {age}; the table has {dead} of them",
            cause, fix,
            {"kind": pin.kind, "name": pin.name, "pid": pin.pid, "state": pin.state, "age_s": _rounded(pin.age_s),
             "age_transactions": pin.age_xids, "dead_rows": dead},
        )  # fmt: skip


def _old(pin: Pin, facts: Facts) -> bool:
    if pin.age_s is not None:
        return pin.age_s >= facts.limits.xmin_s
    return pin.age_xids >= facts.limits.xmin_xids


def _release(pin: Pin) -> tuple[str, str]:
    if pin.kind == "transaction":
        return (
            "A transaction is open: a report, a dump, a client that forgot to commit. Claims stay fast (they resume where the last one "
            "ended), but the table grows.",
            f"End it; by force: {remedy.terminate_sql(pin.pid or 0)}",
        )
    if pin.kind == "prepared":
        gid = remedy.literals([pin.name or ""])
        return "A prepared transaction that nobody decides.", f"COMMIT PREPARED {gid} or ROLLBACK PREPARED {gid}"
    if pin.kind == "slot":
        name = remedy.literals([pin.name or ""])
        return (
            "A replication slot remembers the oldest query of its standby; an inactive slot remembers it for ever.",
            f"Bring the standby back, or give the slot up: SELECT pg_drop_replication_slot({name})",
        )
    return (
        "A standby reports its longest query (hot_standby_feedback) and the primary keeps what that query may see.",
        "End that query on the standby, or set hot_standby_feedback = off there",
    )


def connections(facts: Facts) -> Iterator[Finding]:
    """A server that is nearly full, or too small for the workers that there may be."""
    seen = facts.connections
    if seen is None:
        return
    evidence = {"allowed": seen.allowed, "used": seen.used, "ours": seen.ours}
    advice = "Raise max_connections, set fewer maxReplicas with more slots each, or put a transaction pooler between"
    if seen.used >= seen.allowed * NEARLY_FULL:
        yield Finding(
            Code.CONNECTIONS, "nearly_full", Severity.WARNING,
            f"{seen.used} of {seen.allowed} connections are taken, {seen.ours} of them by LeaseQueue; when all are, no new worker gets one",
            "More processes than the server was made for, or a program that does not close its connections.",
            f"{advice}; who holds them: SELECT application_name, count(*) FROM pg_stat_activity GROUP BY 1 ORDER BY 2 DESC", evidence,
        )  # fmt: skip
    workers = facts.limits.max_workers
    others, needed = seen.used - seen.ours, (workers or 0) * CONNECTIONS_A_WORKER + CONNECTIONS_BESIDE
    if workers and others + needed > seen.allowed:
        yield Finding(
            Code.CONNECTIONS, "budget", Severity.WARNING,
            f"{workers} workers need {needed} connections at least, and the server allows {seen.allowed}, of which others have {others}",
            "max_connections is smaller than maxReplicas × 3 and what else is connected: a scale-up would lock everybody out.",
            advice, {**evidence, "workers": workers, "needed": needed},
        )  # fmt: skip


def bloat(facts: Facts) -> Iterator[Finding]:
    """More dead rows than live ones, or a vacuum that is switched off."""
    counters = facts.second.counters
    if counters is None:
        return
    if not counters.autovacuum:
        yield Finding(
            Code.BLOAT, "autovacuum_off", Severity.WARNING, "autovacuum is off for this table; each lease leaves two or more dead rows",
            "It was switched off on the server or on the table.",
            f"ALTER TABLE {facts.table} SET (autovacuum_enabled = true), and autovacuum = on in postgresql.conf",
            {"dead_rows": counters.dead},
        )  # fmt: skip
    if counters.dead > counters.live + facts.limits.dead_rows:
        yield Finding(
            Code.BLOAT, "dead_rows", Severity.WARNING,
            f"{counters.dead} dead rows beside {counters.live} live ones ({counters.bytes // 2**20} MiB)",
            "Vacuum does not keep up, or something keeps it from removing rows (see PINNED_XMIN).",
            f"VACUUM {facts.table}; then autovacuum_vacuum_cost_limit up, or end what pins them",
            {"dead_rows": counters.dead, "live_rows": counters.live, "bytes": counters.bytes,
             "last_autovacuum": counters.last_autovacuum.isoformat() if counters.last_autovacuum else None},
        )  # fmt: skip


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (waits, holders, hidden, connections, pins, bloat)
