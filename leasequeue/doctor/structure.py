"""Judges the table itself: indexes, CHECKs, types of columns, exactness of amounts. Pure; mostly what `schema verify` says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from leasequeue.doctor import remedy
from leasequeue.doctor.facts import Counters, Facts
from leasequeue.doctor.finding import Code, Finding, Severity
from leasequeue.schema import indexes
from leasequeue.schema.columns import FLOATS, NAIVE, quote
from leasequeue.schema.facts import Column
from leasequeue.schema.spec import LEASE_COLUMN_NAMES, LEASE_COLUMNS, object_name

# Words of a column's name that say: this is money. Compared word by word, so that `discount_rate` is meant and `account` is not.
MONEY_WORDS = frozenset(
    (
        "amount", "amt", "balance", "charge", "commission", "cost", "credit", "debit", "deposit", "discount", "dollars", "euros",
        "fee", "fees", "interest", "money", "paid", "payment", "premium", "price", "proceeds", "refund", "revenue", "salary",
        "subtotal", "tax", "total", "turnover", "usd", "eur", "gbp", "chf", "variance", "vat", "wage", "cents",
    )
)  # fmt: skip
CLAIM_INDEXES = ("claim", "lane_claim", "lane_head")
CHECK_CODES = ("CHECK_MISSING", "CHECK_NOT_VALID", "STATE_CHECK")
# So many items were claimed, and the key was looked up as often: then an index that was never read is not merely young.
ESTABLISHED = 1_000
# Sessions hand in their counters up to some seconds late: one lease and one read of the table prove nothing yet.
SEEN_CLAIMS = 3


def judge(facts: Facts) -> Iterator[Finding]:
    """Every finding about the table's structure. Of a table that is no queue yet only that, and what holds for any table."""
    if not facts.catalog_seen:
        return
    queue = facts.catalog.kind == "r" and facts.catalog.has(*(column.name for column in LEASE_COLUMNS))
    for rule in RULES if queue else (not_ready, inexact_money):
        yield from rule(facts)


def missing_indexes(facts: Facts) -> Iterator[Finding]:
    """Indexes of ours that are missing or have another form."""
    wanted = [index for index in indexes.wanted_indexes(facts.catalog, strict_lanes=facts.strict) if not index.broken]
    claim = object_name(facts.catalog.table, "claim")
    key = object_name(facts.catalog.table, "idempotency_key")
    if wanted:
        names = [index.name for index in wanted]
        worst = Severity.CRITICAL if {claim, key} & set(names) else Severity.WARNING
        what = " and ".join(
            text for text, hit in (("each claim reads and sorts the table", claim in names),
                                   ("a key may be enqueued twice", key in names)) if hit
        ) or "statements that need them read the table"  # fmt: skip
        yield Finding(
            Code.MISSING_INDEX, "missing", worst, f"missing, or of another form: index {', '.join(names)}; {what}",
            "The table was altered after adoption, adopted by an older version, or adoption did not end.",
            remedy.adopt(facts), {"indexes": names, "other_form": [index.name for index in wanted if index.stale]},
        )  # fmt: skip


def invalid_indexes(facts: Facts) -> Iterator[Finding]:
    """Indexes that an interrupted CREATE INDEX CONCURRENTLY left behind."""
    building = facts.second.counters.building if facts.second.counters else ()
    broken = [index.name for index in facts.catalog.indexes.values() if not index.valid and index.name not in building]
    if not broken:
        return
    ours = {index.name for index in indexes.wanted_indexes(facts.catalog, strict_lanes=facts.strict) if index.broken}
    foreign = [name for name in broken if name not in ours]
    steps = [f"DROP INDEX CONCURRENTLY {quote(facts.catalog.schema)}.{quote(name)}" for name in foreign]
    steps += [remedy.adopt(facts)] if ours else []
    yield Finding(
        Code.INVALID_INDEX, "invalid", Severity.CRITICAL if ours else Severity.WARNING,
        f"INVALID: index {', '.join(broken)}; no statement reads them, every write keeps them up",
        "CREATE INDEX CONCURRENTLY was interrupted, or failed on a duplicate.", "; ".join(steps), {"indexes": broken},
    )  # fmt: skip


