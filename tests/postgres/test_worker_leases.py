"""Leases while handlers run: renewal that nothing stops, losses that stop handlers, limits on run time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.processes import Process, reclaimer, wait_for, worker
from tests.support.queues import Queue

LEASE_MS = 3_000


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    made = Queue(dsn)
    yield made
    made.close()


def wait_running(queue: Queue, item: Any) -> dict[str, Any]:
    """Wait until an item is leased; its row."""
    return queue.wait_state(item, "ASSIGNED")


def steal(queue: Queue, item: Any) -> None:
    """Another worker's lease, as after an expiry and a reclaim."""
    queue.execute(
        "UPDATE {t} SET leased_by = 'thief', lease_token = gen_random_uuid(),"
        " lease_expires_at = clock_timestamp() + interval '1 h' WHERE id = %s",
        item,
    )


# --- renewal --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "what", "isolation"),
    [
        ("act", "stubborn:8", "thread"),
        ("act", "spin:8", "thread"),
        ("act_async", "block:8", "thread"),
        ("act", "hold_gil:8", "process"),
        ("act", "child:8", "process"),
    ],
    ids=["blocked thread", "python loop", "blocked event loop", "held interpreter", "waits for a child"],
)
def test_a_busy_handler_keeps_its_lease(queue: Queue, handler: str, what: str, isolation: str) -> None:
    """B43: renewal has its own thread and connection; a handler that holds the interpreter has its own process."""
    (item,) = queue.add(what)
    with worker(queue.dsn, "work", handler, isolation=isolation, lock_timeout_ms=LEASE_MS) as process:
        wait_running(queue, item)
        wait_for(
            "the lease to be extended past two of its lengths, while the handler runs",
            lambda: queue.execute(
                "SELECT 1 FROM {t} WHERE state = 'ASSIGNED' AND lease_expires_at > leased_at + interval '6 s'"
            ),
        )
        row = queue.wait_state(item, "RESOLVED")
        assert row["attempt"] == 1
        assert process.named("item_lost") == []
        assert process.named("lease_unconfirmed") == []


def test_items_that_wait_in_the_worker_are_renewed_too(queue: Queue) -> None:
    queue.fill(30, "sleep:0.001")
    with worker(queue.dsn, "work", "act", lock_timeout_ms=LEASE_MS) as process:
        queue.wait_states(RESOLVED=30)  # the pace is known now: the next items are prefetched
        queue.add("stubborn:4", "", "", "")
        process.wait_event("item_resolved", 34)
        assert process.named("item_lost") == []
    assert all(row["crash_count"] == 0 for row in queue.rows())


def test_items_that_wait_behind_a_long_one_go_back_uncounted(queue: Queue) -> None:
    queue.fill(30, "sleep:0.001")
    with worker(queue.dsn, "work", "act") as process:
        queue.wait_states(RESOLVED=30)
        queue.execute("INSERT INTO {t} (n, what) VALUES (100, 'sleep:1000'), (101, ''), (102, '')")
        process.wait_event("item_released", 2)
        queue.wait_states(RESOLVED=30, ASSIGNED=1, PENDING=2)
    assert [row["attempt"] for row in queue.rows() if row["n"] > 100] == [0, 0]


# --- losses ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", ["act", "act_async"])
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_lost_lease_cancels_the_handler_and_its_result_changes_nothing(queue: Queue, handler: str, isolation: str) -> None:
    (item,) = queue.add("sleep:1000")
    with worker(queue.dsn, "work", handler, isolation=isolation, lock_timeout_ms=LEASE_MS) as process:
        wait_running(queue, item)
        steal(queue, item)
        process.wait_event("item_lost")
        process.wait_event("item_completion_noop", outcome="LOST")
        (other,) = queue.add("")
        queue.wait_state(other, "RESOLVED")
    row = queue.row(item)
    assert (row["state"], row["leased_by"], row["attempt"], row["result"]) == ("ASSIGNED", "thief", 1, None)


@pytest.mark.parametrize("statement", ["DELETE FROM {t} WHERE what LIKE 'sleep%%'", "TRUNCATE {t}"])
def test_a_row_that_vanishes_is_a_clean_stop(queue: Queue, statement: str) -> None:
    (item,) = queue.add("sleep:1000")
    with worker(queue.dsn, "work", "act", lock_timeout_ms=LEASE_MS) as process:
        wait_running(queue, item)
        queue.conn.execute(statement.replace("{t}", "work").replace("%%", "%"))
        process.wait_event("item_lost")
        (other,) = queue.add("")
        queue.wait_state(other, "RESOLVED")
        assert process.terminate() == 0
    assert [row["id"] for row in queue.rows()] == [other]


