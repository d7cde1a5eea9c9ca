"""The connection in a Secret: which keys it needs, and what is wrong with them.

The Secret comes from the queue's own namespace, always. Its author chooses the host, so whoever may write a LeaseQueue and a
Secret there can make the operator connect to any host with what that Secret holds, and with nothing else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from leasequeue import dsn
from leasequeue.errors import BadInput
from leasequeue.tls import MODES, PLAIN, VERIFYING, WEAKER, Tls, Trust, mode_of, trust
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import SecretRef

# What a Secret may set. Left out: whatever makes libpq read other files of the operator's pod (passfile, service, sslkey, …).
PARAMETERS = frozenset({
    "application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname", "fallback_application_name",
    "gssencmode", "host", "hostaddr", "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval",
    "load_balance_hosts", "max_protocol_version", "min_protocol_version", "options", "password", "port", "require_auth",
    "ssl_max_protocol_version", "ssl_min_protocol_version", "sslmode", "sslnegotiation", "sslrootcert", "sslsni",
    "target_session_attrs", "tcp_user_timeout", "user",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a queue's database is.

    Args:
        dsn: connection string, with its password; never shown.
        version: resourceVersion of the Secret.
        trust: what the connection makes sure of.
        mode: its sslmode.
        verified: the hosts whose names the server's certificate must hold, as the Secret gives them; empty where these are the hosts of
            `dsn`, or none is checked.
    """

    dsn: str = field(repr=False)
    version: str = ""
    trust: Trust = Trust.LOCAL
    mode: str = "prefer"
    verified: str = field(default="", repr=False)

    @property
    def group(self) -> str:
        """Queues with one group share one connection: a digest of all parameters."""
        parameters = sorted(conninfo_to_dict(self.dsn).items())
        return hashlib.sha256(repr((parameters, self.verified)).encode()).hexdigest()


def read_connection(secret: Mapping[str, Any] | None, ref: SecretRef, namespace: str, tls: Tls = PLAIN) -> Connection | Problem:
    """The connection a Secret holds.

    Args:
        secret: the Secret, None when there is none.
        ref: which Secret, and which key for a URI.
        namespace: the queue's namespace, for hosts without dots.
        tls: what the spec says of it; wins over the Secret.
    """
    where = f"Secret {ref.name}"
    if secret is None:
        return Problem("SecretNotFound", f"{where} (spec.database.secretRef.name) does not exist in this namespace: create it.")
    data = secret.get("data") or {}
    try:
        text = _uri(data, ref, where) if ref.key or "uri" in data else _parts(data, where)
        refined = _refined(text, namespace, where, tls)
    except _Bad as ex:
        return ex.problem
    version = str(secret["metadata"].get("resourceVersion", ""))
    # A copy of the parameters alone: make_conninfo quotes each value.
    mode = mode_of(refined)
    return Connection(make_conninfo("", **refined), version, trust(refined), mode, _verified(text, refined, mode))


class _Bad(Exception):
    def __init__(self, reason: str, message: str) -> None:
        self.problem = Problem(reason, message)
        super().__init__(reason)


def _value(data: Mapping[str, str], key: str, where: str) -> str:
    if key not in data:
        raise _Bad("SecretKeyNotFound", f"{where} has no key {key}: add it, or name another in spec.database.secretRef.key.")
    try:
        value = base64.b64decode(data[key] or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise _Bad("SecretInvalid", f"{where}: key {key} is not UTF-8 text: write it anew.") from None
    if not value.strip():
        raise _Bad("SecretKeyEmpty", f"{where}: key {key} is empty: give it a value.")
    return value


def _uri(data: Mapping[str, str], ref: SecretRef, where: str) -> str:
    key = ref.key or "uri"
    value = dsn.strip_newline(_value(data, key, where))
    try:
        return dsn.checked(value, key)
    except BadInput as ex:
        raise _Bad("SecretInvalid", f"{where}: key {key} {ex.problem}.") from None


def _parts(data: Mapping[str, str], where: str) -> str:
    if "host" not in data:
        raise _Bad(
            "SecretKeyNotFound",
            f"{where} has neither a key uri nor the keys host, port, user, password, dbname: add the one or the others, or "
            "name the key of a URI in spec.database.secretRef.key.",
        )
    found = {key: _value(data, key, where) for key in dsn.PARTS if key in data}
    if not {"user", "username"} & found.keys():
        raise _Bad("SecretKeyNotFound", f"{where} has no key user (or username): add it.")
    if "dbname" not in found:
        raise _Bad("SecretKeyNotFound", f"{where} has no key dbname: add it.")
    try:
        return dsn.from_parts(found)
    except BadInput as ex:
        # Never the value: a Secret filled in the wrong order holds its password under another key.
        raise _Bad("SecretInvalid", f"{where}: key {ex.field} {ex.problem}.") from None


def _refined(text: str, namespace: str, where: str, tls: Tls) -> dict[str, Any]:
    """The parameters as the operator uses them: names of services completed, none that reads files, TLS as the spec says."""
    given = conninfo_to_dict(text)
    for key in given:
        if key not in PARAMETERS:
            raise _Bad("SecretInvalid", f"{where}: the connection parameter {key} is not allowed: remove it.")
    if given.get("sslrootcert") not in (None, "system"):
        raise _Bad(
            "SecretInvalid",
            f"{where}: sslrootcert may be system alone, since the operator has no such file: use spec.database.caSecretRef.",
        )
    if given.get("sslmode") not in (None, *WEAKER, *MODES):
        raise _Bad("SecretInvalid", f"{where}: sslmode must be one of {', '.join((*WEAKER, *MODES))}.")
    hosts = str(given.get("host") or "")
    if not hosts and not given.get("hostaddr"):
        raise _Bad("SecretInvalid", f"{where}: the connection names no host: add one.")
    given = tls.over({**given, "host": ",".join(complete_host(h, namespace) for h in hosts.split(","))})
    if given.get("sslmode") in VERIFYING and not given.get("sslrootcert"):
        raise _Bad(
            "NoAuthority",
            f"{where}: sslmode {given['sslmode']} needs to know whom to trust: set spec.database.caSecretRef, or "
            "spec.database.systemCA.",
        )
    return given


def _verified(text: str, refined: Mapping[str, Any], mode: str) -> str:
    """Hosts whose names are checked, where they are not those that the operator connects to."""
    if mode != "verify-full" or refined.get("hostaddr"):
        return ""
    named = str(conninfo_to_dict(text).get("host") or "")
    return named if named != refined["host"] else ""


def complete_host(host: str, namespace: str) -> str:
    """A Service's short name as seen from the operator's namespace; other hosts as they are."""
    if not host or "." in host or host.startswith(("/", "@")) or host == "localhost":
        return host
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return f"{host}.{namespace}.svc"
    return host
