"""The reclaimer as its own process: sweeps, pages, run records, what it does when things go wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from devtools.pgserver import PgServer
from leasequeue import LeaseConfig, Table, claim, connect
from tests.support.processes import Process, reclaimer, wait_for
from tests.support.queues import Queue
from tests.support.tcpproxy import TcpProxy


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    made = Queue(dsn)
    wait_for(  # a lease of one second and 15 s: before that nothing is reclaimed, by design
        "the server is up long enough",
        lambda: made.execute("SELECT 1 AS x WHERE clock_timestamp() > pg_postmaster_start_time() + interval '16.5 s'"),
    )
    yield made
    made.close()


def sweep(queue: Queue, **settings: Any) -> Process:
    """One run of the reclaimer, to its end."""
    with reclaimer(queue.dsn, "work", lock_timeout_ms=1_000, **settings) as process:
        assert process.wait() == 0, process.tail()
        assert not process.stray, process.stray
    return process


def lease(queue: Queue, count: int, worker_id: str = "dead") -> list[Any]:
    """Claim `count` items for a worker that never comes back."""
    with connect(queue.dsn) as conn:
        table, left, ids = Table.load(conn, "work"), count, []
        while left:
            claimed = claim(conn, table, worker_id=worker_id, n=min(200, left), config=LeaseConfig()).items
            ids += [item.id for item in claimed]
            left -= len(claimed)
    return ids


def last_run(queue: Queue) -> dict[str, Any]:
    return queue.execute("SELECT * FROM leasequeue.reclaim_run ORDER BY id DESC LIMIT 1")[0]


def test_ended_leases_go_back_page_by_page_and_live_ones_stay(queue: Queue) -> None:
    queue.fill(250)
    lease(queue, 240)
    queue.expire()
    (live,) = lease(queue, 1, "alive")
    process = sweep(queue, reclaim_batch=100)
    assert queue.states() == {"PENDING": 249, "ASSIGNED": 1}
    assert queue.row(live)["leased_by"] == "alive"
    lines = process.named("item_lease_reclaimed")
    assert len(lines) == 240
    assert {line["worker_id"] for line in lines} == {"dead"}
    assert all(line["trace_id"] and line["idempotency_key"] and line["attempt"] == 1 for line in lines)
    run = last_run(queue)
    assert (run["reclaimed"], run["repaired"], run["assigned"], run["exceeded"], run["error"]) == (240, 0, 1, False, None)
    assert run["finished_at"] >= run["started_at"]


def test_an_item_that_crashes_again_and_again_goes_to_repair(queue: Queue) -> None:
    (item,) = queue.add("")
    for _ in range(2):
        lease(queue, 1)
        queue.expire()
        sweep(queue, max_crashes=2)
    row = queue.row(item)
    assert (row["state"], row["crash_count"]) == ("REPAIR", 2)
    assert last_run(queue)["repaired"] == 1


def test_leases_of_plain_sql_neighbours_are_taken_back_too(queue: Queue) -> None:
    queue.add("")
    queue.execute(
        "UPDATE {t} SET state = 'ASSIGNED', leased_by = 'neighbour', leased_at = now() - interval '2 h',"
        " lease_expires_at = now() - interval '1 h'"
    )
    assert len(sweep(queue).named("item_lease_reclaimed", worker_id="neighbour")) == 1
    assert queue.states() == {"PENDING": 1}


def test_due_items_are_promoted_future_ones_set_aside_and_old_ones_pruned(queue: Queue) -> None:
    queue.add("", "", state="SCHEDULED")
    queue.execute("INSERT INTO {t} (what, run_at) VALUES ('later', clock_timestamp() + interval '1 h')")
    queue.execute(
        "INSERT INTO {t} (what, state, resolved_at) SELECT 'old', 'RESOLVED', clock_timestamp() - interval '2 d'"
        " FROM generate_series(1, 2500)"
    )
    queue.execute("INSERT INTO {t} (what, state, resolved_at) VALUES ('new', 'RESOLVED', clock_timestamp())")
    sweep(queue, retention_resolved_after_s=86_400)
    assert queue.states() == {"PENDING": 2, "SCHEDULED": 1, "RESOLVED": 1}
    run = last_run(queue)
    assert (run["promoted"], run["deferred"], run["pruned"]) == (2, 1, 2500)


def test_nothing_is_pruned_without_a_retention(queue: Queue) -> None:
    queue.execute("INSERT INTO {t} (state, resolved_at) VALUES ('RESOLVED', clock_timestamp() - interval '9 y')")
    sweep(queue)
    assert queue.states() == {"RESOLVED": 1}


def test_too_many_in_flight_is_an_error_of_the_log_and_the_record(queue: Queue) -> None:
    queue.fill(120)
    lease(queue, 120)
    process = sweep(queue, max_inflight=100)
    (line,) = process.named("max_inflight_exceeded")
    assert (line["level"], line["assigned"], line["max_inflight"]) == ("error", 120, 100)
    run = last_run(queue)
    assert (run["exceeded"], run["assigned"], run["max_inflight"]) == (True, 120, 100)


def test_rows_that_may_not_be_taken_do_not_hide_those_behind_them(queue: Queue) -> None:
    """B71: the first page's worth is locked, or its leases never end; the ten behind are reclaimed in the same run."""
    queue.fill(30)
    lease(queue, 30)
    queue.expire()
    queue.execute("UPDATE {t} SET lease_expires_at = 'infinity' WHERE n <= 10")
    with psycopg.connect(queue.dsn) as locking:
        locking.execute("SELECT 1 FROM work WHERE n BETWEEN 11 AND 20 FOR UPDATE")
        sweep(queue, reclaim_batch=10)
        locking.rollback()
    assert queue.states() == {"PENDING": 10, "ASSIGNED": 20}