def test_a_dropped_table_is_backed_off_from_and_taken_up_again(queue: Queue) -> None:
    queue.add("sleep:1000")
    with worker(queue.dsn, "work", "act", lock_timeout_ms=LEASE_MS) as process:
        process.wait_event("item_leased")
        queue.execute("DROP TABLE {t}")
        process.wait_event("claim_loop_trouble", kind="schema")
        again = Queue(queue.dsn)
        (item,) = again.add("")
        again.wait_state(item, "RESOLVED")
        assert process.process.poll() is None
        assert process.terminate() == 0
        again.close()


def test_a_transaction_longer_than_its_lease_still_commits_once(queue: Queue) -> None:
    """Its row lock makes renewals BUSY: that is no loss, and nobody can lease the row meanwhile."""
    (item,) = queue.add("post:sleep6")
    with worker(queue.dsn, "work", "act", lock_timeout_ms=2_000) as process:
        process.wait_event("item_leased")
        wait_for(
            "the posting's transaction",
            lambda: queue.execute("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'"),
        )
        with reclaimer(queue.dsn, "work", lock_timeout_ms=2_000, reclaim_after_s=10) as sweep:
            assert sweep.wait() == 0
        row = queue.wait_state(item, "RESOLVED")
        assert process.named("item_lost") == []
    assert (row["attempt"], row["crash_count"], row["result"]) == (1, 0, {"posted": 0})
    assert len(queue.execute("SELECT * FROM ledger")) == 1


def test_a_zombies_transaction_is_stopped_before_its_first_effect(queue: Queue) -> None:
    (item,) = queue.add("wait_then_post:3")
    with worker(queue.dsn, "work", "act", lock_timeout_ms=120_000) as process:
        wait_running(queue, item)
        steal(queue, item)
        process.wait_event("handler_raised", error_type="LeaseNotHeld")
        process.wait_event("item_completion_noop", outcome="LOST")
    assert queue.execute("SELECT is_called FROM ledger_n_seq") == [{"is_called": False}], "the effect was not even tried"
    assert queue.row(item)["leased_by"] == "thief"


# --- run time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "what", "isolation"),
    [
        ("act", "sleep:1000", "thread"),
        ("act_async", "sleep:1000", "thread"),
        ("act", "stubborn:1000", "process"),
        ("act", "hold_gil:1000", "process"),
    ],
    ids=["asked thread", "cancelled task", "killed process", "killed interpreter"],
)
def test_an_item_past_its_run_time_is_stopped(queue: Queue, handler: str, what: str, isolation: str) -> None:
    (item,) = queue.add(what)
    with worker(
        queue.dsn, "work", handler, isolation=isolation, max_runtime_s=2, max_attempts=1, lock_timeout_ms=LEASE_MS
    ) as process:
        process.wait_event("max_runtime_exceeded")
        wait_for("the item is not leased any more", lambda: queue.row(item)["state"] in ("FAILED", "RESOLVED"))
        (other,) = queue.add("")
        queue.wait_state(other, "RESOLVED")
    row = queue.row(item)
    if handler == "act" and isolation == "thread":
        assert row["result"] == "cancelled max_runtime"  # it heeded ctx.cancelled and returned: its result is taken
    else:
        assert row["state"] == "FAILED"


def test_exec_past_its_run_time_is_ended_with_all_it_started(queue: Queue, tmp_path: Any) -> None:
    (item,) = queue.add("")
    script = f"trap '' TERM; (trap '' TERM; while :; do date >> {tmp_path}/alive; sleep 0.2; done) & while :; do sleep 1; done"
    with worker(queue.dsn, "work", exec=["/bin/sh", "-c", script], max_runtime_s=1, max_attempts=1, lock_timeout_ms=LEASE_MS):
        row = queue.wait_state(item, "FAILED")
        assert "maxRuntimeSeconds" in row["last_error"]
        alive = tmp_path / "alive"
        size = alive.stat().st_size
        wait_for("another item", lambda: queue.add("") and True)
        assert alive.stat().st_size - size <= 64  # at most a line that was being written


