"""Where the database is, how to connect to it, and how to speak of it without its password.

A DSN is never built by joining strings: parts go through `psycopg.conninfo.make_conninfo`, a whole DSN is taken as it is. A file
is read at every connect, so that a rotated Secret works from the next connection on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import set_json_loads

from leasequeue import jsonio
from leasequeue.errors import BadInput
from leasequeue.tls import PLAIN, Tls

CONNECT_TIMEOUT_S = 5
DEFAULT_PORT = 5432
# libpq, keepalives: a peer that vanished while we wait for an answer is noticed after idle + interval × count seconds.
KEEPALIVES = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
# keys of a Secret as CloudNativePG and Crunchy write them → libpq parameters
PARTS = {"host": "host", "port": "port", "user": "user", "username": "user", "password": "password", "dbname": "dbname"}
_NAME_BYTES = 63
_PASSWORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE)
_URI = re.compile(r"(postgres(?:ql)?://)[^\s'\"]+", re.IGNORECASE)
_USER_INFO = re.compile(r"(://[^:/@\s]*:).*@")


def redact(text: str) -> str:
    """`text` with every password of a DSN inside it replaced by `***`. Takes time in proportion to its length, whatever it holds."""
    has_uri = "://" in text
    # Of a value that may end a URI's user info its @ stays, for the second step to find.
    text = _PASSWORD.sub(lambda found: f"{found[1]}***{'@' if has_uri and '@' in found[2] else ''}", text)
    if has_uri and "@" in text:
        text = "\n".join(map(_hide_user_info, text.split("\n")))
    # With a part forgotten the password is what libpq takes for user, port or database.
    return _URI.sub(r"\1***", text) if has_uri else text


def _hide_user_info(line: str) -> str:
    """Only up to the last @: a search for one from every port of a long list of URLs would take minutes."""
    end = line.rfind("@") + 1
    return _USER_INFO.sub(r"\1***@", line[:end]) + line[end:]


@dataclass(frozen=True)
class DsnSource:
    """A DSN, or the file or directory it is read from at each connect.

    Args:
        dsn: libpq connection string or URI.
        path: a file that holds one, or a directory with a file `uri`, or files host, port, user (or username), password, dbname
            (a mounted Secret).
        tls: settings that win over the DSN's own.
    """

    dsn: str | None = None
    path: Path | None = None
    tls: Tls = PLAIN

    def __post_init__(self) -> None:
        if (self.dsn is None) == (self.path is None):
            raise BadInput("dsn", None if self.dsn is None else "***", "give exactly one of a DSN and a DSN file")

    def read(self) -> str:
        """The connection string of this moment.

        Raises:
            BadInput: the file is missing, empty, or not a connection string; names the key, never its value.
        """
        if self.path is None:
            return checked(self.dsn or "", "dsn")
        if self.path.is_dir():
            return self._read_directory(self.path)
        return checked(strip_newline(_read(self.path)), "dsn_file")

    @staticmethod
    def _read_directory(path: Path) -> str:
        if (path / "uri").exists():
            return checked(strip_newline(_read(path / "uri")), "uri")
        parts = {key: _read(path / key) for key in PARTS if (path / key).exists()}
        if "host" not in parts:
            raise BadInput("dsn_file", _shown(path), "holds neither a key uri nor a key host")
        return from_parts(parts)

    def __repr__(self) -> str:
        return f"DsnSource({_shown(self.path) if self.path else '***'})"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as ex:
        told = getattr(ex, "strerror", None) or ("is not UTF-8 text" if isinstance(ex, UnicodeDecodeError) else "not a path")
        raise BadInput("dsn_file", _shown(path), f"cannot be read: {told}") from None


def _shown(path: Path) -> str:
    """The path, unless a DSN was given in its place."""
    return "***" if re.search(r"[@=]|:/", str(path)) else str(path)


def strip_newline(text: str) -> str:
    """`text` without one trailing newline (`echo` without -n before base64)."""
    return text[:-1].removesuffix("\r") if text.endswith("\n") else text


def checked(dsn: str, field: str) -> str:
    """Return `dsn` if libpq can read it.

    Raises:
        BadInput: libpq cannot parse it. Its message is not passed on: it quotes parts of the DSN.
    """
    if not dsn.strip():
        raise BadInput(field, "", "is empty; give a connection string such as postgresql://user@host/dbname")
    try:
        given = conninfo_to_dict(dsn)
        readable = not _splits_password(dsn)
    except (psycopg.ProgrammingError, UnicodeError):
        readable = False
    if not readable:
        raise BadInput(
            field, "***", "is not a libpq connection string; characters such as @ : / % in a URI's password must be "
            "percent-encoded, or give the parts host, port, user, password, dbname"
        )  # fmt: skip
    if not all(map(_is_port, str(given.get("port") or DEFAULT_PORT).split(","))):
        raise BadInput(field, "***", "holds a port that is not a number from 1 to 65535")
    return dsn


def _is_port(text: str) -> bool:
    return not text or (text.isascii() and text.isdecimal() and 0 < int(text) < 65536)


def _splits_password(dsn: str) -> bool:
    """True for a URI whose password holds a bare @ or /: libpq would take the rest of it for the host, and show it in errors."""
    scheme, _, rest = dsn.partition("://")
    authority, _, path = rest.partition("?")[0].partition("/")
    return scheme in ("postgresql", "postgres") and (authority.count("@") > 1 or "@" in path)


def from_parts(parts: dict[str, str]) -> str:
    """Connection string from separate values, each taken literally.

    Args:
        parts: keys host, port, user or username, password, dbname. One trailing newline is dropped, except from the password,
            which is refused with one: it may belong to it.

    Raises:
        BadInput: names the key, never a value: a Secret filled in the wrong order holds its password under another key.
    """
    known: dict[str, Any] = {}
    for key, value in parts.items():
        if key == "password":
            if value.endswith("\n"):
                raise BadInput("password", "***", "ends with a newline; write the Secret without one (echo -n, printf)")
            known["password"] = value
            continue
        value = strip_newline(value)
        if not value:
            raise BadInput(key, "", "is empty")
        known[PARTS[key]] = value
    if "host" in known:
        known["host"] = bare_host(known["host"])
    if "port" in known and not _is_port(known["port"]):
        raise BadInput("port", "***", "must be a number from 1 to 65535")
    return make_conninfo("", **known)


def bare_host(host: str) -> str:
    """Host without the brackets of an IPv6 literal.

    Raises:
        BadInput: a link-local address with a zone, which libpq cannot use portably.
    """
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if "%" in bare:
        raise BadInput("host", "***", "an address with a zone (%eth0) cannot be used; give a global address or a name")
    return bare


def parameters(source: DsnSource, *, lease_s: float, application_name: str) -> dict[str, Any]:
    """libpq parameters for a connection that gives up before a lease of `lease_s` seconds can be lost unnoticed."""
    given = {k: v for k, v in conninfo_to_dict(source.read()).items() if v is not None}
    ours: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        **KEEPALIVES,
        "tcp_user_timeout": int(max(1.0, min(lease_s / 3, 15)) * 1000),
        "application_name": application_name,
    }
    return source.tls.over({**ours, **given})


def connect(source: DsnSource | str, *, lease_s: float = 30, application_name: str = "leasequeue") -> psycopg.Connection[Any]:
    """Open an autocommit connection.

    Statements are prepared at their first use, unless a transaction pooler stands between. Numbers in json and jsonb arrive as int
    and Decimal, never float.

    Args:
        source: a `DsnSource` or a connection string.
        lease_s: lease duration, seconds; bounds how long a vanished peer goes unnoticed.
        application_name: shown in pg_stat_activity.

    Raises:
        BadInput: the DSN cannot be read.
        psycopg.OperationalError: the server cannot be reached or refuses the login.
    """
    source = DsnSource(dsn=source) if isinstance(source, str) else source
    given = parameters(source, lease_s=lease_s, application_name=application_name)
    try:
        conn = psycopg.connect(**given, autocommit=True)
    except (psycopg.Error, UnicodeError) as ex:
        raise _told(ex, given) from None
    try:
        pid = conn.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        _settle(conn, pid)
    except BaseException:
        conn.close()
        raise
    return conn


async def aconnect(
    source: DsnSource | str, *, lease_s: float = 30, application_name: str = "leasequeue"
) -> psycopg.AsyncConnection[Any]:
    """Async twin of `connect`."""
    source = DsnSource(dsn=source) if isinstance(source, str) else source
    given = parameters(source, lease_s=lease_s, application_name=application_name)
    try:
        conn = await psycopg.AsyncConnection.connect(**given, autocommit=True)
    except (psycopg.Error, UnicodeError) as ex:
        raise _told(ex, given) from None
    try:
        pid = await (await conn.execute("SELECT pg_backend_pid()", prepare=False)).fetchone()
        _settle(conn, pid)
    except BaseException:
        await conn.close()
        raise
    return conn


def _told(error: Exception, given: Mapping[str, Any]) -> psycopg.Error:
    """The failure of a connect as it may be shown: without the values of the DSN.

    The server repeats user and database, the resolver the host, libpq any other value it does not like; with the parts of a Secret in
    the wrong order one of them is the password. A host that was found is shown: then it is one.
    """
    if isinstance(error, UnicodeError):
        return psycopg.OperationalError("failed to resolve host '***': not a host name")
    text = str(error)
    values = [str(value) for key, value in given.items() if key not in ("host", "port")]
    if re.search("resolve|translate", text):
        values += str(given.get("host") or "").split(",")
    for value in values:
        text = _masked(text, value)
    for folder in str(given.get("host") or "").split(","):
        if folder.startswith(("/", "@")) and not Path(folder).is_dir():
            text = text.replace(folder, "***")
    kind = type(error) if isinstance(error, psycopg.Error) else psycopg.OperationalError
    return kind(redact(text))


def _masked(text: str, value: str) -> str:
    """`text` with `value` hidden where it stands in quotes of whatever language, also cut to the 63 bytes of a name."""
    cut = value.encode()[:_NAME_BYTES].decode(errors="ignore")
    for form in {value, repr(value)[1:-1], cut} - {""}:
        text = re.sub(rf"""(["'«»‹›„“”‚‘’`]\s?){re.escape(form)}(?=\s?["'«»‹›„“”‚‘’`])""", r"\1***", text)
    return text


def _settle(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], pid: Any) -> None:
    set_json_loads(jsonio.loads, conn)  # numbers in jsonb keep every digit: psycopg's own way makes them floats
    pooled = pid[0] != conn.info.backend_pid
    conn.prepare_threshold = None if pooled else 0


def is_pooled(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """True for a connection made by `connect` that a transaction pooler serves.

    A pooler invents the process id it tells its client, so it differs from what the server says of itself. Then neither
    LISTEN nor server-side prepared statements can be relied on.
    """
    return conn.prepare_threshold is None
