"""Samples of many tables in one round trip.

A grouped query locks each table with all its indexes, about a dozen relations, until its transaction ends; the server's whole
lock table has room for some 6,400 by default. So tables beyond `MOST_TOGETHER` are read by further statements, each in a
transaction of its own, and all of them travel as one message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from leasequeue import aio
from leasequeue.config import BlockedHead
from leasequeue.rows import aresult_of
from leasequeue.run import BEGIN, Operation, Query, one
from leasequeue.sample import Stats, sample_query, stats_of
from leasequeue.table import Table

MOST_TOGETHER = 50  # planned and read in about 0.1 s; a tenth of the lock table at most
STATEMENT_TIMEOUT_MS = 2_000


def deadline_s(tables: int) -> float:
    """Seconds within which the server has answered or ended each statement."""
    statements = -(-tables // MOST_TOGETHER)
    return 3.0 + max(1, statements) * STATEMENT_TIMEOUT_MS / 1000


async def sample(
    conn: psycopg.AsyncConnection[Any], tables: Sequence[Table], strict: Mapping[int, BlockedHead]
) -> dict[int, Stats]:
    """Facts about queues of one database, by table oid.

    Args:
        conn: an idle autocommit connection.
        tables: the queues, any number.
        strict: for queues whose lanes are strict, what a blocked head does, by table oid.

    Raises:
        psycopg.Error: one of the tables could not be read; nothing is known of the others then.
    """
    if len(tables) <= MOST_TOGETHER:
        return await aio.sample(conn, tables, strict=strict, statement_timeout_ms=STATEMENT_TIMEOUT_MS)
    parts = [tables[n : n + MOST_TOGETHER] for n in range(0, len(tables), MOST_TOGETHER)]
    cursor = psycopg.AsyncClientCursor(conn)
    text = ";\n".join(_transaction(cursor, sample_query(part, strict)) for part in parts)
    found: dict[int, Stats] = {}
    try:
        await cursor.execute(text.encode())
        while True:
            if cursor.rownumber is not None:
                rows = (await aresult_of(cursor, conn)).dicts()
                found |= {int(row["queue"]): stats_of(row) for row in rows if "queue" in row}
            if not cursor.nextset():
                return found
    except BaseException:
        await _give_up(conn)
        raise


def _transaction(cursor: psycopg.AsyncClientCursor[Any], query: Query) -> str:
    limits = Operation(lambda: one(query), durable=False, statement_timeout_ms=STATEMENT_TIMEOUT_MS).limits()
    return ";\n".join([BEGIN, limits.text, cursor.mogrify(query.text, query.params), "COMMIT"])


async def _give_up(conn: psycopg.AsyncConnection[Any]) -> None:
    """Leave the connection idle, or closed."""
    try:
        await conn.rollback()
    except psycopg.Error:
        await conn.close()
