"""SIGTERM with real processes: nothing stays leased, nothing planned costs an attempt, nothing runs twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.processes import wait_for, worker
from tests.support.queues import Queue


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    made = Queue(dsn)
    yield made
    made.close()


def test_what_runs_finishes_and_what_waits_goes_back_uncounted(queue: Queue) -> None:
    queue.fill(40, "sleep:0.001")
    with worker(queue.dsn, "work", "act") as process:
        queue.wait_states(RESOLVED=40)
        queue.execute(
            "INSERT INTO {t} (n, what, created_at) SELECT 100 + i, CASE i WHEN 0 THEN 'stubborn:3' ELSE '' END,"
            " clock_timestamp() + i * interval '1 us' FROM generate_series(0, 5) AS i"
        )
        wait_for("all are claimed", lambda: queue.states().get("ASSIGNED") == 6)
        process.wait_event("started", 41)
        assert process.terminate() == 0
    rows = {row["n"]: row for row in queue.rows() if row["n"] >= 100}
    assert (rows[100]["state"], rows[100]["attempt"]) == ("RESOLVED", 1)
    for n in range(101, 106):
        assert (rows[n]["state"], rows[n]["attempt"], rows[n]["lease_token"]) == ("PENDING", 0, None)


@pytest.mark.parametrize(
    ("handler", "what", "isolation"),
    [
        ("act_async", "sleep:1000", "thread"),
        ("act_async", "refuse:1000", "thread"),
        ("act", "stubborn:1000", "thread"),
        ("act", "stubborn:1000", "process"),
        ("act", "post:sleep1000", "thread"),
        ("act", "post:sleep1000", "process"),
    ],
)
def test_what_outlasts_the_grace_comes_back_later_uncounted(queue: Queue, handler: str, what: str, isolation: str) -> None:
    """B74. The token is cleared after the renewals ended, and the item is due only when the process is surely gone."""
    items = queue.add(what, what, what)
    with worker(queue.dsn, "work", handler, isolation=isolation, concurrency=3, grace_s=4) as process:
        process.wait_event("started", 3)
        if what.startswith("post"):
            wait_for(
                "three transactions are open",
                lambda: len(queue.execute("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'")) == 3,
            )
        assert process.terminate() == 0
        assert len(process.named("item_released")) == 3
    for item in items:
        row = queue.row(item)
        assert (row["state"], row["attempt"], row["lease_token"], row["crash_count"]) == ("SCHEDULED", 0, None, 0)
    assert queue.execute("SELECT * FROM ledger") == []


def test_a_second_signal_does_not_wait_for_the_grace(queue: Queue) -> None:
    (item,) = queue.add("stubborn:1000")
    with worker(queue.dsn, "work", "act", grace_s=3_600) as process:
        process.wait_event("started")
        process.signal(signal.SIGTERM)
        process.wait_event("drain", phase="finishing")
        process.signal(signal.SIGINT)
        assert process.wait() == 0
    assert queue.row(item)["state"] == "SCHEDULED"


def test_five_rollouts_during_one_long_job_cost_no_attempt(queue: Queue) -> None:
    (item,) = queue.add("sleep:1000")
    for _ in range(5):
        with worker(queue.dsn, "work", "act_async", grace_s=2, max_attempts=2, max_crashes=1) as process:
            process.wait_event("started")
            assert process.terminate() == 0
        queue.execute("UPDATE {t} SET run_at = clock_timestamp()")
    row = queue.row(item)
    assert (row["state"], row["attempt"], row["crash_count"]) == ("SCHEDULED", 0, 0)


def test_a_signal_to_the_whole_group_leaves_handler_processes_to_finish(queue: Queue) -> None:
    """B73: some init programs signal the group; the children have groups of their own."""
    items = queue.add("child:3", "stubborn:3")
    with worker(queue.dsn, "work", "act", isolation="process", concurrency=2) as process:
        process.wait_event("started", 2)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait() == 0
    for item in items:
        row = queue.row(item)
        assert (row["state"], row["attempt"]) == ("RESOLVED", 1)


def test_killed_with_its_children(queue: Queue) -> None:
    """A worker that is SIGKILLed takes its handler processes with it: the lease is no longer renewed."""
    (item,) = queue.add("stubborn:1000")
    with worker(queue.dsn, "work", "act", isolation="process") as process:
        queue.wait_state(item, "ASSIGNED")
        children = children_of(process.pid)
        assert children
        process.kill()
    wait_for("the children are gone", lambda: not any(alive(pid) for pid in children))


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as listed:
        return [int(word) for word in listed.read().split()]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as state:
            return state.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_without_a_database_it_still_ends(pg: Any, db: str) -> None:
    with worker("host=127.0.0.1 port=1 dbname=nowhere user=u", "work", "act", grace_s=5) as process:
        process.wait_event("claim_loop_trouble")
        assert process.terminate() == 0
