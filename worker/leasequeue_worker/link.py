"""A database connection of one thread that comes back by itself, and the watchdog that ends calls without an answer.

A server-side timeout cannot fire when packets are lost, and a peer that acknowledges without answering (a stuck pooler) defeats
tcp_user_timeout as well. So each call has a deadline on our side: past it the watchdog shuts the socket down, which wakes the
waiting thread with a connection error. The DSN is read again at each connect.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from leasequeue.dsn import DsnSource, connect, is_pooled, redact
from leasequeue.errors import BadInput
from leasequeue.process.faults import needs_new_connection
from leasequeue.run import keep_limits

T = TypeVar("T")
Connection = psycopg.Connection[Any]
# Bounded age: a connection that survived a failover or a rotated password by accident does not do so for ever.
MAX_AGE_S = 3600.0


class CallCut(psycopg.OperationalError):
    """A call got no answer within its limit and was ended from our side."""


class Watchdog:
    """Ends calls that are past their deadline. `check` is called several times a second by the main thread."""

    def __init__(self) -> None:
        self._calls: dict[int, tuple[float, Connection]] = {}
        self._lock = threading.Lock()

    def watch(self, conn: Connection, limit_s: float) -> int:
        """Start watching a call on `conn`; returns a key for `release`."""
        key = id(conn)
        with self._lock:
            self._calls[key] = (time.monotonic() + limit_s, conn)
        return key

    def release(self, key: int) -> bool:
        """The call ended; the connection may be closed from now on. False when the call was cut."""
        with self._lock:
            return self._calls.pop(key, None) is not None

    def check(self, now: float) -> int:
        """Cut every call whose deadline passed.

        Args:
            now: `time.monotonic()`.

        Returns:
            How many calls were cut.
        """
        with self._lock:
            late = [key for key, (until, _) in self._calls.items() if now >= until]
            for key in late:
                cut(self._calls.pop(key)[1])
        return len(late)


def cut(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """End whatever happens on `conn`, from any thread: the socket is shut down, not closed, since its thread owns it."""
    try:
        duplicate = socket.socket(fileno=os.dup(conn.fileno()))
    except (psycopg.Error, OSError):
        return  # closed by its own thread meanwhile
    with duplicate:
        try:
            duplicate.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the peer was faster


class Link:
    """One autocommit connection, used by one thread at a time, opened on first use and again after it broke.

    Args:
        name: what it is for; becomes part of application_name.
        source: where the DSN comes from; read at each connect.
        lease_s: lease duration, seconds; bounds how long a vanished peer goes unnoticed.
        watchdog: ends calls that get no answer.
        keep: arguments of `leasequeue.run.keep_limits`, for the operations that this connection mostly runs; None sends the limits
            with each of them, as behind a transaction pooler.
    """

    def __init__(
        self, name: str, source: DsnSource, *, lease_s: float, watchdog: Watchdog, keep: dict[str, bool] | None = None
    ) -> None:
        self.name = name
        self._source, self._lease_s, self._watchdog, self._keep = source, lease_s, watchdog, keep
        self._conn: Connection | None = None
        self._reopen_at = 0.0
        self.opened = 0

    @property
    def connection(self) -> Connection:
        """The open connection; connects where there is none.

        Raises:
            psycopg.OperationalError: no connection can be had; the message has no password in it.
        """
        if self._conn is not None and (self._conn.closed or time.monotonic() >= self._reopen_at):
            self.close()
        if self._conn is None:
            self._conn = self._open()
            self.opened += 1
            self._reopen_at = time.monotonic() + MAX_AGE_S * random.uniform(0.8, 1.2)
        return self._conn

    @property
    def current(self) -> Connection | None:
        """The open connection, if there is one; never connects."""
        return None if self._conn is None or self._conn.closed else self._conn

    def _open(self) -> Connection:
        try:
            conn = connect(self._source, lease_s=self._lease_s, application_name=f"leasequeue-worker {self.name}")
        except BadInput as ex:
            raise psycopg.OperationalError(str(ex)) from None
        except psycopg.OperationalError as ex:
            raise type(ex)(redact(str(ex))) from None
        if self._keep is not None and not is_pooled(conn):
            try:
                keep_limits(conn, **self._keep)
            except BaseException:
                conn.close()
                raise
        return conn

    def run(self, limit_s: float, call: Callable[[Connection], T]) -> T:
        """`call(connection)`, cut after `limit_s` seconds; a connection that broke is dropped.

        Raises:
            CallCut: there was no answer in time.
            psycopg.Error: as the call raised it.
        """
        conn = self.connection
        key = self._watchdog.watch(conn, limit_s)
        try:
            return call(conn)
        except BaseException as ex:
            in_time = self._watchdog.release(key)
            if conn.closed or conn.broken or needs_new_connection(ex):
                self.close()
            if not in_time and isinstance(ex, psycopg.Error):
                raise CallCut(f"no answer within {limit_s:g} s") from ex
            raise
        finally:
            self._watchdog.release(key)

    def close(self) -> None:
        """Drop the connection; the next use opens another."""
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()
