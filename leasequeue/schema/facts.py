"""What the catalog says about a table, as plain values: `create`, `adopt` and `verify` decide from these alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leasequeue import sql
from leasequeue.errors import TableMissing
from leasequeue.run import Flow, Query, single
from leasequeue.table import check_name, quoted


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `type` without its length, `length` of a limited `character varying`."""

    name: str
    type: str
    length: int | None
    kind: str
    not_null: bool
    default: str | None
    identity: bool
    generated: bool


@dataclass(frozen=True, slots=True)
class Check:
    """One CHECK constraint; `expression` as `pg_get_expr` writes it."""

    name: str
    expression: str
    validated: bool
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """One index. `keys` holds None for an expression; `arbitrates`: ON CONFLICT can rely on it."""

    name: str
    definition: str
    valid: bool
    unique: bool
    arbitrates: bool
    constraint: bool
    scans: int
    keys: tuple[str | None, ...]


@dataclass(frozen=True)
class Facts:
    """Everything `schema_inspect.sql` and `control_version.sql` found about one table."""

    schema: str
    table: str
    server_version: int
    schema_exists: bool
    schema_usable: bool
    oid: int | None
    kind: str | None
    persistence: str | None
    is_partition: bool
    inherits: bool
    row_security: bool
    owned: bool
    options: Mapping[str, str]
    columns: Mapping[str, Column]
    checks: tuple[Check, ...]
    indexes: Mapping[str, Index]
    control_table: bool = False
    control_usable: bool = False
    control_version: int | None = None
    version: int | None = None

    @property
    def label(self) -> str:
        """`schema.table`, for people and for `confirm`."""
        return f"{self.schema}.{self.table}"

    @property
    def sql_name(self) -> str:
        """Quoted, qualified name, for SQL that people run."""
        return quoted(self.schema, self.table).replace("%%", "%")

    def has(self, *columns: str) -> bool:
        """True when all of the columns exist."""
        return all(name in self.columns for name in columns)


def inspect_flow(table: str, schema: str) -> Flow[Facts]:
    """Flow that reads the facts.

    Raises:
        BadInput: a name over 63 bytes, empty, or with a NUL byte.
        psycopg.Error: the database said so.
    """
    check_name("schema", schema)
    check_name("table", table)
    result = yield from single(Query(sql.text("schema_inspect"), {"schema": schema, "name": table}))
    found = result.scalar
    raw = json.loads(found) if isinstance(found, str) else found
    versions: dict[str, int | None] = {}
    if raw["control_usable"]:
        for key, queue in (("control_version", 0), ("version", raw["oid"])):
            answer = yield from single(Query(sql.text("control_version"), {"queue": queue}))
            versions[key] = answer.scalar
    return _facts(schema, table, raw, versions)


def require_table(facts: Facts) -> None:
    """Refuse a table that is not there or not to be seen.

    Raises:
        TableMissing: says which of the two, and of schema and table.
    """
    if not facts.schema_exists:
        raise TableMissing(facts.sql_name, f"the schema {facts.schema!r} does not exist")
    if not facts.schema_usable:
        raise TableMissing(
            facts.sql_name,
            f"permission denied for schema {facts.schema!r}; run: GRANT USAGE ON SCHEMA {quoted(facts.schema)} TO the role",
        )
    if facts.oid is None:
        raise TableMissing(
            facts.sql_name, "does not exist in that schema; names are case-sensitive here, as stored in the catalog"
        )


def _facts(schema: str, table: str, raw: Mapping[str, Any], versions: Mapping[str, int | None]) -> Facts:
    plain: dict[str, Any] = {
        key: raw[key]
        for key in (
            "server_version", "schema_exists", "schema_usable", "oid", "kind", "persistence", "is_partition", "inherits",
            "row_security", "owned", "control_table", "control_usable",
        )
    }  # fmt: skip
    return Facts(
        schema=schema,
        table=table,
        options=dict(option.split("=", 1) for option in raw["options"]),
        columns={column["name"]: _column(column) for column in raw["columns"]},
        checks=tuple(_check(check) for check in raw["checks"]),
        indexes={index["name"]: _index(index) for index in raw["indexes"]},
        control_version=versions.get("control_version"),
        version=versions.get("version"),
        **plain,
    )


def _column(raw: Mapping[str, Any]) -> Column:
    base, _, rest = raw["type"].partition("(")
    length = int(rest[:-1]) if base == "character varying" and rest else None
    return Column(
        raw["name"],
        base if length is not None else raw["type"],
        length,
        raw["kind"],
        raw["not_null"],
        raw["default"],
        bool(raw["identity"]),
        bool(raw["generated"]),
    )


def _check(raw: Mapping[str, Any]) -> Check:
    return Check(raw["name"], raw["expression"], raw["validated"], tuple(raw["columns"]))


def _index(raw: Mapping[str, Any]) -> Index:
    arbitrates = raw["valid"] and raw["unique"] and raw["immediate"] and not raw["partial"]
    return Index(
        raw["name"],
        raw["definition"],
        raw["valid"],
        raw["unique"],
        arbitrates,
        raw["constraint"],
        raw["scans"],
        tuple(raw["keys"]),
    )
