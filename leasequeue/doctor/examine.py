"""Looks at one queue, twice, and judges what was seen."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import errors

from leasequeue.doctor import leases, order, server, structure, writers
from leasequeue.doctor.facts import Blind, Facts
from leasequeue.doctor.finding import Code, Diagnosis, Finding, Severity, ordered
from leasequeue.doctor.limits import Limits
from leasequeue.doctor.look import LOCKED, Looker
from leasequeue.errors import BadInput
from leasequeue.run import callers_transaction, run
from leasequeue.schema.facts import Column, inspect_flow, require_table
from leasequeue.schema.facts import Facts as Catalog
from leasequeue.schema.report import Report, adopt_command
from leasequeue.schema.spec import CHECKS, object_name
from leasequeue.schema.verify import checks_flow, report
from leasequeue.table import LEASE_COLUMNS, Table

JUDGES = (leases.judge, order.judge, writers.judge, structure.judge, server.judge)


def diagnose(conn: psycopg.Connection[Any], table: str, schema: str = "public", *, limits: Limits | None = None) -> Diagnosis:
    """Examine a queue; changes nothing, and blocks nobody: every statement is read-only and bounded.

    Args:
        conn: an idle autocommit connection, kept busy for `limits.watch_s` and a few seconds more.
        table: table name, exactly as stored.
        schema: its schema.
        limits: thresholds; the defaults are those of the queue settings.

    Raises:
        BadInput: a name that PostgreSQL would cut, or a connection inside a transaction.
        TableMissing: no such schema or table, or no right to see it.
        psycopg.Error: the connection is gone.
    """
    if callers_transaction(conn):
        raise BadInput("conn", "in a transaction", "the doctor needs an autocommit connection outside a transaction")
    limits = limits or Limits()
    try:
        catalog = run(conn, inspect_flow(table, schema))
    except errors.LockNotAvailable:  # newer servers lock the table to print its expressions
        return _locked(conn, table, schema, limits)
    require_table(catalog)
    strict = is_strict(catalog) if limits.strict_lanes is None else limits.strict_lanes
    verdict = report(catalog, run(conn, checks_flow(catalog)), strict_lanes=strict)
    facts = look(conn, catalog, verdict, strict=strict, limits=limits)
    return Diagnosis(catalog.label, judge(facts), facts.watched_s)


def _locked(conn: psycopg.Connection[Any], table: str, schema: str, limits: Limits) -> Diagnosis:
    """A table whose definition cannot be read now: look at everything else, above all at who locks it."""
    columns = Table.load(conn, table, schema)
    catalog = unread_catalog(columns)
    facts = look(conn, catalog, Report(catalog.label, None, (), (), None), strict=bool(limits.strict_lanes), limits=limits)
    dark = Blind("the table's definition", *LOCKED)
    facts = replace(facts, catalog_seen=False, blind=(dark, *facts.blind))
    return Diagnosis(catalog.label, judge(facts), facts.watched_s)


def unread_catalog(table: Table) -> Catalog:
    """What is known of a table without reading its definition: names and types of its columns."""
    columns = {name: Column(name, kind, None, "b", True, None, False, False) for name, kind in table.columns.items()}
    return Catalog(
        table.schema, table.name, 0, True, True, table.oid, "r", "p", False, False, False, False, {}, columns, (), {}
    )  # fmt: skip


def is_strict(catalog: Catalog) -> bool:
    """Whether the claim index has the form for strict lanes."""
    index = catalog.indexes.get(object_name(catalog.table, "claim"))
    return index is not None and "lane IS NULL" in index.definition


def look(conn: psycopg.Connection[Any], catalog: Catalog, verdict: Report, *, strict: bool, limits: Limits) -> Facts:
    """See everything that can be seen. A table without the lease columns is judged by its catalog alone."""
    if catalog.kind != "r" or not catalog.has(*LEASE_COLUMNS):
        return Facts(catalog, verdict, strict, limits)
    table = Table(catalog.oid or 0, catalog.schema, catalog.table, _types(catalog))
    adopt = adopt_command(catalog.schema, catalog.table, strict_lanes=strict, confirm=False)
    looker = Looker(conn, table, limits.statement_s, adopt)
    upkeep = looker.upkeep()
    first = looker.snapshot(upkeep)
    second = first
    if limits.watch_s > 0:
        time.sleep(limits.watch_s)
        second = looker.snapshot(upkeep)
    not_numbers, sampled = looker.not_numbers(second.counters.bytes if second.counters else 0)
    return Facts(
        catalog, verdict, strict, limits, first, second, limits.watch_s, upkeep,
        due=looker.due(strict=strict),
        unpromoted=looker.unpromoted(limits.promote_s),
        lanes=looker.lanes() if strict else (),
        suspects=looker.suspects(strict=strict),
        duplicates=None if not catalog.indexes or _keys_unique(catalog) else looker.duplicates(),
        unstamped=looker.unstamped(upkeep),
        unknown_states={} if not catalog.indexes or _states_proved(catalog) else looker.unknown_states(),
        not_numbers=not_numbers,
        not_numbers_sampled=sampled,
        holders=looker.holders(),
        pins=looker.pins(),
        refusing=looker.refusing([check for check in catalog.checks if not check.validated]),
        connections=looker.connections(),
        blind=tuple(looker.blind),
    )  # fmt: skip


def judge(facts: Facts) -> tuple[Finding, ...]:
    """Every finding, worst first. Pure."""
    return ordered([finding for judge_part in JUDGES for finding in judge_part(facts)] + list(blind_spots(facts.blind)))


def blind_spots(blind: tuple[Blind, ...]) -> Iterator[Finding]:
    """What could not be seen, one finding per reason."""
    looks: dict[tuple[str, str], list[str]] = defaultdict(list)
    for spot in blind:
        if spot.look not in looks[spot.reason, spot.fix]:
            looks[spot.reason, spot.fix].append(spot.look)
    for (reason, fix), names in looks.items():
        yield Finding(
            Code.COULD_NOT_LOOK, "refused", Severity.UNKNOWN, f"could not look at {', '.join(names)}: {reason}",
            "The database would not let the doctor see it; what is wrong there is not in this report.", fix, {"looks": names},
        )  # fmt: skip


def _types(catalog: Catalog) -> dict[str, str]:
    return {c.name: c.type if c.length is None else f"{c.type}({c.length})" for c in catalog.columns.values()}


def _keys_unique(catalog: Catalog) -> bool:
    return any(index.arbitrates and index.keys == ("idempotency_key",) for index in catalog.indexes.values())


def _states_proved(catalog: Catalog) -> bool:
    """A validated CHECK of ours: no row can have another state."""
    name = object_name(catalog.table, CHECKS[0])
    return any(check.name == name and check.validated for check in catalog.checks)