def test_items_that_refuse_every_change_are_named_and_stop_nobody(queue: Queue) -> None:
    """Reclaim, promotion and retention each meet one; the rest of their page is done, and the run is a good one."""
    lost = queue.add(*[""] * 5)
    lease(queue, 5)
    queue.expire()
    due = queue.add(*[""] * 5, state="SCHEDULED", run_at="2024-01-01Z")
    old = queue.add(*[""] * 5, state="RESOLVED", resolved_at="2024-01-01Z")
    queue.execute("CREATE TABLE refers (item uuid REFERENCES {t} (id))")
    queue.execute("INSERT INTO refers SELECT id FROM {t} WHERE id = %s", old[1])
    queue.execute("ALTER TABLE {t} ADD CONSTRAINT never CHECK (n <> 3) NOT VALID")
    process = sweep(queue, retention_resolved_after_s=60)
    assert queue.states() == {"PENDING": 8, "ASSIGNED": 1, "SCHEDULED": 1, "RESOLVED": 1}
    told = {(line["item_id"], line["verb"], line["sqlstate"]) for line in process.named("item_refuses_change")}
    assert told == {
        (str(lost[3]), "reclaim", "23514"), (str(due[3]), "promote", "23514"), (str(old[1]), "prune", "23503"),
    }  # fmt: skip
    assert (last_run(queue)["reclaimed"], last_run(queue)["promoted"], last_run(queue)["pruned"]) == (4, 4, 4)


def test_a_locked_table_ends_the_run_with_an_error_and_the_next_one_works(queue: Queue) -> None:
    """B67: waits are bounded inside; other steps and later runs do not hang behind it."""
    queue.add("")
    lease(queue, 1)
    queue.expire()
    with psycopg.connect(queue.dsn) as locking:
        locking.execute("LOCK TABLE work IN ACCESS EXCLUSIVE MODE")
        with reclaimer(queue.dsn, "work", lock_timeout_ms=1_000, run_for_s=3) as process:
            assert process.wait() == 3
        assert process.named("sweep_step_failed", step="reclaim") or process.named("sweep_failed")
        locking.rollback()
    sweep(queue)
    assert queue.states() == {"PENDING": 1}


def test_two_at_once_do_what_one_does(queue: Queue) -> None:
    queue.fill(400)
    lease(queue, 400)
    queue.expire()
    settings: dict[str, Any] = {"lock_timeout_ms": 1_000, "reclaim_batch": 20}
    with reclaimer(queue.dsn, "work", **settings) as one, reclaimer(queue.dsn, "work", **settings) as two:
        assert (one.wait(), two.wait()) == (0, 0)
    assert queue.states() == {"PENDING": 400}
    assert {row["crash_count"] for row in queue.rows()} == {1}
    assert len(one.named("item_lease_reclaimed")) + len(two.named("item_lease_reclaimed")) == 400


def test_it_sweeps_again_and_again_inside_its_minute_and_ends_on_sigterm(queue: Queue) -> None:
    with reclaimer(queue.dsn, "work", lock_timeout_ms=1_000, sweep_interval_s=1, run_for_s=3_600) as process:
        wait_for("a sweep", lambda: queue.execute("SELECT 1 FROM leasequeue.reclaim_run WHERE sweeps >= 2"))
        queue.add("")
        lease(queue, 1)
        queue.expire()
        process.wait_event("item_lease_reclaimed")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    run = last_run(queue)
    assert run["finished_at"] is not None
    assert run["reclaimed"] == 1