def unused_claim_index(facts: Facts) -> Iterator[Finding]:
    """Items were leased and no claim index was read for it."""
    name = object_name(facts.catalog.table, "claim")
    before, after = facts.first.counters, facts.second.counters
    if name not in facts.catalog.indexes or before is None or after is None:
        return
    known = {row.key for row in facts.first.leases}
    fresh = sum((row.leased_s or 0.0) < facts.watched_s and row.key not in known for row in facts.second.leases)
    idle = _scans(facts, after) == _scans(facts, before)
    whole = after.seq_scan - before.seq_scan
    claimed = sum(worker.claimed_total for worker in facts.second.workers)
    keys = sum(after.scans.values())
    never = _scans(facts, after) == 0 and claimed >= ESTABLISHED and keys + after.seq_scan >= ESTABLISHED
    if not never and not (idle and min(fresh, whole) >= SEEN_CLAIMS):
        return
    seen = (
        f"{fresh} items were leased and the table was read whole {whole} times within {facts.watched_s:.0f} s"
        if not never
        else f"{claimed} items were claimed so far"
    )
    yield Finding(
        Code.UNUSED_INDEX, "claim_unused", Severity.WARNING, f"index {name} is not read: {seen}",
        "The claims come from another program, whose SQL the index does not fit: order (-priority), created_at, id and "
        "WHERE state = 'PENDING'. Each of them reads the table.",
        "Claim through LeaseQueue: " + remedy.command(facts, "claim", "--worker-id", "W", "--batch-size", "N"),
        {"index": name, "leased_while_watching": fresh, "read_whole": whole, "claim_index_scans": _scans(facts, after)},
    )  # fmt: skip


def _scans(facts: Facts, counters: Counters) -> int:
    return sum(counters.scans.get(object_name(facts.catalog.table, what), 0) for what in CLAIM_INDEXES)


def costly_indexes(facts: Facts) -> Iterator[Finding]:
    """The user's own indexes that LeaseQueue has to write and nobody reads, or that keep renewals from being cheap."""
    busy = facts.second.counters is not None and facts.second.counters.updates >= ESTABLISHED
    for found in indexes.costly_indexes(facts.catalog):
        unread = found.code == "INDEX_UNUSED"
        name = next((i.name for i in facts.catalog.indexes.values() if f"index {i.name} " in found.text), "")
        scans = facts.catalog.indexes[name].scans if name else 0
        if unread and (scans or not busy):
            continue
        yield Finding(
            Code.UNUSED_INDEX, "unread" if unread else "renewal_not_hot", Severity.WARNING, found.text,
            "It is older than the adoption, or made for a question that nobody asks any more.",
            found.fix or "", {"index": name, "scans": scans},
        )  # fmt: skip


def checks(facts: Facts) -> Iterator[Finding]:
    """CHECKs of ours that are missing, not validated, or in the way."""
    for problem in facts.report.problems:
        if problem.code in CHECK_CODES:
            sign = {"CHECK_MISSING": "missing", "CHECK_NOT_VALID": "not_validated"}.get(problem.code, "refuses_states")
            yield Finding(
                Code.CHECK_NOT_VALID, sign, Severity.WARNING if sign == "not_validated" else Severity.CRITICAL, problem.text,
                "Adoption stopped before it could prove the rows that were there, or somebody dropped the constraint.",
                problem.fix or remedy.adopt(facts),
            )  # fmt: skip


