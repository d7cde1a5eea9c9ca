"""A queue's table, resolved once against the catalog and then addressed by its quoted, qualified name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.sql import Identifier

from leasequeue import sql
from leasequeue.errors import BadInput, NotAdopted, TableMissing
from leasequeue.run import Flow, Query, arun, run, single

MAX_NAME_BYTES = 63  # NAMEDATALEN − 1: PostgreSQL cuts longer names silently and may hit another table
LEASE_COLUMNS = (
    "id", "idempotency_key", "state", "priority", "run_at", "lane", "created_at", "leased_by", "leased_at", "lease_expires_at",
    "lease_token", "attempt", "crash_count", "last_error", "result", "resolved_at", "trace_id", "source_hash",
)  # fmt: skip
KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "p": "a partitioned table"}
# format_type() of the key → type name used in casts
ID_TYPES = {"uuid": "uuid", "bigint": "bigint", "integer": "integer", "smallint": "smallint", "text": "text"}


_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def check_name(field_name: str, value: str) -> str:
    """Return a schema or table name that PostgreSQL takes as it is.

    Raises:
        BadInput: empty, longer than 63 bytes, or with a NUL byte.
    """
    if not value:
        raise BadInput(field_name, value, "is empty")
    if "\0" in value:
        raise BadInput(field_name, value, "must not contain a NUL byte")
    size = len(value.encode())
    if size > MAX_NAME_BYTES:
        raise BadInput(field_name, value, f"has {size} bytes; PostgreSQL names have at most {MAX_NAME_BYTES}")
    return value


def quoted(*parts: str) -> str:
    """Qualified identifier as SQL text, safe inside a statement with parameters (a percent sign is doubled)."""
    return Identifier(*parts).as_string(None).replace("%", "%%")


@dataclass(frozen=True)
class Table:
    """A resolved queue table.

    Args:
        oid: PostgreSQL's own id of the table; control rows carry it.
        schema: schema name, unquoted.
        name: table name, unquoted.
        columns: type of each column as `format_type` names it.
        strict: its claim index is that of strict lanes, which holds rows without a lane only.
        rules: it has rules, or had some; PostgreSQL changes no such table inside WITH.
        kept: what other modules have worked out for this table, by their own names.
    """

    oid: int
    schema: str
    name: str
    columns: Mapping[str, str]
    strict: bool = False
    rules: bool = False
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _texts: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def label(self) -> str:
        """`schema.table`, for people."""
        return f"{self.schema}.{self.name}"

    @property
    def id_type(self) -> str:
        """Type of the primary key, as used in casts."""
        return ID_TYPES[self.columns["id"]]

    @property
    def channel(self) -> str:
        """NOTIFY channel that says: rows were enqueued."""
        return f"leasequeue_{self.oid}"

    def has(self, column: str) -> bool:
        """True when the table has the column."""
        return column in self.columns

    def sql(self, name: str, **fragments: str) -> str:
        """Text of the statement `name` for this table.

        Args:
            name: file name in `leasequeue/sql/`, without suffix.
            fragments: further placeholders, already quoted SQL.
        """
        if fragments:
            return self._render(sql.text(name), fragments)
        rendered = self._texts.get(name)
        if rendered is None:
            rendered = self._texts[name] = self._render(sql.text(name), {})
        return rendered

    def looking(self, name: str) -> str:
        """Text that reads the rows which the statement `name` would change now."""
        return self._render(sql.looking(name), {})

    def only(self, name: str) -> str:
        """Text of the statement `name`, bound to the rows `%(only)s`."""
        return self._render(sql.only(name), {})

    def _render(self, text: str, fragments: Mapping[str, str]) -> str:
        parts = {"table": quoted(self.schema, self.name), "id_type": self.id_type, **fragments}
        # One pass: a table may be named "{id_type}".
        return _PLACEHOLDER.sub(lambda found: parts.get(found[1], found[0]), text)

    @classmethod
    def load(cls, conn: psycopg.Connection[Any], name: str, schema: str = "public") -> Table:
        """Resolve a table that is ready as a lease queue.

        Args:
            conn: any connection of ours.
            name: table name, exactly as stored; any characters, at most 63 bytes.
            schema: schema name, likewise.

        Raises:
            BadInput: a name that PostgreSQL would cut or refuse.
            TableMissing: no such schema or table, or no right to see it; says which.
            NotAdopted: it lacks lease columns, or is no ordinary table.
        """
        return run(conn, load_flow(name, schema))

    @classmethod
    async def aload(cls, conn: psycopg.AsyncConnection[Any], name: str, schema: str = "public") -> Table:
        """Async twin of `load`."""
        return await arun(conn, load_flow(name, schema))


def load_flow(name: str, schema: str) -> Flow[Table]:
    """Flow behind `Table.load`."""
    check_name("schema", schema)
    check_name("table", name)
    result = yield from single(Query(sql.text("table_resolve"), {"schema": schema, "name": name}))
    return resolved(schema, name, result.dicts()[0])


def resolved(schema: str, name: str, found: Mapping[str, Any]) -> Table:
    """Judge what the catalog said: a `Table`, or the error that names the way out."""
    label = quoted(schema, name)
    if not found["schema_exists"]:
        raise TableMissing(label, f"the schema {schema!r} does not exist")
    if not found["schema_usable"]:
        raise TableMissing(
            label, f"permission denied for schema {schema!r}; run: GRANT USAGE ON SCHEMA {quoted(schema)} TO the role"
        )
    if found["oid"] is None:
        raise TableMissing(label, "does not exist in that schema; names are case-sensitive here, as stored in the catalog")
    if found["kind"] in KINDS:
        raise NotAdopted(label, [f"it is {KINDS[found['kind']]}; a lease queue needs an ordinary table"])
    if not found["readable"]:
        raise TableMissing(label, "permission denied for table; run: GRANT SELECT, UPDATE ON it TO the role")
    missing = [f"column {c}" for c in LEASE_COLUMNS if c not in found["columns"]]
    if missing:
        raise NotAdopted(label, ["missing " + ", ".join(missing)])
    if found["columns"]["id"] not in ID_TYPES:
        raise NotAdopted(label, [f"column id is {found['columns']['id']}; it must be one of {', '.join(ID_TYPES)}"])
    return Table(int(found["oid"]), schema, name, dict(found["columns"]), bool(found["strict"]), bool(found["rules"]))
