"""Renewal: leases are extended a third of the way into them, from a thread and a connection of their own.

Handlers may block their thread, the event loop, the completions or the claims: nothing of that stops a renewal. (Code that holds
Python's GIL stops everything in this process; such handlers need `isolation: process`.)

What an answer means:
- RENEWED: the lease runs on, counted from before the request was sent.
- BUSY: somebody holds the row's lock, mostly the item's own handler in its transaction. Neither renewed nor lost; asked again soon.
- LOST: somebody else's, or gone. The handler is cancelled at once.
- no answer: the handler runs until the last confirmed expiry on our monotonic clock; then it is cancelled (self-fence), since
  from that moment on another worker may own the row. Its result is offered to the fence all the same.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import leasequeue
from leasequeue.config import LeaseConfig
from leasequeue.process.faults import classify, describe
from leasequeue.process.logs import get
from leasequeue.states import Outcome
from leasequeue_worker.audit import AuditLog
from leasequeue_worker.held import Held, Registry
from leasequeue_worker.link import Connection, Link
from leasequeue_worker.metrics import WorkerMetrics
from leasequeue_worker.queuetable import QueueTable

PAGE = 500
CONNECT_LIMIT_S = 20.0


def due(held: Iterable[Held], now: float, lease_s: float) -> list[Held]:
    """Leases to renew now: a third of the lease is over, nothing was said about them, and nobody asked them to stop.

    One entry an id: the answer comes by id, and an old lease of ours on the same row has been cancelled before.

    Args:
        held: everything held.
        now: `time.monotonic()`.
        lease_s: lease duration, seconds.
    """
    limit = now + lease_s * 2 / 3
    found = {h.lease.id: h for h in held if h.verdict is None and not h.cancelled and h.deadline <= limit}
    return list(found.values())


def unproven(held: Iterable[Held], now: float) -> list[Held]:
    """Running items whose last confirmed expiry is over: they must stop.

    A row that its own handler's transaction has locked and fenced cannot be leased to anybody: those go on.
    """
    return [h for h in held if h.running and not h.cancelled and h.deadline <= now and not h.fenced]


def apply(batch: Sequence[Held], answer: dict[Any, Outcome], sent_at: float, lease_s: float) -> dict[Outcome, list[Held]]:
    """Take note of a renewal's answer and sort the batch by outcome.

    A LOST answer about an item that finished meanwhile, or whose transaction is committing, means only that the row is RESOLVED:
    the completion itself will say so.

    Args:
        batch: what was asked for.
        answer: outcome by id.
        sent_at: `time.monotonic()` from before the request was sent.
        lease_s: lease duration, seconds.
    """
    sorted_: dict[Outcome, list[Held]] = {Outcome.RENEWED: [], Outcome.BUSY: [], Outcome.LOST: []}
    for held in batch:
        outcome = answer.get(held.lease.id, Outcome.LOST)
        if outcome is Outcome.RENEWED:
            held.deadline = max(held.deadline, sent_at + lease_s)
            sorted_[Outcome.RENEWED].append(held)
        elif outcome is Outcome.BUSY:
            sorted_[Outcome.BUSY].append(held)
        elif outcome is Outcome.LOST and not (held.verdict is not None or held.fenced or held.committed):
            sorted_[Outcome.LOST].append(held)
    return sorted_


class Renewal:
    """The renewal thread.

    Args:
        link: its own connection.
        table: the queue's table.
        registry: what is held.
        config: settings of the queue.
        metrics: counters.
        audit: audit log.
        lost: called with each item whose lease is lost, after it was marked cancelled.
        beat: called at each turn, for /healthz.
    """

    def __init__(
        self,
        link: Link,
        table: QueueTable,
        registry: Registry,
        config: LeaseConfig,
        metrics: WorkerMetrics,
        audit: AuditLog,
        lost: Callable[[Held], None],
        beat: Callable[[], None],
    ) -> None:
        self._link, self._table, self._registry, self._config = link, table, registry, config
        self._metrics, self._audit, self._lost, self._beat = metrics, audit, lost, beat
        self._tick_s = min(2.0, config.lease_s / 12)
        self._limit_s = max(0.5, config.lease_s / 3)
        self._stop = threading.Event()
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._loop, name="renewal", daemon=True)

    def stop(self) -> None:
        """End renewals; leases that still run are about to be given back."""
        self._stop.set()

    def _loop(self) -> None:
        self._open()
        while not self._stop.wait(self._tick_s):
            self._beat()
            if not self._link.opened:
                self._open()
            batch = due(self._registry.all(), time.monotonic(), self._config.lease_s)
            for start in range(0, len(batch), PAGE):
                if not self._renew(batch[start : start + PAGE]):
                    break
        self.stopped.set()

    def _open(self) -> None:
        """Connect before the first claim: on a full server a worker would lease what it cannot renew."""
        with contextlib.suppress(Exception):  # the claim loop tells the trouble; the next turn tries again
            self._link.run(CONNECT_LIMIT_S, lambda _conn: None)

    def _renew(self, batch: Sequence[Held]) -> bool:
        """One request; False when it got no answer."""
        leases = [held.lease for held in batch]

        def call(conn: Connection) -> tuple[float, dict[Any, Outcome]]:
            sent_at = time.monotonic()
            return sent_at, leasequeue.renew(conn, self._table.get(), leases, config=self._config)

        try:
            sent_at, answer = self._link.run(self._limit_s, call)
        except Exception as ex:  # noqa: BLE001  (whatever it was, the leases need the next turn)
            self._metrics.faults[classify(ex)] += 1
            self._metrics.renewals["unanswered"] += len(batch)
            get().warning("renewal_unanswered", error=describe(ex), items=len(batch))
            return False
        by_outcome = apply(batch, answer, sent_at, self._config.lease_s)
        self._metrics.renewals["renewed"] += len(by_outcome[Outcome.RENEWED])
        self._metrics.renewals["busy"] += len(by_outcome[Outcome.BUSY])
        for held in by_outcome[Outcome.LOST]:
            self._take_loss(held)
        return True

    def _take_loss(self, held: Held) -> None:
        self._metrics.renewals["lost"] += 1
        self._metrics.lost += 1
        if held.cancel("lost"):
            self._audit.event("item_lost", [held], found_by="renewal")
            self._lost(held)
