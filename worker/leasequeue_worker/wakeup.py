"""Waking the claim loop: a pipe for our own threads, and NOTIFY from the database where a session can listen.

Notifications only shorten the wait: polling always goes on, since a transaction pooler delivers none.
"""

from __future__ import annotations

import os
import select

import psycopg
from psycopg import sql

from leasequeue.dsn import is_pooled
from leasequeue_worker.link import Connection


class Waker:
    """Wakes one sleeping thread from any other; many wakes before it looks count once."""

    def __init__(self) -> None:
        self._fd, self._write_fd = os.pipe()
        os.set_blocking(self._fd, False)
        self._pending = False

    def wake(self) -> None:
        """End the current or the next `sleep`. Cheap when somebody did already."""
        if not self._pending:
            self._pending = True
            os.write(self._write_fd, b"!")

    def sleep(self, timeout_s: float, conn: Connection | None) -> bool:
        """Wait for a wake, or for a notification on `conn`, at most `timeout_s` seconds.

        Returns:
            True when the database sent something.
        """
        poll = select.poll()  # not select(): descriptors beyond 1,023 are common with many slots
        poll.register(self._fd, select.POLLIN)
        if conn is not None:
            poll.register(conn.fileno(), select.POLLIN)
        ready = [fd for fd, _ in poll.poll(max(0.0, timeout_s) * 1000)]
        if self._fd in ready:
            os.read(self._fd, 4096)
        # Read first, then the flag: a wake in between is skipped, but the sleeper is awake and looks only after this line. The
        # other way round a wake in between would be read away with its flag left up, and no later one would write.
        self._pending = False
        return any(fd != self._fd for fd in ready)


class Listener:
    """Hears the queue's notifications on a connection that is also used for statements: one that arrives with a statement's answer wakes
    nobody's poll, so each is noted when it is read, whoever reads it.

    Args:
        conn: the connection; one that ended is of no more use, nor is its listener.
        channel: the queue's.
    """

    def __init__(self, conn: Connection, channel: str) -> None:
        self.conn = conn
        self._noted = False
        self.listening = not is_pooled(conn)  # where a session of our own allows it
        if self.listening:
            conn.add_notify_handler(self._note)
            conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)), prepare=False)

    def _note(self, _notify: psycopg.Notify) -> None:
        self._noted = True

    def read(self) -> None:
        """Read what the database sent while nothing was asked.

        Raises:
            psycopg.OperationalError: it was the end of the connection.
        """
        libpq = self.conn.pgconn  # `Connection.notifies` does not go together with a handler
        libpq.consume_input()
        while libpq.notifies():
            self._noted = True

    def heard(self) -> bool:
        """True when notifications were read since the last call."""
        noted, self._noted = self._noted, False
        return noted
