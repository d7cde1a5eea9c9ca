"""Judges the marks of writers that go past the lease: plain-SQL clients, repair scripts, other queue programs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from leasequeue.doctor import remedy
from leasequeue.doctor.facts import Facts
from leasequeue.doctor.finding import Code, Finding, Severity, so_many, some

# A clock this far ahead is another machine's, not the time between two statements.
AHEAD_S = 5.0


def judge(facts: Facts) -> Iterator[Finding]:
    """Every finding about writers that bypass the lease."""
    for rule in RULES:
        yield from rule(facts)


def without_token(facts: Facts) -> Iterator[Finding]:
    """ASSIGNED since adoption, and no token: not by a claim of ours."""
    rows = [row for row in facts.second.leases if row.token is None and row.since_adoption]
    ours = sum(row.token is not None for row in facts.second.leases)
    if rows:
        owners = Counter(str(row.leased_by) for row in rows)
        yield Finding(
            Code.BYPASS, "no_token", Severity.WARNING,
            f"{so_many(len(rows), 'item was', 'items were')} leased after adoption without a token, beside {ours} leases of LeaseQueue's",
            "A plain-SQL client claims from the same table. Its completions are not fenced: after its lease ended it overwrites "
            "whoever holds the item then.",
            "Move it to LeaseQueue: " + remedy.command(facts, "claim", "--worker-id", "W", "--batch-size", "N")
            + " and resolve; or let its UPDATE set lease_token = gen_random_uuid() and match it in every later one",
            {"leases": len(rows), "ours": ours, "owners": dict(owners.most_common(10))}, some(row.id for row in rows),
        )  # fmt: skip


def torn(facts: Facts) -> Iterator[Finding]:
    """Waiting items that still carry a token: the state was set back without ending the lease."""
    rows = [item for item in facts.suspects if item.has_token and item.state != "RESOLVED"]
    lasting = sum(item.lease_lasts for item in rows)
    if rows:
        severity = Severity.CRITICAL if lasting else Severity.WARNING
        yield Finding(
            Code.BYPASS, "torn", severity,
            f"{so_many(len(rows), 'item', 'items')} in state {', '.join(sorted({item.state for item in rows}))} with a lease token still set; "
            f"{lasting} of these leases have not ended",
            "A writer set the state and left the lease as it was (a home-made reclaimer, a repair script). Where the lease lasts, "
            "its holder is still at work, and the next claim gives the item to a second one.",
            f"Stop that writer; {remedy.command(facts, 'reclaim')} is what it should call. Then clear the marks: UPDATE {facts.table} "
            "SET leased_by = NULL, leased_at = NULL, lease_expires_at = NULL, lease_token = NULL WHERE state <> 'ASSIGNED' AND "
            f"id::text IN ({remedy.literals(some(item.id for item in rows))})",
            {"items": len(rows), "leases_that_last": lasting}, some(item.id for item in rows),
        )  # fmt: skip


def waiting_again(facts: Facts) -> Iterator[Finding]:
    """Waiting items that were completed before."""
    rows = [item for item in facts.suspects if item.resolved and item.state in ("PENDING", "SCHEDULED")]
    if rows:
        yield Finding(
            Code.BYPASS, "reopened", Severity.CRITICAL,
            f"{so_many(len(rows), 'completed item waits', 'completed items wait')} to be leased again (resolved_at is set)",
            "A writer set finished items back to PENDING; they will be executed a second time.",
            f"If they should not run: UPDATE {facts.table} SET state = 'RESOLVED' WHERE state IN ('PENDING', 'SCHEDULED') AND "
            f"resolved_at IS NOT NULL AND id::text IN ({remedy.literals(some(item.id for item in rows))}); if they should: enqueue "
            "them under a new idempotency_key",
            {"items": len(rows)}, some(item.id for item in rows),
        )  # fmt: skip


def impossible(facts: Facts) -> Iterator[Finding]:
    """Leases that had ended before they began, or that begin in the future."""
    born_dead = [row for row in facts.second.leases if row.ended_at_birth and row.since_adoption]
    ahead = [row for row in facts.second.leases if row.leased_s is not None and row.leased_s < -AHEAD_S]
    if born_dead:
        yield Finding(
            Code.BYPASS, "ended_at_birth", Severity.WARNING,
            f"{so_many(len(born_dead), 'lease', 'leases')} ended no later than taken",
            "A writer sets leased_at and leaves lease_expires_at as an earlier lease left it: the reclaimer takes the item from "
            "under its hands.",
            "Let its UPDATE set lease_expires_at = clock_timestamp() + interval '30 seconds', or claim through LeaseQueue",
            {"leases": len(born_dead), "owners": sorted({str(row.leased_by) for row in born_dead})[:10]},
            some(row.id for row in born_dead),
        )  # fmt: skip
    if ahead:
        yield Finding(
            Code.BYPASS, "clock_ahead", Severity.WARNING,
            f"{so_many(len(ahead), 'lease was', 'leases were')} taken at a time that the database's clock has not reached",
            "A writer uses its own machine's clock, which is ahead; LeaseQueue uses the database's alone.",
            "Let the writer use clock_timestamp() in SQL instead of a time of its own",
            {"leases": len(ahead), "ahead_s": round(max(-(row.leased_s or 0) for row in ahead)),
             "owners": sorted({str(row.leased_by) for row in ahead})[:10]},
            some(row.id for row in ahead),
        )  # fmt: skip


def unstamped(facts: Facts) -> Iterator[Finding]:
    """RESOLVED since adoption, and no resolved_at."""
    found = facts.unstamped
    if found.items:
        more = " or more" if found.items >= 1_000 else ""
        yield Finding(
            Code.BYPASS, "no_resolved_at", Severity.WARNING,
            f"{so_many(found.items, 'item was', 'items were', more)} completed after adoption without resolved_at",
            "A plain-SQL client sets state = 'RESOLVED' itself, past the fence; retention never prunes such items.",
            "Let it call " + remedy.command(facts, "resolve", "--id", "I", "--token", "T", "--worker-id", "W")
            + f"; for the items there are: UPDATE {facts.table} SET resolved_at = coalesce(leased_at, created_at) WHERE state = "
            "'RESOLVED' AND resolved_at IS NULL",
            {"items": found.items}, found.ids,
        )  # fmt: skip


def unknown_states(facts: Facts) -> Iterator[Finding]:
    """States that nobody serves."""
    if facts.unknown_states:
        total = sum(facts.unknown_states.values())
        names = ", ".join(repr(state) for state in facts.unknown_states)
        yield Finding(
            Code.BYPASS, "unknown_state", Severity.CRITICAL,
            f"{so_many(total, 'item is in a state', 'items are in states')} that LeaseQueue does not know: {names}",
            "A writer uses other names ('pending', 'PENDING '), and the CHECK over state is missing or was never validated. Nobody "
            "ever leases these items.",
            f"UPDATE {facts.table} SET state = upper(btrim(state)) WHERE upper(btrim(state)) IN ('PENDING', 'RESOLVED', 'FAILED') "
            f"AND state <> upper(btrim(state)); then: {remedy.adopt(facts)}",
            {"states": dict(facts.unknown_states)},
        )  # fmt: skip


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    without_token, torn, waiting_again, impossible, unstamped, unknown_states,
)  # fmt: skip
