"""`schema adopt`: gives a live table lease columns, indexes and checks, while its users go on reading and writing.

Order: refuse what cannot be mended (nothing is altered then); columns, defaults and NOT VALID checks in one short
transaction; indexes CONCURRENTLY; old rows put right in pages; checks validated; version recorded last. Every step looks at
what is there, so an interrupted run is finished by the next one. No step rewrites the table.

Weak: backfilled trace ids and ends of leases are UPDATEs, which fire the table's own row triggers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from psycopg import errors, sql

from leasequeue import sql as statements
from leasequeue.errors import BadInput, LeaseQueueError, NotAQueue
from leasequeue.run import run
from leasequeue.schema import checks, columns, control, indexes
from leasequeue.schema.ddl import (
    LOCK_DEADLINE_S,
    Conn,
    SchemaBusy,
    Statement,
    concurrently,
    patiently,
    raw,
    render,
    require_own_connection,
    scan,
    short_transaction,
    turn,
)
from leasequeue.schema.facts import Facts, inspect_flow, require_table
from leasequeue.schema.report import Finding, Report
from leasequeue.schema.spec import CHECKS, LEASE_COLUMNS, OPTIONS, STATES, LeaseColumn, object_name
from leasequeue.schema.verify import checks_flow, looks_like_queue, refusals, verify

PAGE_ROWS = 1000
PAGE_BLOCKS = 500


class CannotAdopt(LeaseQueueError):
    """Adoption refused: only a person can mend what was found. Nothing was altered.

    Args:
        table: `schema.table`.
        findings: each with the SQL that mends it, where there is one.
    """

    def __init__(self, table: str, findings: Iterable[Finding]) -> None:
        self.table, self.findings = table, tuple(findings)
        told = "; ".join(f.text + (f" (run: {f.fix})" if f.fix else "") for f in self.findings)
        super().__init__(f"table {table} cannot be adopted: {told}")


def adopt(
    conn: Conn,
    table: str,
    schema: str = "public",
    *,
    confirm: str | None = None,
    strict_lanes: bool = False,
) -> Report:
    """Make a lease queue of an existing table, keeping every column, row, index, trigger and client.

    Args:
        conn: a direct autocommit connection of the table's owner.
        table: table name, exactly as stored.
        schema: schema name.
        confirm: `schema.table`, needed where the table has no `state` and `leased_by` yet; if given it must match.
        strict_lanes: build the claim index for strict lanes.

    Raises:
        BadInput: a name, `confirm`, or the connection does not fit.
        TableMissing: no such table.
        NotAQueue: the table does not look like a queue and was not named by `confirm`.
        CannotAdopt: a view, a partitioned table, columns of a wrong type, a CHECK that cannot be read; says what to run.
        SchemaBusy: its lock could not be had within 60 s, or another adopt runs.
    """
    require_own_connection(conn)
    with turn(conn, f"{schema}.{table}"):
        facts = _inspect(conn, table, schema)
        require_table(facts)
        _confirmed(facts, confirm)
        verdict = run(conn, checks_flow(facts))
        _refuse(conn, facts, verdict)
        complete(conn, facts, verdict, strict_lanes=strict_lanes)
    return verify(conn, table, schema, strict_lanes=strict_lanes)


def complete(conn: Conn, facts: Facts, verdict: checks.Verdict, *, strict_lanes: bool) -> None:
    """Everything that adoption does after its refusals; the caller holds the name's turn."""
    control.install(conn)
    adds_trace = not facts.has("trace_id")
    _alter(conn, facts, verdict)
    _build_indexes(conn, facts, strict_lanes=strict_lanes)
    _end_leases(conn, facts)
    if adds_trace or _any(conn, "adopt_without_trace", facts):
        _give_trace_ids(conn, facts)
    _validate(conn, facts)
    if facts.oid is not None:
        control.stamp(conn, facts.oid)


def _inspect(conn: Conn, table: str, schema: str) -> Facts:
    return run(conn, inspect_flow(table, schema))


def _confirmed(facts: Facts, confirm: str | None) -> None:
    if confirm is not None and confirm != facts.label:
        raise BadInput("confirm", confirm, f"must be {facts.label!r}, the table to adopt")
    if confirm is None and facts.kind == "r" and not looks_like_queue(facts):
        lacking = [name for name in ("state", "leased_by") if not facts.has(name)]
        raise NotAQueue(
            f"table {facts.sql_name} does not look like a queue (no column {' and no column '.join(lacking)}); its rows would "
            f"all become items. If it is meant, confirm it by name: --confirm {facts.label}"
        )


def _refuse(conn: Conn, facts: Facts, verdict: checks.Verdict) -> None:
    found = refusals(facts, verdict)
    if not found and not facts.owned:
        found = [Finding("OWNER", "only its owner may alter it: connect as the owner, or as a role that is a member of it")]
    if not found:
        found = [*_unknown_states(conn, facts, verdict), *_nulls(conn, facts)]
    if found:
        raise CannotAdopt(facts.label, found)


