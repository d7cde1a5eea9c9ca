"""Database errors as reasons and messages. The server's text is passed on without passwords, cut to one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

import psycopg
from psycopg import errors

from leasequeue.dsn import redact
from leasequeue.errors import BadInput, LeaseQueueError, NotAdopted, TableMissing
from leasequeue.schema.report import Report
from leasequeue_operator.plan.problem import Problem

_LIMIT = 300
# libpq gives no SQLSTATE for a failed connect, only text: the server's in its language, libpq's own in English.
_CONNECT = (
    (r"password authentication failed|no password supplied|PAM authentication failed", "AuthenticationFailed",
     "the user or the password is wrong: correct the Secret"),
    (r"no pg_hba\.conf entry|pg_hba\.conf rejects", "AuthenticationFailed",
     "the server admits no such login from here: see its pg_hba.conf"),
    (r'role ".*" does not exist', "AuthenticationFailed", "the user does not exist: create it or correct the Secret"),
    (r'database ".*" does not exist', "DatabaseMissing", "the database does not exist: create it or correct the Secret"),
    (r"too many (clients|connections)|remaining connection slots", "TooManyConnections",
     "the server has no free connection: raise max_connections or lower the number of workers"),
    (r"invalid port number", "SecretInvalid", "a port is a number from 1 to 65535: correct the port in the Secret"),
    (r"does not match host name", "TlsHostMismatch",
     "the server's certificate is for another host name: correct the host in the Secret, or the certificate"),
    (r"certificate verify failed|self.signed", "TlsNotTrusted",
     "the server's certificate was not issued by an authority that is trusted: see spec.database.caSecretRef"),
    (r"server does not support SSL", "TlsNotOffered",
     "the server offers no encryption, and none is not accepted: switch it on there (ssl = on)"),
    (r"certificate|SSL|TLS", "TlsFailed", "the encrypted connection failed: see sslmode and the server's certificate"),
    (r"translate host name|resolve host|Name or service not known|No address associated", "HostUnreachable",
     "the host name is not known: correct the host in the Secret"),
    (r"refused|timeout|timed out|No route|unreachable|server closed|starting up|shutting down|recovery", "HostUnreachable",
     "the server does not answer: start it, or correct host and port in the Secret"),
)  # fmt: skip


def connecting(ex: BaseException) -> Problem:
    """Why no connection came about."""
    if isinstance(ex, TimeoutError):
        return Problem("HostUnreachable", "The server does not answer in time: start it, or correct host and port.")
    if isinstance(ex, BadInput):
        return Problem("SecretInvalid", f"The Secret's {ex.field} {ex.problem}.")
    text = _line(ex)
    for pattern, reason, way_out in _CONNECT:
        if re.search(pattern, text, re.IGNORECASE):
            return Problem(reason, f"{way_out[0].upper()}{way_out[1:]}. The server said: {text}")
    return Problem("ConnectionFailed", f"No connection to the database: {text}")


def querying(ex: BaseException, table: str) -> Problem:
    """Why a question about a table got no answer."""
    if isinstance(ex, TableMissing):
        if "permission denied" in str(ex):
            return Problem("PermissionDenied", _sentence(ex))
        way_out = "Correct spec.database.schema and table, create the table, or set manageSchema: Create."
        return Problem("TableMissing", f"{_sentence(ex)} {way_out}")
    if isinstance(ex, NotAdopted):
        return Problem("NotAdopted", str(ex))
    if isinstance(ex, LeaseQueueError):
        return Problem("TableRefused", str(ex))
    if isinstance(ex, errors.InsufficientPrivilege):
        return Problem("PermissionDenied", f"Table {table}: {_line(ex)}. Grant the role of the Secret this right.")
    if isinstance(ex, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)):
        return Problem("NotAdopted", f"Table {table}: {_line(ex)}. Run: leasequeue schema adopt --table {table}")
    if isinstance(ex, (errors.QueryCanceled, TimeoutError)):
        return Problem("QueryTimeout", f"Table {table}: the sample took longer than 2 s; see `leasequeue doctor`.")
    if isinstance(ex, errors.LockNotAvailable):
        return Problem("TableLocked", f"Table {table} is locked by somebody: end that transaction or wait for it.")
    return Problem("QueryFailed", f"Table {table}: {_line(ex)}")


def not_adopted(report: Report) -> Problem:
    """Why a table is no queue, with the exact command that makes it one where there is one."""
    what = _listed(report.missing)
    fixes = [finding.fix for finding in report.problems if finding.fix]
    if report.command is None:
        way_out = f"Run: {fixes[0]}" if fixes else "Name another table."
        return Problem("TableRefused", f"Table {report.table} cannot be a lease queue: {what}. {way_out}")
    if " --confirm " in report.command:
        told = (
            f"Table {report.table} does not look like a lease queue: {what}. If another was meant, correct spec.database.table"
        )
        return Problem("NotAdopted", f"{told}; if this one is to become a queue, run: {report.command}")
    return Problem("NotAdopted", f"Table {report.table} is not ready as a lease queue: {what}. Run: {report.command}")


def breaks_connection(ex: BaseException) -> bool:
    """True when the connection must not be used again: it is gone, its server is, or it is in doubt."""
    broken = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction, TimeoutError, OSError)
    harmless = (errors.QueryCanceled, errors.LockNotAvailable, errors.SerializationFailure, errors.DeadlockDetected)
    return isinstance(ex, broken) and not isinstance(ex, harmless)


def _listed(texts: Sequence[str]) -> str:
    """As many texts as fit into the limit, and how many are left."""
    told: list[str] = []
    for text in texts:
        if told and len("; ".join((*told, text))) > _LIMIT:
            return f"{'; '.join(told)}; and {len(texts) - len(told)} more"
        told.append(text[:_LIMIT])
    return "; ".join(told)


def _line(ex: BaseException) -> str:
    first = redact(str(ex)).strip().replace("\n", " ")
    return re.sub(r"\s+", " ", first)[:_LIMIT] or type(ex).__name__


def _sentence(ex: BaseException) -> str:
    text = _line(ex)
    return text if text.endswith(".") else text + "."
