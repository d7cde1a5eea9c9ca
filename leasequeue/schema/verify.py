"""`schema verify`: is this table ready as a lease queue, and if not, what mends it? Reads only."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg import errors, sql

from leasequeue.run import Flow, Query, arun, run, single
from leasequeue.schema import checks, columns, indexes
from leasequeue.schema.ddl import raw, render
from leasequeue.schema.facts import Facts, inspect_flow, require_table
from leasequeue.schema.report import Finding, Report, adopt_command
from leasequeue.schema.spec import SCHEMA_VERSION, STATES

KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "p": "a partitioned table"}


def verify(conn: psycopg.Connection[Any], table: str, schema: str = "public", *, strict_lanes: bool = False) -> Report:
    """Judge a table; changes nothing.

    Args:
        conn: any connection.
        table: table name, exactly as stored, at most 63 bytes.
        schema: schema name, likewise.
        strict_lanes: which form of the claim index the queue needs.

    Raises:
        BadInput: a name that PostgreSQL would cut or refuse.
        TableMissing: no such schema or table, or no right to see it.
    """
    return run(conn, verify_flow(table, schema, strict_lanes=strict_lanes))


async def averify(
    conn: psycopg.AsyncConnection[Any], table: str, schema: str = "public", *, strict_lanes: bool = False
) -> Report:
    """Async twin of `verify`."""
    return await arun(conn, verify_flow(table, schema, strict_lanes=strict_lanes))


def verify_flow(table: str, schema: str, *, strict_lanes: bool) -> Flow[Report]:
    """Flow behind `verify`."""
    facts = yield from inspect_flow(table, schema)
    require_table(facts)
    verdict = yield from checks_flow(facts)
    return report(facts, verdict, strict_lanes=strict_lanes)


def checks_flow(facts: Facts) -> Flow[checks.Verdict]:
    """Ask every foreign CHECK over `state` about a row of ours in each state. Writes nothing."""
    refusals: dict[str, list[str]] = {}
    for probe in checks.probes(facts):
        text = render("schema_check_probe", expression=raw(probe.check.expression), columns=_probe_columns(probe))
        try:
            result = yield from single(Query(text.as_string(None).replace("%", "%%"), {}))
        except (errors.DatabaseError, errors.ProgrammingError):
            refusals.setdefault(probe.check.name, []).append(probe.state)  # what cannot be asked cannot be trusted
            continue
        if not result.scalar:
            refusals.setdefault(probe.check.name, []).append(probe.state)
    return checks.judge_checks(facts, refusals)


def _probe_columns(probe: checks.Probe) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{} AS {}").format(raw(value), sql.Identifier(name)) for name, value in probe.columns.items()
    )


def report(facts: Facts, verdict: checks.Verdict, *, strict_lanes: bool) -> Report:
    """Pure verdict over what was found."""
    refused = refusals(facts, verdict)
    gaps = [] if refused and facts.kind != "r" else _gaps(facts, verdict, strict_lanes)
    problems = (*refused, *gaps)
    mendable = any(problem.adoptable for problem in problems) and facts.kind == "r"
    confirm = not looks_like_queue(facts)
    command = adopt_command(facts.schema, facts.table, strict_lanes=strict_lanes, confirm=confirm) if mendable else None
    return Report(facts.label, facts.version, problems, tuple(_warnings(facts, verdict)), command)


def looks_like_queue(facts: Facts) -> bool:
    """Whether a table may be adopted without being named explicitly: it has a state and an owner of leases, or was adopted."""
    return facts.has("state", "leased_by") or facts.version is not None


def refusals(facts: Facts, verdict: checks.Verdict) -> list[Finding]:
    """What `adopt` cannot mend."""
    if facts.kind in KINDS:
        return [Finding("KIND", f"it is {KINDS[facts.kind]}; a lease queue needs an ordinary table")]
    found = []
    if facts.is_partition:
        found.append(Finding("KIND", "it is a partition of another table; a lease queue needs a table of its own"))
    elif facts.inherits:
        found.append(Finding("KIND", "it takes part in table inheritance; a lease queue needs a table of its own"))
    if facts.persistence == "t":
        found.append(Finding("KIND", "it is a temporary table, which no worker can see"))
    return [*found, *columns.wrong_columns(facts), *_wrong_default(facts, verdict), *verdict.refused]


def _wrong_default(facts: Facts, verdict: checks.Verdict) -> list[Finding]:
    """A default outside the allowed states would make every plain INSERT fail once our CHECK stands."""
    default = facts.columns["state"].default if facts.has("state") else None
    literal = re.fullmatch(r"'([^']*)'::.*", default or "")
    if literal is None or literal[1] in (*STATES, *verdict.extra):
        return []
    alter = f"ALTER TABLE {facts.sql_name} ALTER COLUMN state SET DEFAULT 'PENDING'"
    return [Finding("STATE_DEFAULT", f"the default of column state is {default}, which nobody would serve", alter)]


def _gaps(facts: Facts, verdict: checks.Verdict, strict_lanes: bool) -> list[Finding]:
    found = [
        *columns.column_gaps(facts),
        *checks.check_gaps(facts, verdict),
        *indexes.index_gaps(facts, strict_lanes=strict_lanes),
    ]
    if facts.control_table and not facts.control_usable:
        grant = "GRANT USAGE ON SCHEMA leasequeue TO the role; GRANT SELECT ON leasequeue.schema_version TO the role"
        return [*found, Finding("CONTROL_DENIED", "permission denied for the control schema leasequeue", grant)]
    if facts.control_version is None or facts.control_version < SCHEMA_VERSION:
        found.append(Finding("CONTROL_MISSING", "the control schema leasequeue is missing or older", adoptable=True))
    if facts.version is None or facts.version < SCHEMA_VERSION:
        found.append(Finding("VERSION", "the table was not adopted, or by an older version", adoptable=True))
    return found


def _warnings(facts: Facts, verdict: checks.Verdict) -> list[Finding]:
    found = [*checks.extra_states(verdict), *columns.float_columns(facts), *indexes.costly_indexes(facts)]
    if facts.persistence == "u":
        fix = f"ALTER TABLE {facts.sql_name} SET LOGGED -- rewrites the table"
        found.append(Finding("UNLOGGED", "the table is unlogged: a crash of the server empties it", fix))
    if facts.row_security:
        found.append(Finding("ROW_SECURITY", "row-level security may hide rows from workers and from the reclaimer"))
    if facts.kind == "r" and "fillfactor" not in facts.options:
        found.append(Finding("OPTIONS", "no fillfactor is set: renewals may not stay HOT", adoptable=True))
    return found