def _unknown_states(conn: Conn, facts: Facts, verdict: checks.Verdict) -> list[Finding]:
    if not facts.has("state"):
        return []
    known = [*STATES, *verdict.extra]
    rows = scan(conn, render("adopt_unknown_states", table=_name(facts)), {"known": known})
    if not rows:
        return []
    counts = ", ".join(f"{state!r}: {count}" for state, count in rows)
    mend = f"UPDATE {facts.sql_name} SET state = upper(btrim(state)) WHERE state <> upper(btrim(state)) -- or as fits"
    return [Finding("UNKNOWN_STATE", f"rows are in states that nobody would serve ({counts})", mend)]


def _nulls(conn: Conn, facts: Facts) -> list[Finding]:
    found = []
    for column in columns.nullable_columns(facts):
        if _any(conn, "adopt_has_null", facts, column=sql.Identifier(column.name)):
            mend = f"UPDATE {facts.sql_name} SET {column.name} = {column.default} WHERE {column.name} IS NULL"
            found.append(Finding("COLUMN_NULL", f"column {column.name} is NULL in some rows", mend))
    return found


def _any(conn: Conn, statement: str, facts: Facts, **parts: sql.Composable) -> bool:
    return bool(scan(conn, render(statement, table=_name(facts), **parts))[0][0])


def _name(facts: Facts) -> sql.Identifier:
    return sql.Identifier(facts.schema, facts.table)


def _alter(conn: Conn, facts: Facts, verdict: checks.Verdict) -> None:
    """Columns, defaults, options and checks for new rows: catalog changes only, in one short transaction."""
    ddl = [
        *_column_ddl(facts),
        *_check_ddl(facts, verdict),
        *_not_null_ddl(facts),
        *_option_ddl(facts),
    ]
    if ddl:
        short_transaction(conn, ddl, oid=facts.oid, label=facts.label)


def _column_ddl(facts: Facts) -> list[Statement]:
    table = _name(facts)
    ddl: list[Statement] = []
    for column in columns.missing_columns(facts):
        ddl.append(render("adopt_add_column", table=table, **_column_parts(column)))
        if column.default and column.default != _first_default(column):
            ddl.append(_set_default(facts, column))
    return ddl + [_set_default(facts, column) for column in columns.missing_defaults(facts)]


def _column_parts(column: LeaseColumn) -> dict[str, sql.Composable]:
    default = _first_default(column)
    return {
        "column": sql.Identifier(column.name),
        "type": raw(column.type),
        "default": raw(f"DEFAULT {default}" if default else ""),
        "not_null": raw("NOT NULL" if column.not_null else ""),
    }


def _first_default(column: LeaseColumn) -> str | None:
    """Default that the rows of now get. A trace id has none: one for all would be no identity, one each a rewrite."""
    return None if column.name == "trace_id" else column.adopt_default or column.default


def _set_default(facts: Facts, column: LeaseColumn) -> sql.Composed:
    return render(
        "adopt_set_default",
        table=_name(facts),
        column=sql.Identifier(column.name),
        default=raw(column.default or "NULL"),
    )


def _check_ddl(facts: Facts, verdict: checks.Verdict) -> list[Statement]:
    present = {check.name for check in facts.checks} - set(verdict.drop)
    ddl: list[Statement] = [render("adopt_drop_check", table=_name(facts), name=sql.Identifier(name)) for name in verdict.drop]
    return ddl + [
        check_statement(facts.schema, facts.table, what, extra=verdict.extra, validity="NOT VALID")
        for what in CHECKS
        if object_name(facts.table, what) not in present
    ]


def check_statement(schema: str, table: str, what: str, *, extra: Iterable[str] = (), validity: str = "") -> sql.Composed:
    """ALTER TABLE that adds one of our checks."""
    states = sql.SQL(", ").join(sql.Literal(state) for state in (*STATES, *extra))
    return render(
        f"schema_check_{what}",
        table=sql.Identifier(schema, table),
        name=sql.Identifier(object_name(table, what)),
        states=states,
        validity=raw(validity),
    )


def _not_null_ddl(facts: Facts) -> list[Statement]:
    present = {check.name for check in facts.checks}
    return [
        render(
            "adopt_check_not_null",
            table=_name(facts),
            column=sql.Identifier(column.name),
            name=sql.Identifier(object_name(facts.table, f"nn_{column.name}")),
        )
        for column in columns.nullable_columns(facts)
        if object_name(facts.table, f"nn_{column.name}") not in present
    ]


