"""Items run by an HTTP service: a POST with the item as JSON body, the answer's JSON as result.

`Idempotency-Key` carries the item's key (its id where it has none), the same at every attempt; one that is not printable ASCII as
`utf-8''` and its percent-encoded UTF-8. What a status means follows RFC 9110 and the Idempotency-Key draft: 2xx resolves; 422 (this
payload will never do) sets aside for REPAIR; 409 (an earlier attempt with this key is still at work), 429 and 503 retry, after
`Retry-After` where it is given; everything else retries with back-off until max_attempts. Redirects are not followed.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from leasequeue import jsonio
from leasequeue.dsn import redact
from leasequeue.errors import BadInput
from leasequeue.item import Item
from leasequeue.tracing import carrier
from leasequeue.verdict import Repair, Resolve, Retry, Verdict
from leasequeue_worker.context import Context
from leasequeue_worker.held import Held

ANSWERS = {
    "2xx": "Resolved; the body, as JSON, is the result.",
    "422": "REPAIR: this payload will never do.",
    "409, 429, 503": "Retried after `Retry-After` (seconds or a date, at most a day), else with back-off.",
    "other": "Retried with back-off, until max_attempts. Redirects are not followed.",
}
CONNECT_LIMIT_S = 10.0
MOST_BODY = 16 * 2**20
WAITS = frozenset({409, 429, 503})
MOST_RETRY_AFTER_S = 86_400.0
EXTENDED = "utf-8''"


def verdict_of(status: int, reason: str, headers: http.client.HTTPMessage, body: bytes, now: datetime) -> Verdict:
    """Verdict of an answer. Pure.

    Args:
        status: HTTP status.
        reason: its text.
        headers: header fields.
        body: at most `MOST_BODY` + 1 bytes.
        now: current time, for a Retry-After that is a date.
    """
    if not 200 <= status < 300:
        said = f"HTTP {status} {reason}".strip()
        if status == 422:
            return Repair(said)
        return Retry(retry_after_s(headers.get("Retry-After"), now) if status in WAITS else None, said)
    if len(body) > MOST_BODY:
        return Repair(f"the result is larger than {MOST_BODY} bytes")
    if not body.strip():
        return Resolve()
    try:
        return Resolve(jsonio.loads(body.decode()))
    except (BadInput, UnicodeDecodeError):
        return Repair(f"HTTP {status}: the body is not JSON")


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After field asks for (RFC 9110 §10.2.3: a number or a date); None where it says nothing usable."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), MOST_RETRY_AFTER_S)
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return min(max(0.0, (at - now).total_seconds()), MOST_RETRY_AFTER_S)


def headers_of(item: Item) -> dict[str, str]:
    """Header fields of a request: the lease's facts."""
    return {
        "Content-Type": "application/json",
        "Idempotency-Key": field_value(str(item.idempotency_key or item.id)),
        "LeaseQueue-Item-Id": field_value(str(item.id)),
        "LeaseQueue-Attempt": str(item.attempt),
        "LeaseQueue-Token": str(item.lease_token),
        "LeaseQueue-Trace-Id": str(item.trace_id),
    }


def field_value(text: str) -> str:
    """`text` as a header field can carry it: printable ASCII as it is, anything else as an extended value (RFC 8187 §3.2).

    No two texts have one value, so that a key stays a key.
    """
    plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith(EXTENDED)
    return text if plain else EXTENDED + quote(text, safe="")


def checked_url(url: str) -> SplitResult:
    """The parts of a URL to POST to.

    Raises:
        BadInput: not http(s), no host, a port that is none, or a user and password, which would not be sent. Never shows a password.
    """
    shown = redact(url)
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError as ex:
        raise BadInput("http_url", shown, f"is no URL: {ex}") from None
    if parts.scheme not in ("http", "https"):
        raise BadInput("http_url", shown, "must begin with http:// or https://")
    if not named:
        raise BadInput("http_url", shown, "has no host")
    if parts.username is not None:
        raise BadInput("http_url", shown, "holds a user name, which is not sent; let a proxy beside the worker add the login")
    return parts


class HttpRunner:
    """Runs the items of one slot with requests, each on a connection of its own.

    Args:
        url: where to POST.
    """

    def __init__(self, url: str) -> None:
        parts = checked_url(url)
        self._make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname or "", parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._connection: http.client.HTTPConnection | None = None
        self._running: Held | None = None

    def __call__(self, item: Item, ctx: Context) -> Any:
        """One request for one item. It may take as long as the lease is renewed; `stop` ends it."""
        connection = self._make(self._host, self._port, timeout=CONNECT_LIMIT_S)
        self._connection, self._running = connection, ctx._held
        try:
            connection.connect()
            connection.sock.settimeout(None)
            _keep_alive(connection.sock)
            connection.request("POST", self._path, jsonio.dumps(item.as_dict()).encode(), headers_of(item) | carrier())
            answer = connection.getresponse()
            body = answer.read(MOST_BODY + 1)
            return verdict_of(answer.status, answer.reason, answer.headers, body, datetime.now(UTC))
        finally:
            self._connection = self._running = None
            connection.close()

    def stop(self, held: Held, *, hard: bool) -> bool:
        """Break the request off; the service may go on, under the same key. True: our side of it is over."""
        connection = self._connection
        if connection is None or self._running is not held:
            return hard  # it ended just now, or has not begun: asked again at the next tick
        _shut(connection)
        return hard

    def close(self) -> None:
        """Break off what is under way."""
        if self._connection is not None:
            _shut(self._connection)


def _keep_alive(sock: socket.socket) -> None:
    """A service that vanished is noticed within a minute, though its answer may take hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _shut(connection: http.client.HTTPConnection) -> None:
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