def test_a_run_killed_half_way_keeps_what_it_committed(queue: Queue) -> None:
    queue.fill(3_000)
    lease(queue, 3_000)
    queue.expire()
    with reclaimer(queue.dsn, "work", lock_timeout_ms=1_000, reclaim_batch=10) as process:
        process.wait_event("item_lease_reclaimed", 50)
        process.kill()
    taken = queue.states().get("PENDING", 0)
    assert taken >= 40
    assert last_run(queue)["finished_at"] is None
    sweep(queue, reclaim_batch=1_000)
    assert queue.states() == {"PENDING": 3_000}
    assert {row["crash_count"] for row in queue.rows()} == {1}


def test_a_lost_connection_is_opened_again_while_there_is_time(queue: Queue, pg: PgServer, db: str) -> None:
    queue.fill(200)
    lease(queue, 200)
    queue.expire()
    with TcpProxy(pg.dsn(db, tcp=True)) as proxy:
        rule = proxy.lose_reply("leasequeue-reclaimer", b"PENDING", times=2)
        with reclaimer(proxy.dsn, "work", lock_timeout_ms=1_000, reclaim_batch=10) as process:
            assert process.wait() == 0, process.tail()
    assert len(rule.done) == 2
    assert queue.states() == {"PENDING": 200}
    assert {row["crash_count"] for row in queue.rows()} == {1}


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ({"LEASEQUEUE_TABLE": "no_such_table"}, 3, "does not exist"),
        ({"LEASEQUEUE_DSN": "host=127.0.0.1 port=1 user=u password=s3cret dbname=d"}, 3, "connection"),
        ({"LEASEQUEUE_RECLAIM_AFTER_S": "5"}, 2, "from 10 to 600"),
    ],
)
def test_exit_codes_tell_a_wrong_setting_from_a_database_that_cannot_be_worked_with(
    queue: Queue, change: dict[str, str], code: int, says: str
) -> None:
    with reclaimer(queue.dsn, "work", run_for_s=1, **change) as process:
        assert process.wait() == code
    told = "".join(str(e) for e in process.events) + "".join(process.stray)
    assert says in told
    assert "s3cret" not in told


def test_a_row_that_a_trigger_refuses_is_named_and_the_rest_is_done(queue: Queue) -> None:
    queue.add("", state="SCHEDULED")
    queue.add("")
    lease(queue, 1)
    queue.expire()
    queue.conn.execute(
        sql.SQL(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF OLD.state = 'ASSIGNED' THEN RAISE EXCEPTION 'refused'; END IF; RETURN NEW; END $$"
        )
    )
    queue.conn.execute("CREATE TRIGGER refuse BEFORE UPDATE ON work FOR EACH ROW EXECUTE FUNCTION refuse()")
    with reclaimer(queue.dsn, "work", lock_timeout_ms=1_000) as process:
        assert process.wait() == 0
    assert process.named("item_refuses_change", verb="reclaim")
    assert queue.states() == {"ASSIGNED": 1, "PENDING": 1}
    run = last_run(queue)
    assert (run["promoted"], run["reclaimed"], run["error"]) == (1, 0, None)


def test_it_works_beside_its_siblings_signals(queue: Queue) -> None:
    """SIGTERM to the group of the Job's container: one orderly end, whatever it was doing."""
    with reclaimer(queue.dsn, "work", sweep_interval_s=30, run_for_s=3_600) as process:
        wait_for("the run is recorded", lambda: queue.execute("SELECT 1 FROM leasequeue.reclaim_run WHERE sweeps >= 1"))
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait() == 0
    assert last_run(queue)["finished_at"] is not None


@pytest.mark.slow
def test_half_a_million_ended_leases_go_back_in_pages_within_a_few_runs(queue: Queue, pg: PgServer, db: str) -> None:
    """B70: no statement comes near the server's own limit; what a run had no time for the next one does."""
    pg.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = '5s'").format(sql.Identifier(db)))
    count = 500_000
    queue.execute(
        "INSERT INTO {t} (n, state, leased_by, leased_at, lease_expires_at, lease_token, attempt)"
        " SELECT i, 'ASSIGNED', 'dead', clock_timestamp() - interval '2 h', clock_timestamp() - interval '1 h',"
        " gen_random_uuid(), 1 FROM generate_series(1, %s) AS i",
        count,
    )
    runs = 0
    while queue.states() != {"PENDING": count}:
        runs += 1
        assert runs <= 6
        with reclaimer(queue.dsn, "work", lock_timeout_ms=1_000, reclaim_batch=1_000, run_for_s=40) as process:
            assert process.wait(120) == 0, process.tail()
        assert last_run(queue)["error"] is None
    (row,) = queue.execute("SELECT min(crash_count) AS low, max(crash_count) AS high FROM {t}")
    assert (row["low"], row["high"]) == (1, 1)
