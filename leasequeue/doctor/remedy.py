"""Commands and SQL that findings propose, quoted so that they can be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from psycopg.sql import Literal

from leasequeue.doctor.facts import Facts
from leasequeue.schema.report import adopt_command


def command(facts: Facts, *words: str) -> str:
    """`leasequeue WORDS --schema … --table …`."""
    where = ["--schema", facts.catalog.schema, "--table", facts.catalog.table]
    return shlex.join(["leasequeue", *words, *where])


def adopt(facts: Facts) -> str:
    """The command that mends what adoption mends."""
    return facts.report.command or adopt_command(
        facts.catalog.schema, facts.catalog.table, strict_lanes=facts.strict, confirm=False
    )


def literals(values: Iterable[str]) -> str:
    """SQL literals, for an IN list."""
    return ", ".join(Literal(value).as_string(None) for value in values)


def release_sql(facts: Facts, ids: Iterable[str]) -> str:
    """SQL that ends leases by hand; the items can be claimed again at once."""
    return (
        f"UPDATE {facts.table} SET state = 'PENDING', leased_by = NULL, leased_at = NULL, lease_expires_at = NULL, "
        f"lease_token = NULL WHERE state = 'ASSIGNED' AND id::text IN ({literals(ids)})"
    )


def terminate_sql(pid: int) -> str:
    """SQL that ends one session; its transaction rolls back."""
    return f"SELECT pg_terminate_backend({pid})"
