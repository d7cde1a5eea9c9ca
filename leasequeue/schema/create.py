"""`schema create`: makes the table of a new queue, with the user's typed columns and our lease columns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import errors, sql

from leasequeue import sql as statements
from leasequeue.errors import BadInput, TableMissing
from leasequeue.run import run
from leasequeue.schema import control
from leasequeue.schema.adopt import check_statement, complete
from leasequeue.schema.checks import Verdict
from leasequeue.schema.ddl import Conn, Statement, raw, render, require_own_connection, short_transaction, turn
from leasequeue.schema.facts import Facts, inspect_flow, require_table
from leasequeue.schema.report import Report
from leasequeue.schema.spec import (
    CHECKS,
    INDEXES,
    LEASE_COLUMN_NAMES,
    LEASE_COLUMNS,
    LeaseColumn,
    index_statement,
    object_name,
)
from leasequeue.schema.verify import checks_flow, refusals, verify
from leasequeue.table import check_name, quoted

UUIDV7_SINCE = 180000
NO_CHECKS = Verdict(drop=(), extra=(), refused=())
# A type name and its modifiers, nothing else: what follows a type in CREATE TABLE is syntax.
_TYPE = re.compile(r'[A-Za-z_"][A-Za-z0-9_ ."]*(\(\s*\d+\s*(,\s*-?\d+\s*)?\))?[A-Za-z ]*(\[\s*\])*')


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column of the user's.

    Args:
        name: column name, taken literally, at most 63 bytes; not a lease column.
        type: a type that the server knows, such as `numeric(18,2)`; never a default or a constraint.
        not_null: whether rows must have a value.
    """

    name: str
    type: str
    not_null: bool = False

    @classmethod
    def parse(cls, text: str) -> ColumnSpec:
        """Read `NAME:TYPE` or `NAME:TYPE NOT NULL`.

        Raises:
            BadInput: no colon, no name or no type.
        """
        name, colon, kind = text.partition(":")
        bare = re.sub(r"\s+not\s+null\s*$", "", kind, flags=re.IGNORECASE).strip()
        if not (name and colon and bare):
            raise BadInput("column", text, "must be NAME:TYPE, such as amount:numeric(18,2) or site:text NOT NULL")
        return cls(name, bare, not_null=bare != kind.strip())


def create(
    conn: Conn,
    table: str,
    schema: str = "public",
    *,
    columns: Sequence[ColumnSpec] = (),
    id_type: str = "uuid",
    strict_lanes: bool = False,
) -> Report:
    """Make a queue's table. Run again with the same columns it changes nothing (and finishes what is unfinished).

    Args:
        conn: a direct autocommit connection of a role that may create tables in the schema.
        table: table name, at most 63 bytes.
        schema: an existing schema.
        columns: the user's own columns.
        id_type: uuid (uuidv7 where the server has it), bigint (identity) or text (given by the caller at enqueue).
        strict_lanes: build the claim index for strict lanes.

    Raises:
        BadInput: a name, type or the connection does not fit, or the table exists with other columns.
        TableMissing: the schema does not exist.
        SchemaBusy: another create or adopt of it runs.
    """
    require_own_connection(conn)
    check_name("table", table)
    kinds = _checked_types(conn, columns)
    if id_type not in ("uuid", "bigint", "text"):
        raise BadInput("id_type", id_type, "must be uuid, bigint or text")
    with turn(conn, f"{schema}.{table}"):
        facts = run(conn, inspect_flow(table, schema))
        if not facts.schema_exists or not facts.schema_usable:
            require_table(facts)
        if facts.oid is None:
            control.install(conn)
            _make(conn, facts, columns, id_type, strict_lanes)
        else:
            _require_same(facts, columns, kinds, id_type)
        facts = run(conn, inspect_flow(table, schema))
        complete(conn, facts, run(conn, checks_flow(facts)), strict_lanes=strict_lanes)
    return verify(conn, table, schema, strict_lanes=strict_lanes)


def _checked_types(conn: Conn, columns: Sequence[ColumnSpec]) -> dict[str, str]:
    """Server's name for each column's type, without modifiers."""
    kinds: dict[str, str] = {}
    for column in columns:
        check_name("column", column.name)
        if column.name in LEASE_COLUMN_NAMES:
            raise BadInput("column", column.name, "is a lease column; LeaseQueue makes it itself")
        if column.name in kinds:
            raise BadInput("column", column.name, "is given twice")
        kinds[column.name] = _server_type(conn, column)
    return kinds


