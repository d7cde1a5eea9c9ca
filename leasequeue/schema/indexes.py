"""Judges the indexes: which of ours are missing, broken or of another form, and which of the user's cost more than they give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leasequeue import sql
from leasequeue.schema.columns import quote
from leasequeue.schema.facts import Facts, Index
from leasequeue.schema.report import Finding
from leasequeue.schema.spec import INDEXES, index_statement, normalised_index, object_name

# Written by every renewal: in an index or its predicate they make each renewal write to all indexes.
HOT_COLUMNS = ("lease_expires_at", "lease_token")
MOVING_COLUMNS = ("state", "leased_by", "leased_at", *HOT_COLUMNS, "attempt", "crash_count", "run_at", "resolved_at")


@dataclass(frozen=True, slots=True)
class Wanted:
    """An index to build.

    Args:
        name: its final name.
        statement: name of the statement that builds it.
        stale: an index of that name exists, works and has another form: it is replaced after the new one is built.
        broken: an index of that name exists and is INVALID: it is dropped first.
    """

    name: str
    statement: str
    stale: bool = False
    broken: bool = False


def wanted_indexes(facts: Facts, *, strict_lanes: bool) -> list[Wanted]:
    """Indexes that adoption builds."""
    wanted = [
        found
        for what in INDEXES
        if (found := _judge(facts, what, index_statement(what, strict_lanes=strict_lanes))) is not None
    ]
    if not any(index.arbitrates and index.keys == ("idempotency_key",) for index in facts.indexes.values()):
        wanted.append(_judge(facts, "idempotency_key", "schema_index_idempotency_key") or _again(facts))
    return wanted


def _again(facts: Facts) -> Wanted:
    return Wanted(object_name(facts.table, "idempotency_key"), "schema_index_idempotency_key", stale=True)


def _judge(facts: Facts, what: str, statement: str) -> Wanted | None:
    name = object_name(facts.table, what)
    index = facts.indexes.get(name)
    if index is None:
        return Wanted(name, statement)
    if not index.valid:
        return Wanted(name, statement, broken=True)
    if normalised_index(index.definition) != normalised_index(sql.text(statement)):
        return Wanted(name, statement, stale=True)
    return None


def index_gaps(facts: Facts, *, strict_lanes: bool) -> Iterator[Finding]:
    """What adoption mends about indexes."""
    for wanted in wanted_indexes(facts, strict_lanes=strict_lanes):
        how = "is INVALID" if wanted.broken else "has another form" if wanted.stale else "is missing"
        yield Finding("INDEX", f"index {wanted.name} {how}", adoptable=True)


def costly_indexes(facts: Facts) -> Iterator[Finding]:
    """Warns of the user's indexes that every claim, renewal or completion has to write to and LeaseQueue never reads."""
    ours = {object_name(facts.table, what) for what in (*INDEXES, "idempotency_key")}
    for index in facts.indexes.values():
        if index.name in ours or index.constraint or index.unique:
            continue
        yield from _cost(facts, index)


def _cost(facts: Facts, index: Index) -> Iterator[Finding]:
    words = set(normalised_words(index.definition))
    drop = f"DROP INDEX CONCURRENTLY {quote(facts.schema)}.{quote(index.name)}"
    hot = [column for column in HOT_COLUMNS if column in words]
    if hot:
        yield Finding("RENEWAL_NOT_HOT", f"index {index.name} holds {', '.join(hot)}: each renewal writes to every index", drop)
    elif words & set(MOVING_COLUMNS):
        yield Finding(
            "INDEX_UNUSED",
            f"index {index.name} is read by no statement of LeaseQueue (scanned {index.scans} times so far), yet claims and "
            "completions write to it; once no plain-SQL client needs it, drop it",
            drop,
        )


def normalised_words(definition: str) -> list[str]:
    """Identifiers in the keys and the predicate of an index definition."""
    tail = definition.partition(" USING ")[2]
    return "".join(c if c.isalnum() or c == "_" else " " for c in tail).split()
