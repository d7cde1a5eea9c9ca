"""Identity and heartbeat of this process: its row in `leasequeue.worker`.

The row is written by the heartbeat alone, never per claim. A cordoned process claims nothing; one whose row was deleted registers
again before it claims.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable

import leasequeue
from leasequeue.table import Table
from leasequeue.workers import Heartbeat, WorkerCounters
from leasequeue_worker.link import Connection

HEARTBEAT_S = 5.0


def new_worker_id(pod_name: str | None) -> str:
    """Identity of this process: pod or host name and a random suffix.

    A container restarted in place keeps its name and its process id; the suffix is new each time, so the leases of the dead
    process are never taken for our own.
    """
    return f"{pod_name or socket.gethostname()}-{secrets.token_hex(4)}"


class Presence:
    """Registers, beats, and knows whether this process is cordoned. Used by the claim loop's thread alone.

    Args:
        worker_id: identity of this process.
        pod_uid: uid of the pod, where there is one.
        pod_name: its name.
        slots: items run at a time.
        counters: reads the figures of a heartbeat.
    """

    def __init__(
        self, worker_id: str, pod_uid: str | None, pod_name: str | None, slots: int, counters: Callable[[], WorkerCounters]
    ) -> None:
        self.worker_id = worker_id
        self._pod_uid, self._pod_name, self._slots, self._counters = pod_uid, pod_name, slots, counters
        self.registered = False
        self.cordoned = False
        self._next_at = 0.0

    def keep(self, conn: Connection, table: Table, now: float) -> None:
        """Register where needed, beat where it is time.

        Args:
            conn: an idle autocommit connection.
            table: the queue's table.
            now: `time.monotonic()`.
        """
        if not self.registered:
            me, pod_uid, pod_name = self.worker_id, self._pod_uid, self._pod_name
            self._take(leasequeue.register(conn, table, me, pod_uid=pod_uid, pod_name=pod_name, slots=self._slots), now)
        elif now >= self._next_at:
            self._take(leasequeue.heartbeat(conn, table, self.worker_id, self._counters()), now)

    def _take(self, answer: Heartbeat, now: float) -> None:
        self.registered, self.cordoned = answer.registered, answer.cordoned
        self._next_at = now + HEARTBEAT_S if answer.registered else 0.0

    def heard_of_cordon(self, cordoned: bool) -> None:
        """A claim said whether we are cordoned."""
        if cordoned != self.cordoned:
            self.cordoned = cordoned
            self._next_at = time.monotonic()

    def due_in(self, now: float) -> float:
        """Seconds until the next heartbeat."""
        return max(0.0, self._next_at - now)

    def beat_now(self) -> None:
        """Beat at the next chance: what we hold changed to nothing while the operator waits for it."""
        self._next_at = 0.0

    def leave(self, conn: Connection, table: Table) -> None:
        """Delete the row: a clean end."""
        leasequeue.deregister(conn, table, self.worker_id)