def _server_type(conn: Conn, column: ColumnSpec) -> str:
    problem = "must be NAME:TYPE with a type that the server knows, such as numeric(18,2), text, jsonb, timestamptz"
    if not _TYPE.fullmatch(column.type):
        raise BadInput("column", f"{column.name}:{column.type}", problem)
    try:
        row = conn.execute(statements.text("schema_type"), {"type": column.type}).fetchone()
    except (errors.SyntaxError, errors.DataError, errors.InvalidSchemaName, errors.UndefinedObject):
        row = None
    if row is None or row[0] is None:
        raise BadInput("column", f"{column.name}:{column.type}", problem)
    return str(row[0])


def _require_same(facts: Facts, columns: Sequence[ColumnSpec], kinds: dict[str, str], id_type: str) -> None:
    """The table exists: it must be the one that was asked for.

    Raises:
        BadInput: it is no ordinary table, somebody's table that is no queue, or a queue of other columns.
    """
    kind = next((finding.text for finding in refusals(facts, NO_CHECKS) if finding.code == "KIND"), None)
    if kind:
        raise BadInput("table", facts.label, f"exists already: {kind}; choose another name")
    if not facts.has("state", "lease_token"):
        raise BadInput(
            "table", facts.label, "exists already and is no lease queue; nothing was changed: choose another name, or if its rows are to become "
            f"items: leasequeue schema adopt --schema {shlex.quote(facts.schema)} --table {shlex.quote(facts.table)}",
        )  # fmt: skip
    own = {name: column for name, column in facts.columns.items() if name not in LEASE_COLUMN_NAMES}
    differs = [f"column {name} is missing" for name in kinds if name not in own]
    differs += [f"column {name} is not asked for" for name in own if name not in kinds]
    for column in columns:
        if column.name in own and own[column.name].type.partition("(")[0] != kinds[column.name].partition("(")[0]:
            differs.append(f"column {column.name} is {own[column.name].type}, not {kinds[column.name]}")
    if facts.has("id") and facts.columns["id"].type != id_type:
        differs.append(f"column id is {facts.columns['id'].type}, not {id_type}")
    found = [finding.text for finding in refusals(facts, NO_CHECKS)]
    if differs or found:
        raise BadInput("table", facts.label, "exists already with another shape: " + "; ".join([*differs, *found]))


def _make(conn: Conn, facts: Facts, columns: Sequence[ColumnSpec], id_type: str, strict_lanes: bool) -> None:
    table = sql.Identifier(facts.schema, facts.table)
    lines = [_id_column(id_type, facts.server_version), *(_lease_line(column) for column in LEASE_COLUMNS)]
    lines += [_user_line(column) for column in columns]
    ddl: list[Statement] = [render("schema_create_table", table=table, columns=sql.SQL(", ").join(lines))]
    ddl += [check_statement(facts.schema, facts.table, what) for what in CHECKS]
    for what in (*INDEXES, "idempotency_key"):
        statement = (
            "schema_index_idempotency_key" if what == "idempotency_key" else index_statement(what, strict_lanes=strict_lanes)
        )
        name = sql.Identifier(object_name(facts.table, what))
        ddl.append(render(statement, table=table, name=name, concurrently=sql.SQL("")))
    try:
        short_transaction(conn, ddl, oid=None, label=facts.label)
    except errors.DuplicateTable:
        raise BadInput(
            "table", facts.label, "the name, or that of one of its indexes, is taken in this schema by something that is no table (a "
            "sequence, a type, an index); choose another",
        ) from None  # fmt: skip
    except errors.InsufficientPrivilege:
        grant = f"permission denied; run: GRANT CREATE ON SCHEMA {quoted(facts.schema)} TO the role"
        raise TableMissing(facts.sql_name, grant) from None


def _id_column(id_type: str, server_version: int) -> sql.Composable:
    if id_type == "bigint":
        return raw("id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
    if id_type == "text":
        return raw("id text PRIMARY KEY")
    # Version 7 rises with time: inserts stay at one end of the primary key.
    default = "uuidv7()" if server_version >= UUIDV7_SINCE else "gen_random_uuid()"
    return raw(f"id uuid PRIMARY KEY DEFAULT {default}")


def _lease_line(column: LeaseColumn) -> sql.Composable:
    not_null = " NOT NULL" if column.not_null or column.name == "trace_id" else ""
    default = f" DEFAULT {column.default}" if column.default else ""
    return sql.SQL("{} {}").format(sql.Identifier(column.name), raw(column.type + not_null + default))


def _user_line(column: ColumnSpec) -> sql.Composable:
    return sql.SQL("{} {}").format(sql.Identifier(column.name), raw(column.type + (" NOT NULL" if column.not_null else "")))