@pytest.mark.parametrize(("handler", "what"), [("act", "stubborn:1000"), ("act_async", "refuse:1000")])
def test_a_handler_that_cannot_be_stopped_goes_to_repair_and_its_slot_is_recycled(
    queue: Queue, handler: str, what: str
) -> None:
    (item,) = queue.add(what)
    with worker(queue.dsn, "work", handler, max_runtime_s=1, lock_timeout_ms=LEASE_MS) as process:
        row = queue.wait_state(item, "REPAIR")
        assert "could not be stopped" in row["last_error"]
        process.wait_event("handler_abandoned")
        (other,) = queue.add("")
        queue.wait_state(other, "RESOLVED")
        assert process.terminate() == 0


# --- identity -------------------------------------------------------------------------------------------------------------


def expire_and_sweep(queue: Queue, **settings: Any) -> Process:
    """Sweep until the server has been up long enough to reclaim, with every lease expired."""
    queue.expire()
    while True:
        with reclaimer(queue.dsn, "work", lock_timeout_ms=1_000, **settings) as sweep:
            assert sweep.wait() == 0, sweep.tail()
        if sweep.named("item_lease_reclaimed"):
            return sweep
        wait_for(
            "one lease and 15 s since the server's start",
            lambda: queue.execute("SELECT 1 WHERE clock_timestamp() > pg_postmaster_start_time() + interval '16 s'"),
        )


def test_a_restarted_process_of_the_same_pod_never_takes_the_old_leases_for_its_own(queue: Queue) -> None:
    """B50: same pod name, same everything; the old lease expires and is reclaimed, the new process does not renew it."""
    (item,) = queue.add("sleep:1000")
    with worker(queue.dsn, "work", "act", POD_NAME="pod-1", POD_UID="u") as first:
        old = wait_running(queue, item)
        first.kill()
    with worker(queue.dsn, "work", "act", POD_NAME="pod-1", POD_UID="u") as second:
        (other,) = queue.add("")
        queue.wait_state(other, "RESOLVED")
        row = queue.row(item)
        assert (row["leased_by"], row["lease_expires_at"]) == (old["leased_by"], old["lease_expires_at"])
        sweep = expire_and_sweep(queue)
        assert sweep.named("item_lease_reclaimed", worker_id=old["leased_by"])
        second.wait_event("item_leased", attempt=2)


def test_a_poison_item_stops_after_its_crashes_and_the_others_are_done(queue: Queue) -> None:
    """B47: each execution kills the worker; crash_count ends it, though no exception handler ever ran."""
    (poison,) = queue.add("die:9", priority=5)
    others = queue.add("", "", "")
    executions = 0
    while queue.row(poison)["state"] != "REPAIR":
        with worker(queue.dsn, "work", "act") as process:
            process.wait(90)
            executions += len(process.named("item_leased", item_id=str(poison)))
        expire_and_sweep(queue, max_crashes=3)
        assert executions <= 3
    assert executions == 3
    assert queue.row(poison)["crash_count"] == 3
    with worker(queue.dsn, "work", "act"):
        for other in others:
            queue.wait_state(other, "RESOLVED")


def test_in_process_isolation_a_crash_costs_one_item_one_attempt(queue: Queue) -> None:
    (poison,) = queue.add("die:11", priority=5)
    others = queue.add("", "sleep:1", "")
    with worker(queue.dsn, "work", "act", isolation="process", concurrency=2, max_attempts=2) as process:
        row = queue.wait_state(poison, "FAILED")
        assert "signal SIGSEGV" in row["last_error"]
        for other in others:
            assert queue.wait_state(other, "RESOLVED")["attempt"] == 1
        assert process.terminate() == 0


def test_killed_in_the_middle_of_a_batch_everything_is_posted_exactly_once(queue: Queue) -> None:
    queue.fill(300, "post:")
    with worker(queue.dsn, "work", "act", concurrency=4, batch_size=50, max_inflight=10_000) as process:
        process.wait_event("item_resolved", 60)
        process.kill()
    left = queue.states()
    assert left.get("RESOLVED", 0) < 300
    if left.get("ASSIGNED"):
        expire_and_sweep(queue)
    with worker(queue.dsn, "work", "act", concurrency=4):
        queue.wait_states(RESOLVED=300)
    (sums,) = queue.execute("SELECT count(*) AS lines, count(DISTINCT item) AS items FROM ledger")
    assert (sums["lines"], sums["items"]) == (300, 300)
