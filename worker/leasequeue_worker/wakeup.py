"""Waking the claim loop: a pipe for our own threads, and NOTIFY from the database where a session can listen.

Notifications only shorten the wait: polling always goes on, since a transaction pooler delivers none.
"""

from __future__ import annotations

import os
import select

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


def listen(conn: Connection, channel: str) -> bool:
    """LISTEN on the queue's channel where a session of our own allows it. True when listening."""
    if is_pooled(conn):
        return False
    conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)), prepare=False)
    return True


def heard(conn: Connection) -> bool:
    """Read what the database sent while nothing was asked; True when a notification was among it.

    Raises:
        psycopg.OperationalError: it was the end of the connection.
    """
    return any(True for _ in conn.notifies(timeout=0))
