"""Judges the columns of a table: which lease columns are missing, of a wrong type, nullable or without a default."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg.sql import Identifier

from leasequeue.schema.facts import Column, Facts
from leasequeue.schema.report import Finding
from leasequeue.schema.spec import ID_TYPES, LEASE_COLUMN_NAMES, LEASE_COLUMNS, LeaseColumn

NAIVE = "timestamp without time zone"
FLOATS = ("double precision", "real")


def missing_columns(facts: Facts) -> list[LeaseColumn]:
    """Lease columns that the table lacks."""
    return [column for column in LEASE_COLUMNS if not facts.has(column.name)]


def missing_defaults(facts: Facts) -> list[LeaseColumn]:
    """Lease columns that plain INSERTs need a default for and that have none."""
    return [
        column
        for column in LEASE_COLUMNS
        if column.default and facts.has(column.name) and facts.columns[column.name].default is None
    ]


def nullable_columns(facts: Facts) -> list[LeaseColumn]:
    """Lease columns that must have a value and may be NULL."""
    return [
        column
        for column in LEASE_COLUMNS
        if column.not_null and facts.has(column.name) and not facts.columns[column.name].not_null
    ]


def quote(name: str) -> str:
    """Identifier as SQL, for people."""
    return Identifier(name).as_string(None)


def wrong_columns(facts: Facts) -> Iterator[Finding]:
    """Columns that exist with a type that adoption cannot take over, each with the SQL that changes it."""
    yield from _wrong_id(facts)
    for wanted in LEASE_COLUMNS:
        column = facts.columns.get(wanted.name)
        if column is None:
            continue
        if column.generated:
            yield Finding("COLUMN_TYPE", f"column {wanted.name} is a generated column; LeaseQueue must be able to write it")
        elif not _accepted(wanted, column):
            yield Finding("COLUMN_TYPE", *_retype(facts, wanted, column))


def _wrong_id(facts: Facts) -> Iterator[Finding]:
    column = facts.columns.get("id")
    alter = f"ALTER TABLE {facts.sql_name}"
    if column is None:
        yield Finding("ID", "column id is missing; it must be the primary key", f"{alter} ADD COLUMN id uuid PRIMARY KEY …")
    elif column.type not in ID_TYPES or column.length is not None:
        yield Finding("ID", f"column id is {_type(column)}; it must be one of {', '.join(ID_TYPES)}")
    elif not any(index.arbitrates and index.keys == ("id",) for index in facts.indexes.values()):
        yield Finding("ID", "column id is not unique: it must be the primary key", f"{alter} ADD PRIMARY KEY (id)")


def _accepted(wanted: LeaseColumn, column: Column) -> bool:
    if column.type not in wanted.accepts or column.kind != "b":
        return False
    return column.length is None or (wanted.min_length is not None and column.length >= wanted.min_length)


def _type(column: Column) -> str:
    text = column.type if column.length is None else f"{column.type}({column.length})"
    return {"e": f"the enum {text}", "d": f"the domain {text}"}.get(column.kind, text)


def _retype(facts: Facts, wanted: LeaseColumn, column: Column) -> tuple[str, str]:
    name = quote(wanted.name)
    alter = f"ALTER TABLE {facts.sql_name} ALTER COLUMN {name} TYPE {wanted.type}"
    text = f"column {wanted.name} is {_type(column)}; it must be {wanted.type}"
    if column.type == NAIVE:
        text += ": without a time zone its meaning changes with each session's setting"
        return text, f"{alter} USING {name} AT TIME ZONE 'UTC' -- or the zone its values were written in; rewrites the table"
    if wanted.type == "text":
        using = f"rtrim({name}::text)" if column.type.startswith("character(") else f"{name}::text"
        return (
            text,
            f"ALTER TABLE {facts.sql_name} ALTER COLUMN {name} DROP DEFAULT, ALTER COLUMN {name} TYPE text USING {using}",
        )
    return text, f"{alter} USING {name}::{wanted.type} -- or, if it means something else: RENAME COLUMN {name} TO …"


def column_gaps(facts: Facts) -> Iterator[Finding]:
    """What adoption mends about columns."""
    for column in missing_columns(facts):
        yield Finding("COLUMN_MISSING", f"column {column.name} {column.type} is missing", adoptable=True)
    for column in nullable_columns(facts):
        yield Finding("COLUMN_NULLABLE", f"column {column.name} may be NULL", adoptable=True)
    for column in missing_defaults(facts):
        yield Finding("COLUMN_DEFAULT", f"column {column.name} has no default ({column.default})", adoptable=True)


def float_columns(facts: Facts) -> Iterator[Finding]:
    """Warns of columns of the user's that cannot hold money exactly."""
    for column in facts.columns.values():
        if column.type in FLOATS and column.name not in LEASE_COLUMN_NAMES:
            yield Finding(
                "PRECISION_FAULT",
                f"column {column.name} is {column.type}: amounts of money in it are not exact",
                f"ALTER TABLE {facts.sql_name} ALTER COLUMN {quote(column.name)} TYPE numeric(18,2) -- rewrites the table",
            )
