"""From when on something is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass, fields

from leasequeue.config import BlockedHead
from leasequeue.errors import BadInput

# Longest lease that the settings allow; a lease that ends later than this was not made by LeaseQueue.
MAX_LEASE_S = 120.0
MAX_WATCH_S = 300.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of the judges, all 0 or more.

    Args:
        watch_s: seconds between the two looks, at most 300; 0 looks once. Workers say every 5 s what they hold, so that less than
            6 cannot compare it with the table.
        statement_s: seconds that one look may take.
        reclaim_after_s: the queue's setting.
        lease_s: the queue's lease duration, seconds.
        reclaimer_s: seconds that the reclaimer may take beyond `reclaim_after_s` (its schedule is a minute by default).
        worker_unseen_s: a worker unseen for longer is taken for dead; workers report every 5 s.
        stuck_s: a lease of an unregistered owner that is older is worth a look.
        oldest_due_s: a due item that waits longer starves; the same as alerts.oldestPendingSeconds.
        promote_s: seconds that a due SCHEDULED item may wait for its promotion; workers promote every second or so.
        max_inflight: the queue's setting; None takes it from the reclaimer's last run, else the default.
        max_attempts: the queue's setting.
        max_crashes: the queue's setting.
        poison_crashes: crashes from which on an item is suspect.
        quick_s: an item whose attempts came on average faster than this fails quickly.
        lock_wait_s: a wait for a lock that lasts longer is contention; our own statements give up after 0.3 s.
        lock_held_s: a transaction that holds locks on the table for longer.
        xmin_s: a transaction that is open for longer pins dead rows.
        xmin_xids: the same for slots and standbys, which have no age in seconds, in transactions.
        dead_rows: dead rows, beyond the number of live ones, that are bloat.
        max_workers: worker processes that there may be at most (maxReplicas); None does not compare them with the server's connections.
        strict_lanes: lanes run strictly in order; None reads it from the form of the claim index.
        on_blocked_head: what the queue does with a lane whose head cannot run.
    """

    watch_s: float = 6.0
    statement_s: float = 5.0
    reclaim_after_s: float = 45.0
    lease_s: float = 30.0
    reclaimer_s: float = 90.0
    worker_unseen_s: float = 30.0
    stuck_s: float = 600.0
    oldest_due_s: float = 600.0
    promote_s: float = 90.0
    max_inflight: int | None = None
    max_attempts: int = 5
    max_crashes: int = 3
    poison_crashes: int = 2
    quick_s: float = 10.0
    lock_wait_s: float = 1.0
    lock_held_s: float = 120.0
    xmin_s: float = 300.0
    xmin_xids: int = 1_000_000
    dead_rows: int = 50_000
    max_workers: int | None = None
    strict_lanes: bool | None = None
    on_blocked_head: BlockedHead = "Block"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and not value >= 0:
                raise BadInput(field.name, value, "must be 0 or more")
        if self.watch_s > MAX_WATCH_S:
            raise BadInput("watch_s", self.watch_s, f"must be at most {MAX_WATCH_S:g} seconds")
        if not 0.1 <= self.statement_s <= 600:
            raise BadInput("statement_s", self.statement_s, "must be from 0.1 to 600 seconds")
