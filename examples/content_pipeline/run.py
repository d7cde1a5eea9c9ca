"""One run of the pipeline: table, jobs, fleet, the malformed page, and the check at the end."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg

from examples.content_pipeline.check import Report, judge, read
from examples.content_pipeline.fleet import Fleet, programs
from examples.content_pipeline.jobs import Plan, cut_off, plan
from examples.content_pipeline.tree import PACKAGE, pages
from leasequeue import Table, connect
from leasequeue.config import BlockedHead
from leasequeue.doctor import Finding, Limits, diagnose
from leasequeue.enqueue import enqueue
from leasequeue.requeue import requeue
from leasequeue.schema import adopt

RECLAIM_AFTER_S = 10
POLL_S = 0.5
STATES = "SELECT coalesce(lane, ''), state, count(*) FROM content_jobs GROUP BY 1, 2"
HEADS = "SELECT id, topic FROM content_jobs WHERE state = 'REPAIR'"

Say = Callable[[str], None]


class RunError(Exception):
    """The run could not be brought to its end."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to run.

    Args:
        dsn: a database in which content_jobs does not exist yet.
        tree: root of the HTML pages.
        work: directory for logs, the overlay, and the published files.
        workers: worker processes, at least 1.
        concurrency: jobs that each runs at a time.
        lease_ms: lease duration, milliseconds, 1,000 to 120,000.
        long_job_s: seconds that the job `enrich` takes at least; beyond the lease and the reclaimer's 10 s it lives by renewal.
        window_s: seconds from now to the publish window.
        policy: what a lane does with the malformed page at its head.
        deadline_s: the run gives up after so many seconds.
    """

    dsn: str
    tree: Path
    work: Path
    workers: int = 2
    concurrency: int = 4
    lease_ms: int = 4_000
    long_job_s: float = 20.0
    window_s: float = 8.0
    policy: BlockedHead = "Block"
    deadline_s: float = 900.0

    @property
    def overlay(self) -> Path:
        """Pages that replace or add to those of the tree."""
        return self.work / "overlay"

    @property
    def out(self) -> Path:
        """Published files."""
        return self.work / "published"


def run(options: Options, say: Say) -> tuple[Report, tuple[Finding, ...]]:
    """Run the pipeline to its end and judge it; also asks the doctor.

    Raises:
        RunError: it did not end in time.
        FleetError: a process ended by itself.
        psycopg.Error: the database, for example because content_jobs exists already.
    """
    with connect(options.dsn, application_name="content-pipeline") as conn:
        conn.execute("SET statement_timeout = '60s'")
        planned = prepare(conn, options)
        table = Table.load(conn, "content_jobs")
        enqueue(conn, table, planned.rows)
        say(f"{planned.pages:,} pages in {len(planned.lanes)} lanes, {len(planned.rows):,} jobs")
        say(f"{planned.broken} is malformed on purpose: the first half of {planned.model}")
        blocked, released = work(conn, table, planned, options, say)
        outcome = read(conn, options.out, blocked=blocked, released=released)
        report = judge(planned, outcome, lease_s=options.lease_ms / 1000, policy=options.policy)
        limits = Limits(
            watch_s=0, lease_s=options.lease_ms / 1000, reclaim_after_s=RECLAIM_AFTER_S, on_blocked_head=options.policy
        )
        return report, diagnose(conn, "content_jobs", limits=limits).findings


def prepare(conn: psycopg.Connection[Any], options: Options) -> Plan:
    """Make the tables, adopt the queue, put the malformed page into the overlay; returns the plan."""
    conn.execute(files("examples.content_pipeline").joinpath("table.sql").read_text(), prepare=False)
    adopt(conn, "content_jobs", strict_lanes=True, confirm="public.content_jobs")
    row = conn.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    now = row[0]
    planned = plan(
        PACKAGE, pages(options.tree), now=now, window=now + timedelta(seconds=options.window_s), long_job_s=options.long_job_s
    )
    for folder in (options.overlay, options.out):
        folder.mkdir(parents=True, exist_ok=True)
    broken = options.overlay / planned.broken
    broken.parent.mkdir(parents=True, exist_ok=True)
    broken.write_bytes(cut_off((options.tree / planned.model).read_bytes()))
    return planned


def work(
    conn: psycopg.Connection[Any], table: Table, planned: Plan, options: Options, say: Say
) -> tuple[Mapping[str, int] | None, tuple[str, ...]]:
    """Let the fleet work until nothing is left.

    Under Block, once nothing but the malformed page's lane is left: note what waits behind it, mend the page and requeue it, as a
    person would.

    Returns:
        What stood in the blocked lane (None under Pass), and the lanes that were released.
    """
    dsn_file = options.work / "dsn"
    dsn_file.touch(mode=0o600)
    dsn_file.write_text(options.dsn)
    environment = {
        "CONTENT_TREE": str(options.tree), "CONTENT_OVERLAY": str(options.overlay), "CONTENT_OUT": str(options.out),
    }  # fmt: skip
    processes = programs(
        workers=options.workers, concurrency=options.concurrency, lease_ms=options.lease_ms, reclaim_after_s=RECLAIM_AFTER_S,
        policy=options.policy, dsn_file=dsn_file, logs=options.work,
    )  # fmt: skip
    deadline = time.monotonic() + options.deadline_s
    with Fleet(processes, environment) as fleet:
        if options.policy == "Pass":
            until(conn, fleet, lambda states: not open_jobs(states), deadline, say)
            return None, ()
        lane = f"{PACKAGE}/{planned.broken_lane}"
        until(conn, fleet, lambda states: stands_still(states, lane), deadline, say)
        blocked = {state: count for (of, state), count in read_states(conn).items() if of == lane and state != "RESOLVED"}
        say(f"lane {planned.broken_lane} is blocked: {blocked}; mending {planned.broken} and requeueing it")
        released = mend(conn, table, planned, options)
        until(conn, fleet, lambda states: not open_jobs(states), deadline, say)
    return blocked, released


def mend(conn: psycopg.Connection[Any], table: Table, planned: Plan, options: Options) -> tuple[str, ...]:
    """Put the whole page in place of the malformed one, and give its job a fresh start. Returns the lanes released."""
    shutil.copyfile(options.tree / planned.model, options.overlay / planned.broken)
    heads = [job for job, topic in conn.execute(HEADS) if topic == planned.broken]
    moved = requeue(conn, table, ids=heads, actor="content-pipeline", reason="the page was uploaded again")
    return (planned.broken_lane,) * len(moved)


States = Mapping[tuple[str, str], int]


def read_states(conn: psycopg.Connection[Any]) -> States:
    """Jobs by lane and state."""
    return {(lane, state): count for lane, state, count in conn.execute(STATES)}


def open_jobs(states: States, lane: str | None = None) -> int:
    """Jobs that workers still have to do, in all lanes but `lane`."""
    return sum(count for (of, state), count in states.items() if of != lane and state in ("PENDING", "SCHEDULED", "ASSIGNED"))


def stands_still(states: States, lane: str) -> bool:
    """Nothing is left to do but what waits in `lane` behind a head in REPAIR."""
    return open_jobs(states, lane) == 0 and states.get((lane, "REPAIR"), 0) > 0 and not states.get((lane, "ASSIGNED"), 0)


def until(conn: psycopg.Connection[Any], fleet: Fleet, reached: Callable[[States], bool], deadline: float, say: Say) -> None:
    """Poll until the states are as wanted, telling progress.

    Raises:
        RunError: not before the deadline (monotonic).
        FleetError: a process ended.
    """
    told = 0.0
    while True:
        states = read_states(conn)
        if reached(states):
            return
        fleet.check()
        if time.monotonic() > deadline:
            raise RunError(f"not done in time; jobs by state: {totals(states)}")
        if time.monotonic() - told >= 5.0:
            told = time.monotonic()
            say(f"  {totals(states)}")
        time.sleep(POLL_S)


def totals(states: States) -> str:
    """Jobs by state, for people."""
    counted: Counter[str] = Counter()
    for (_, state), count in states.items():
        counted[state] += count
    return ", ".join(f"{state} {count:,}" for state, count in sorted(counted.items()))