def _option_ddl(facts: Facts) -> list[Statement]:
    """Options that the owner has not set himself."""
    wanted = [f"{key} = {value}" for key, value in OPTIONS.items() if key not in facts.options]
    return [render("adopt_options", table=_name(facts), options=raw(", ".join(wanted)))] if wanted else []


def _build_indexes(conn: Conn, facts: Facts, *, strict_lanes: bool) -> None:
    facts = _inspect(conn, facts.table, facts.schema)  # the primary key of columns just added, INVALID leftovers
    with concurrently(conn):
        for wanted in indexes.wanted_indexes(facts, strict_lanes=strict_lanes):
            _build_index(conn, facts, wanted)


def _build_index(conn: Conn, facts: Facts, wanted: indexes.Wanted) -> None:
    """Build one index beside the one it replaces; whatever an earlier build left INVALID is dropped first."""
    new = f"{wanted.name[:50]}_lq_new" if wanted.stale else wanted.name
    _drop_index(conn, facts, new)
    statement = render(wanted.statement, table=_name(facts), name=sql.Identifier(new), concurrently=sql.SQL("CONCURRENTLY"))
    try:
        conn.execute(statement, prepare=False)
    except errors.UniqueViolation as error:
        _drop_index(conn, facts, new)
        raise CannotAdopt(facts.label, [_duplicates(facts, error)]) from None
    except errors.LockNotAvailable:
        raise SchemaBusy(f"index {new} could not be built: a transaction older than it does not end; run adopt again") from None
    if wanted.stale:
        _drop_index(conn, facts, wanted.name)
        rename = render("adopt_rename_index", index=sql.Identifier(facts.schema, new), name=sql.Identifier(wanted.name))
        short_transaction(conn, [rename], oid=facts.oid, label=facts.label)


def _drop_index(conn: Conn, facts: Facts, name: str) -> None:
    conn.execute(render("adopt_drop_index", index=sql.Identifier(facts.schema, name)))


def _duplicates(facts: Facts, error: errors.UniqueViolation) -> Finding:
    column = "idempotency_key"
    look = f"SELECT {column}, count(*) FROM {facts.sql_name} GROUP BY 1 HAVING count(*) > 1"
    return Finding("DUPLICATE_KEY", f"column {column} holds a value twice ({error.diag.message_detail})", look)


def _end_leases(conn: Conn, facts: Facts) -> None:
    """ASSIGNED rows without an end get one. A row that its client is completing is waited for, at most `LOCK_DEADLINE_S`."""
    page = render("adopt_end_leases", table=_name(facts))
    count = render("adopt_leases_without_end", table=_name(facts))
    deadline = time.monotonic() + LOCK_DEADLINE_S
    while scan(conn, count)[0][0]:
        if not _update(conn, facts, page, {"n": PAGE_ROWS}):
            _wait_for_rows(facts, deadline)


def _give_trace_ids(conn: Conn, facts: Facts) -> None:
    page = render("adopt_trace_ids", table=_name(facts))
    deadline = time.monotonic() + LOCK_DEADLINE_S
    while True:
        blocks = int(scan(conn, raw(statements.text("adopt_pages")), {"oid": facts.oid})[0][0])
        for first in range(0, blocks, PAGE_BLOCKS):
            upto = first + PAGE_BLOCKS
            _update(conn, facts, page, {"first": f"({first},0)", "upto": f"({upto},0)"})
        if not _any(conn, "adopt_without_trace", facts):
            return
        _wait_for_rows(facts, deadline)


def _update(conn: Conn, facts: Facts, statement: sql.Composed, params: dict[str, object]) -> int:
    def once() -> int:
        with conn.transaction():
            return conn.execute(statement, params).rowcount

    return patiently(conn, once, oid=facts.oid, label=facts.label)


def _wait_for_rows(facts: Facts, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise SchemaBusy(f"table {facts.label}: rows stay locked by a long transaction; end it and run adopt again")
    time.sleep(0.2)


def _validate(conn: Conn, facts: Facts) -> None:
    """Prove the new checks for old rows, then turn the proofs of NOT NULL into NOT NULL."""
    now = _inspect(conn, facts.table, facts.schema)
    ours = {object_name(facts.table, what): None for what in CHECKS}
    proofs = {object_name(facts.table, f"nn_{column.name}"): column for column in LEASE_COLUMNS if column.not_null}
    for check in now.checks:
        if check.name in {**ours, **proofs} and not check.validated:
            scan(conn, render("adopt_validate", table=_name(facts), name=sql.Identifier(check.name)))
    ddl = [
        render(
            "adopt_set_not_null",
            table=_name(facts),
            column=sql.Identifier(proofs[check.name].name),
            name=sql.Identifier(check.name),
        )
        for check in now.checks
        if check.name in proofs
    ]
    if ddl:
        short_transaction(conn, ddl, oid=facts.oid, label=facts.label)
