"""Has anything about these tables changed? One question for many of them, so that who watches a thousand need not verify each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from leasequeue import sql
from leasequeue.rows import Result
from leasequeue.run import Flow, Operation, Query, arun, one

TIMEOUT_MS = 5_000


@dataclass(frozen=True, slots=True)
class Mark:
    """A table at one moment: `text` stands for all that `verify` says of it, `owner` is the uid of the resource that owns it."""

    text: str
    owner: str | None


def marks_flow(tables: Sequence[tuple[str, str]]) -> Flow[list[Mark]]:
    """Flow behind `amarks`."""
    params = {"schemas": [schema for schema, _ in tables], "names": [name for _, name in tables]}
    query = Query(sql.text("schema_marks"), params)
    # The catalog is joined as the planner likes: no user's table is touched, so no plan can flip with one.
    result: Result = yield Operation(lambda: one(query), durable=False, statement_timeout_ms=TIMEOUT_MS, free_plans=True)
    found = {int(row["n"]): Mark(row["mark"], row["owner"]) for row in result.dicts()}
    return [found[n] for n in range(len(tables))]


async def amarks(conn: psycopg.AsyncConnection[Any], tables: Sequence[tuple[str, str]]) -> list[Mark]:
    """A mark for each (schema, table), in order; equal texts at two moments mean that `verify` says the same at both.

    Args:
        conn: any connection; the control schema must be there.
        tables: schema and table, exactly as stored.

    Raises:
        psycopg.Error: the database said so; UndefinedTable without the control schema.
    """
    return await arun(conn, marks_flow(tables))
