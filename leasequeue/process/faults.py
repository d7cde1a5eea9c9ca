"""What a database error asks of us: the same again, a new connection, patience, or a look at one row's data."""

from __future__ import annotations

from enum import StrEnum

import psycopg
from psycopg.pq import ConnStatus

from leasequeue.dsn import redact
from leasequeue.errors import LeaseQueueError, NotAdopted, TableMissing
from leasequeue.refusals import is_data_state


class Fault(StrEnum):
    """Kinds of failure, each with one reaction."""

    BUSY = "busy"
    """A lock, a deadlock, a timeout: the transaction rolled back, the connection is good; try again."""
    CONNECTION = "connection"
    """The connection is gone, or its server cannot write (25006 after a failover): drop it and connect again."""
    SCHEMA = "schema"
    """The table, a column or a right is missing: back off, resolve the table again, never crash in a loop."""
    DATA = "data"
    """The data of a row was refused (class 22, 23, a trigger): find the row, spare the others."""
    OTHER = "other"
    """None of these: treated like CONNECTION, and logged as unexpected."""


# 40001, 40P01, 55P03: rolled back by a conflict; 57014: statement_timeout.
_BUSY = frozenset({"40001", "40P01", "55P03", "57014"})
# 25006: read-only server; 57P01–57P05: shutdown, crash, starting, dropped, idle; 0A000: hot standby, or a cached plan after DDL.
_CONNECTION = frozenset({"25006", "57P01", "57P02", "57P03", "57P04", "57P05", "0A000", "3D000", "25P02", "25P03"})


def classify(error: BaseException) -> Fault:
    """Kind of a failure met while talking to the database."""
    if isinstance(error, (TableMissing, NotAdopted)):
        return Fault.SCHEMA
    if not isinstance(error, psycopg.Error):
        return Fault.DATA if isinstance(error, (TypeError, ValueError)) else Fault.OTHER
    state = error.sqlstate
    if state is None:
        # No SQLSTATE: the client side failed. Adapting a value (Data, Programming), or the connection (Operational, Interface).
        return Fault.DATA if isinstance(error, (psycopg.DataError, psycopg.ProgrammingError)) else Fault.CONNECTION
    return _of_sqlstate(state)


def _of_sqlstate(state: str) -> Fault:
    if state in _BUSY:
        return Fault.BUSY
    if state in _CONNECTION or state[:2] in ("08", "28", "53", "58"):
        return Fault.CONNECTION
    if is_data_state(state):
        return Fault.DATA
    return Fault.SCHEMA if state[:2] in ("42", "3F") else Fault.OTHER


def needs_new_connection(error: BaseException) -> bool:
    """True when the connection that met `error` must not be used again."""
    return classify(error) in (Fault.CONNECTION, Fault.OTHER)


def is_lost(conn: psycopg.Connection[object] | psycopg.AsyncConnection[object]) -> bool:
    """True when nothing more can be said on `conn`: a COMMIT sent on it has an unknown fate."""
    return conn.closed or conn.broken or conn.pgconn.status != ConnStatus.OK


def describe(error: BaseException) -> str:
    """One line for logs: kind, SQLSTATE and the server's primary message, without values of rows and without a password."""
    if isinstance(error, psycopg.Error):
        if classify(error) is Fault.DATA:
            return f"{error.sqlstate or ''} {type(error).__name__}".strip()  # its message quotes values
        primary = error.diag.message_primary or str(error).splitlines()[0] if str(error) else type(error).__name__
        return redact(f"{error.sqlstate or type(error).__name__}: {primary}")
    if isinstance(error, LeaseQueueError):
        return redact(str(error))
    return type(error).__name__