def clock_types(facts: Facts) -> Iterator[Finding]:
    """Lease times without a time zone."""
    naive = [
        column.name for column in LEASE_COLUMNS
        if facts.catalog.has(column.name) and facts.catalog.columns[column.name].type == NAIVE
    ]  # fmt: skip
    if naive:
        alter = ", ".join(
            f"ALTER COLUMN {quote(name)} TYPE timestamptz USING {quote(name)} AT TIME ZONE 'UTC'" for name in naive
        )
        yield Finding(
            Code.CLOCK_TYPE, "naive", Severity.CRITICAL,
            f"{', '.join(naive)}: timestamp without time zone; each session reads it in its own zone",
            "The columns were made by hand. Leases end hours early or late, by the zone of whoever looks.",
            f"ALTER TABLE {facts.table} {alter} -- or the zone that the values were written in; rewrites the table",
            {"columns": naive},
        )  # fmt: skip


def not_ready(facts: Facts) -> Iterator[Finding]:
    """Whatever else `schema verify` has against the table."""
    rest = [p for p in facts.report.problems if p.code not in (*CHECK_CODES, "INDEX") and NAIVE not in p.text]
    if rest:
        fixes = [p.fix for p in rest if p.fix]
        adoptable = [remedy.adopt(facts)] if any(p.adoptable for p in rest) else []
        yield Finding(
            Code.NOT_ADOPTED, "not_ready", Severity.CRITICAL, "; ".join(p.text for p in rest),
            "The table was never adopted, only in part, or by an older version.", "; ".join([*fixes, *adoptable]),
            {"problems": [p.code for p in rest]},
        )  # fmt: skip


# --- PRECISION_FAULT -------------------------------------------------------------------------------------------------


def money_like(name: str) -> bool:
    """Whether a column's name speaks of money: `variance_amount`, `unitPrice`, `total`."""
    return bool(MONEY_WORDS & set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")))


def inexact_money(facts: Facts) -> Iterator[Finding]:
    """Amounts of money in binary floating point, or in a type that depends on the locale."""
    for column in facts.catalog.columns.values():
        if column.name in LEASE_COLUMN_NAMES:
            continue
        bare = column.type.removesuffix("[]")
        if bare in FLOATS and money_like(column.name):
            yield _inexact(facts, column, "float_money", "0.1 + 0.2 is not 0.3 in it, and sums change with their order")
        elif bare == "money":
            yield _inexact(facts, column, "money_type", "its digits after the point depend on the server's locale")


def _inexact(facts: Facts, column: Column, sign: str, why: str) -> Finding:
    return Finding(
        Code.PRECISION_FAULT, sign, Severity.CRITICAL, f"column {column.name} is {column.type}: {why}",
        "The column was made with a type for measurements, not for amounts.",
        f"ALTER TABLE {facts.table} ALTER COLUMN {quote(column.name)} TYPE numeric(18,2) USING {quote(column.name)}::numeric(18,2) "
        "-- rewrites the table; compare the sums before and after",
        {"column": column.name, "type": column.type},
    )  # fmt: skip


def not_numbers(facts: Facts) -> Iterator[Finding]:
    """NaN or Infinity in a numeric column."""
    for name, ids in facts.not_numbers.items():
        part = " (in the part of the table that was read)" if facts.not_numbers_sampled else ""
        yield Finding(
            Code.PRECISION_FAULT, "not_a_number", Severity.CRITICAL,
            f"column {name} holds NaN or Infinity in {len(ids)} items{part}: one such row makes every sum NaN",
            "A writer stored the result of a failed calculation; numeric takes it, JSON and money do not.",
            f"Mend the items first (a row that breaks a CHECK refuses every change); then ALTER TABLE {facts.table} ADD CHECK "
            f"({quote(name)} NOT IN ('NaN', 'Infinity', '-Infinity'))",
            {"column": name, "items": len(ids), "sampled": facts.not_numbers_sampled}, ids[:10],
        )  # fmt: skip


RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    not_ready, missing_indexes, invalid_indexes, unused_claim_index, costly_indexes, checks, clock_types, inexact_money, not_numbers,
)  # fmt: skip
