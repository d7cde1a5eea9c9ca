"""The drills: how each alert of the chart comes about and ends. Their order does not matter; they run side by side."""

from __future__ import annotations

import signal

import psycopg

from devtools.alertrun.drill import Drill, Step
from devtools.alertrun.world import MAIN, SECOND, World, quiet, scale_operator, signal_container, until

# Blocks every write of the workers and none of the operator's reads.
LOCK = "LOCK TABLE locked IN SHARE ROW EXCLUSIVE MODE"
HOUR_AGO = "UPDATE leasequeue.queue_stat SET swept_at = swept_at - interval '1 hour' WHERE queue = 'orphans'::regclass"
ENDED_LONG_AGO = (
    "UPDATE orphans SET lease_expires_at = lease_expires_at - interval '1 hour'"
    " WHERE state = 'ASSIGNED' AND lease_expires_at < clock_timestamp()"
)
ENDED = "SELECT 1 FROM orphans WHERE state = 'ASSIGNED' AND lease_expires_at < clock_timestamp()"


def ramp(world: World) -> Drill:
    """Items in flight to 80, 95 and 105 of 100 under policy Alert, all held by a real worker."""

    def to(assigned: int) -> None:
        world.enqueue("ramp", "hold", assigned - world.assigned("ramp"))
        until(f"{assigned} items in flight", 60, lambda: world.assigned("ramp") == assigned)

    steps = [
        Step("80 of 100 in flight", lambda: to(80), ("InflightHigh",)),
        Step("95 of 100 in flight", lambda: to(95), ("InflightCritical",)),
        Step("105 of 100 in flight", lambda: to(105), ("InflightExceeded",)),
    ]
    return Drill("ramp", steps, "the items are let go", lambda: world.open_gate("ramp"))


def ceiling(world: World) -> Drill:
    """Under Enforce, more due items than may be in flight."""
    step = Step(
        "130 items of an hour ago, 100 may be in flight",
        lambda: world.enqueue("ceiling", "hold", 130, age="1 hour"),
        ("AtCeiling",),
    )
    return Drill("ceiling", [step], "the items are let go", lambda: world.open_gate("ceiling"))


def starved(world: World) -> Drill:
    """An old item of low priority behind younger ones of a high one: its age counts, not that of the next in order."""

    def starve() -> None:
        world.enqueue("starved", "hold", 3, priority=10)
        world.enqueue("starved", "work 0", 1, age="2 hours", priority=1)

    step = Step("an item waits for two hours behind a higher priority", starve, ("OldestItemTooOld",))
    return Drill("starved", [step], "the higher priority is let go", lambda: world.open_gate("starved"))


def orphans(world: World, patient: bool) -> Drill:
    """The reclaimer suspended, then a worker killed with leases.

    Args:
        world: to act on.
        patient: let the time pass for real, about ten minutes, instead of dating rows back by an hour.
    """

    def suspend() -> None:
        world.enqueue("orphans", "hold", 3)
        until("three items in flight", 60, lambda: world.assigned("orphans") == 3)
        world.patch("orphans", {"reclaimer": {"suspend": True}})
        until("the end of the last reclaimer", 90, lambda: quiet("orphans"))
        if not patient:
            world.execute(HOUR_AGO)

    def kill() -> None:
        signal_container(world.busiest_worker("orphans")[1], signal.SIGKILL)
        until("the ends of its leases", 60, lambda: world.rows(ENDED))
        if not patient:
            world.execute(ENDED_LONG_AGO)

    def mend() -> None:
        world.open_gate("orphans")
        world.patch("orphans", {"reclaimer": {"suspend": False}})

    back = "" if patient else ", and dated back by an hour"
    steps = [
        Step(f"the reclaimer is suspended{back}", suspend, ("ReclaimerOverdue",)),
        Step(f"a worker is killed with its leases{back}", kill, ("LeasesNotReclaimed",)),
    ]
    return Drill("orphans", steps, "the reclaimer goes on", mend, seconds=1200 if patient else 300)


def nobody(world: World) -> Drill:
    """Workers whose handler cannot be imported."""
    step = Step("no worker can start: its handler is not there", lambda: None, ("NoReadyWorkers",))
    mend = lambda: world.patch("nobody", {"worker": {"handler": "handler:handle"}})  # noqa: E731
    return Drill("nobody", [step], "the handler's name is corrected", mend)


def faulty(world: World) -> Drill:
    """Items that the handler sets aside for a person."""

    def mend() -> None:
        world.execute("UPDATE faulty SET task = 'work 0' WHERE state = 'REPAIR'")
        world.leasequeue(MAIN, "requeue", "--table", "faulty", "--all", "--reason", "corrected")

    step = Step("three items go to REPAIR", lambda: world.enqueue("faulty", "repair", 3), ("RepairGrowing",))
    return Drill("faulty", [step], "they are corrected and requeued", mend)


def laned(world: World) -> Drill:
    """A FAILED item at the head of a strict lane."""

    def block() -> None:
        world.enqueue("laned", "fail", 1, lane="a")
        world.enqueue("laned", "work 0", 3, lane="a")

    def mend() -> None:
        world.execute("UPDATE laned SET task = 'work 0' WHERE state = 'FAILED'")
        world.leasequeue(MAIN, "requeue", "--table", "laned", "--all", "--reason", "corrected")

    step = Step("the head of a strict lane fails", block, ("LaneBlocked",))
    return Drill("laned", [step], "it is corrected and requeued", mend)


def locked(world: World) -> Drill:
    """A session that holds a lock on the table."""
    held: list[psycopg.Connection[tuple[object, ...]]] = []

    def lock() -> None:
        world.enqueue("locked", "work 0.1", 50)
        held.append(psycopg.connect(world.servers[MAIN].dsn()))
        held[0].execute(LOCK)

    step = Step("a session locks the table", lock, ("LockContention",))
    return Drill("locked", [step], "it ends", lambda: held[0].close())


def outage(world: World) -> Drill:
    """A server that is stopped."""
    server = world.servers[SECOND]
    step = Step("PostgreSQL is stopped", server.shut_down, ("DatabaseUnreachable", "MetricsStale"))
    return Drill("outage", [step], "PostgreSQL is started", server.start)


def operator() -> Drill:
    """The operator gone."""
    step = Step("the operator is stopped", lambda: scale_operator(0), ("OperatorDown",))
    return Drill("", [step], "it is started", lambda: scale_operator(1))


def all_but_operator(world: World, patient: bool) -> list[Drill]:
    """Those that need an operator."""
    plain = (ramp, ceiling, starved, nobody, faulty, laned, locked, outage)
    return [*(make(world) for make in plain), orphans(world, patient)]
