"""What this process holds: one `Held` a lease, and the registry of all of them.

Keyed by token, not by id: a lease that was lost may be claimed again by this very process while its old handler still runs.
The registry locks once a batch, never once an item.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from leasequeue.item import Item, Lease
from leasequeue.verdict import Verdict


class Held:
    """One lease of this process, from its claim until the database took its verdict.

    `deadline` is the last confirmed expiry on our monotonic clock, counted from before the request was sent, so that it is
    never later than the database's. `verdict` is None until the handler (or who ended it) has said something.
    """

    # What most leases never change is a default of the class: sixteen attributes an item would be a tenth of the claim loop's time.
    started = 0.0  # monotonic; 0: not started
    took_s = 0.0
    verdict: Verdict | None = None
    cancelled = ""  # why: "lost", "unconfirmed", "max_runtime", "drain"; empty: not cancelled
    stopped_at = 0.0  # monotonic time of the cancellation
    fenced = False  # its handler's transaction holds the row's lock: a renewal finds it BUSY
    committed = False  # resolved inside the handler's transaction: nothing more to offer
    slot: Any = None
    _event: threading.Event | None = None

    def __init__(self, item: Item, lease: Lease, deadline: float, claimed_at: float, identity: str = "") -> None:
        self.item, self.lease, self.deadline, self.claimed_at, self.identity = item, lease, deadline, claimed_at, identity
        self._unsaid = [True]

    @property
    def running(self) -> bool:
        """Started, and nothing said yet."""
        return self.started > 0.0 and self.verdict is None

    def say(self, verdict: Verdict) -> bool:
        """Set the verdict, once: the handler's thread and the one that ends it may speak at the same moment.

        Returns:
            False when somebody was first; nothing changed.
        """
        try:
            self._unsaid.pop()  # atomic, and cheaper than a lock an item
        except IndexError:
            return False
        self.verdict = verdict
        return True

    def cancel(self, reason: str) -> bool:
        """Tell the handler to stop. False when it was told before."""
        if self.cancelled:
            return False
        self.stopped_at = time.monotonic()
        self.cancelled = reason
        if self._event is not None:
            self._event.set()
        return True

    def wait_cancelled(self, timeout_s: float | None) -> bool:
        """Block until cancelled, at most `timeout_s` seconds; True when cancelled."""
        if self._event is None:
            self._event = threading.Event()  # made on first use: most handlers never wait
        if self.cancelled:
            return True
        return self._event.wait(timeout_s)


class Registry:
    """All leases of this process."""

    def __init__(self) -> None:
        self._held: dict[Any, Held] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, batch: Iterable[Held]) -> None:
        """A claim was answered."""
        with self._lock:
            for held in batch:
                self._held[held.lease.token] = held

    def forget(self, batch: Iterable[Held]) -> None:
        """The database took their verdicts, or they are lost."""
        with self._lock:
            for held in batch:
                self._held.pop(held.lease.token, None)

    def all(self) -> list[Held]:
        """Everything held now: waiting, running, and finished but not yet acknowledged."""
        with self._lock:
            return list(self._held.values())

    def tokens(self) -> list[Any]:
        """Tokens of everything held now."""
        with self._lock:
            return [held.lease.token for held in self._held.values()]
