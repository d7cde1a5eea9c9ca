"""Installs the control schema `leasequeue` and records which version each queue's table is at."""

from __future__ import annotations

from psycopg import errors

from leasequeue import sql as statements
from leasequeue.schema.ddl import Conn, patiently, turn
from leasequeue.schema.spec import SCHEMA_VERSION

CONTROL_KEY = "leasequeue"


def install(conn: Conn) -> None:
    """Bring the control schema to this version; safe to run again and at the same time as itself.

    Where it is there already nothing is created, so a role that owns only its table can adopt beside an administrator's schema.
    """
    with turn(conn, CONTROL_KEY):
        if _version(conn, 0) < SCHEMA_VERSION:
            patiently(conn, lambda: _script(conn, "control"), oid=None, label="leasequeue")
        _prune(conn)


def _version(conn: Conn, queue: int) -> int:
    try:
        row = conn.execute(statements.text("control_version"), {"queue": queue}).fetchone()
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        return 0
    return int(row[0]) if row else 0


def _prune(conn: Conn) -> None:
    try:
        _script(conn, "control_prune")
    except errors.InsufficientPrivilege:
        return  # an administrator's schema: its owner prunes it


def _script(conn: Conn, name: str) -> None:
    with conn.transaction():
        conn.execute(statements.text(name), prepare=False)  # several statements
        if name == "control":
            stamp(conn, 0)


def stamp(conn: Conn, queue: int) -> None:
    """Record that a queue's table (0: the control schema) is at this version."""
    params = {"queue": queue, "version": SCHEMA_VERSION}
    conn.execute(statements.text("control_stamp"), params)
