"""The demo's numbers, and why they are what they are."""

from __future__ import annotations

from dataclasses import dataclass

QUEUE = "review"
TABLE = "review_queue_item"
SYSTEM_NAMESPACE = "leasequeue-system"
RELEASE = "leasequeue"
HANDLER = "examples.review_queue.handler:handle"


@dataclass(frozen=True, slots=True)
class Settings:
    """One run.

    The handler only sleeps, so that 2 cores are enough: 4 workers of 22 slots and 1.5 s an item finish 2,000 items in
    about three quarters of a minute, one worker killed. 88 busy slots of 100 in flight cross the warning at 80 %.
    Fewer and larger workers, since the way down halves them every 15 s.

    Args:
        namespace: made for this run.
        items: review items, 100 to 2357.
        handler_seconds: pretended work of one item.
        concurrency: slots of one worker.
        max_replicas: most workers; with `concurrency` this gives the busy slots.
        max_inflight: most items ASSIGNED; 100 is the smallest a LeaseQueue takes.
        warning_percent: of `max_inflight`, at which the alert is due.
        lease_seconds: a dead worker's items wait this long for the lease to end …
        reclaim_after_seconds: … and then this long for the reclaimer; 10 is the smallest a LeaseQueue takes.
        sweep_seconds: between two sweeps of one CronJob run.
        drain_target_seconds: in which the backlog should go; short, so that all workers are wanted.
        stabilization_seconds: for which a lower need must last before workers go.
        kill_at: share of the items resolved, from 0 to 1, at which a worker is killed.
    """

    namespace: str
    items: int = 2000
    handler_seconds: float = 1.5
    concurrency: int = 22
    max_replicas: int = 4
    max_inflight: int = 100
    warning_percent: int = 80
    lease_seconds: int = 6
    reclaim_after_seconds: int = 10
    sweep_seconds: int = 5
    drain_target_seconds: int = 20
    stabilization_seconds: int = 10
    kill_at: float = 0.1
