"""What the network and the server do to a worker: failover, locks, lost answers, half-open connections, crashes, rotated passwords."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from devtools.pgserver import PgServer
from tests.support.faketime import skewed
from tests.support.processes import Process, reclaimer, wait_for, worker
from tests.support.queues import Queue
from tests.support.tcpproxy import TcpProxy

HANDLER_FORMS = [("act", "thread"), ("act_async", "thread"), ("act", "process")]


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    made = Queue(dsn)
    yield made
    made.close()


@pytest.fixture
def proxy(pg: PgServer, db: str) -> Iterator[TcpProxy]:
    with TcpProxy(pg.dsn(db, tcp=True)) as made:
        yield made


def posted_once(queue: Queue, count: int) -> None:
    """Every item has exactly one posting, however often it was started."""
    (sums,) = queue.execute("SELECT count(*) AS lines, count(DISTINCT item) AS items FROM ledger")
    assert (sums["lines"], sums["items"]) == (count, count)


# --- rows that refuse every change -----------------------------------------------------------------------------------------


def test_items_that_refuse_every_change_are_named_and_stop_nobody(queue: Queue) -> None:
    """At the head of the queue, in its middle, and due for promotion: all others are worked off at their first attempt."""
    items = queue.add(*[""] * 40)
    due = queue.add("", "", state="SCHEDULED", run_at="2024-01-01Z")
    queue.execute("ALTER TABLE {t} ADD CONSTRAINT never CHECK (n NOT IN (0, 17)) NOT VALID")
    with worker(queue.dsn, "work", "act", concurrency=2, batch_size=20) as process:
        queue.wait_states(RESOLVED=39, PENDING=2, SCHEDULED=1)
        told = process.wait_event("item_refuses_change", 3)
        assert not process.named("claim_loop_trouble")
    assert {(line["item_id"], line["verb"], line["sqlstate"]) for line in told} == {
        (str(items[0]), "claim", "23514"), (str(items[17]), "claim", "23514"), (str(due[0]), "promote", "23514"),
    }  # fmt: skip
    assert {row["attempt"] for row in queue.rows() if row["state"] == "RESOLVED"} == {1}


# --- lost answers ---------------------------------------------------------------------------------------------------------


def test_a_lost_claim_reply_costs_no_attempt(queue: Queue, proxy: TcpProxy) -> None:
    items = queue.add("", "", "")
    rule = proxy.lose_reply("leasequeue-worker claims", b"ASSIGNED")
    with worker(proxy.dsn, "work", "act", concurrency=3) as process:
        for item in items:
            assert queue.wait_state(item, "RESOLVED")["attempt"] == 1
        process.wait_event("unknown_leases_released")
    assert rule.done


@pytest.mark.parametrize(("handler", "isolation"), HANDLER_FORMS)
def test_a_lost_commit_reply_is_read_back_and_nothing_runs_again(
    queue: Queue, proxy: TcpProxy, handler: str, isolation: str
) -> None:
    (item,) = queue.add("post:")
    rule = proxy.lose_reply("leasequeue-worker handler", b"COMMIT\0")
    with worker(proxy.dsn, "work", handler, isolation=isolation) as process:
        process.wait_event("item_resolved")
        row = queue.row(item)
        assert (row["state"], row["attempt"], row["result"]) == ("RESOLVED", 1, {"posted": 0})
        assert process.terminate() == 0
        assert len(process.named("item_leased")) == 1
        assert process.named("handler_raised") == []
    assert rule.done
    posted_once(queue, 1)


@pytest.mark.parametrize(("handler", "isolation"), HANDLER_FORMS)
def test_a_commit_that_never_arrived_is_retried_and_posted_once(
    queue: Queue, proxy: TcpProxy, handler: str, isolation: str
) -> None:
    (item,) = queue.add("post:")
    rule = proxy.lose_request("leasequeue-worker handler", b"COMMIT")
    with worker(proxy.dsn, "work", handler, isolation=isolation) as process:
        row = queue.wait_state(item, "RESOLVED")
        assert row["attempt"] == 2
        assert process.named("handler_raised", error_type="NothingCommitted")
    assert rule.done
    posted_once(queue, 1)


def test_a_lost_completion_reply_is_offered_again_and_recognised(queue: Queue, proxy: TcpProxy) -> None:
    (item,) = queue.add("")
    rule = proxy.lose_reply("leasequeue-worker completions", b"ids\0")  # a column of the answer
    with worker(proxy.dsn, "work", "act") as process:
        process.wait_event("item_completion_noop", outcome="ALREADY_RESOLVED")
        assert process.terminate() == 0
        assert len(process.named("item_leased")) == 1
    assert rule.done
    assert queue.row(item)["attempt"] == 1


# --- dead and half-dead connections ---------------------------------------------------------------------------------------


def test_cut_off_it_stops_its_handler_when_the_lease_is_no_longer_proven(queue: Queue, proxy: TcpProxy) -> None:
    """B23, B76: the peer acknowledges and never answers; neither keepalives nor tcp_user_timeout can see that."""
    (item,) = queue.add("sleep:1000")
    with worker(proxy.dsn, "work", "act", lock_timeout_ms=3_000, grace_s=10) as process:
        queue.wait_state(item, "ASSIGNED")
        process.wait_event("item_leased")
        proxy.stall()
        process.wait_event("lease_unconfirmed")
        assert queue.row(item)["state"] == "ASSIGNED"  # nobody reclaims before expiry + reclaim_after: it stopped in time
        proxy.flow()
        row = queue.wait_state(item, "RESOLVED")  # the result was offered to the fence all the same, and still fitted
        assert row["result"] == "cancelled unconfirmed"
        (other,) = queue.add("")
        queue.wait_state(other, "RESOLVED")


def test_cut_off_it_still_ends_within_its_grace(queue: Queue, proxy: TcpProxy) -> None:
    queue.add("stubborn:1000")
    with worker(proxy.dsn, "work", "act", lock_timeout_ms=3_000, grace_s=6) as process:
        process.wait_event("item_leased")
        proxy.stall()
        process.wait_event("renewal_unanswered")
        assert process.terminate() == 0


def test_connections_cut_at_random_lose_and_double_nothing(queue: Queue, proxy: TcpProxy) -> None:
    queue.fill(200, "post:")
    with worker(proxy.dsn, "work", "act", concurrency=4, batch_size=20, max_attempts=1_000) as process:
        cut, rng = 0, random.Random(7)
        while cut < 40:
            threading.Event().wait(rng.uniform(0.02, 0.2))
            cut += proxy.cut()
        queue.execute("UPDATE {t} SET run_at = clock_timestamp() WHERE state = 'SCHEDULED'")
        queue.wait_states(RESOLVED=200, timeout_s=120)
        assert process.terminate() == 0
    posted_once(queue, 200)


def test_backends_terminated_at_random_lose_and_double_nothing(queue: Queue) -> None:
    queue.fill(200, "post:")
    with worker(queue.dsn, "work", "act_async", concurrency=4, batch_size=20, max_attempts=1_000) as process:
        process.wait_event("item_resolved")
        terminated, rng = 0, random.Random(11)
        while terminated < 40 and queue.states() != {"RESOLVED": 200}:
            threading.Event().wait(rng.uniform(0.02, 0.2))
            terminated += len(
                queue.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND application_name LIKE 'leasequeue-worker%%' AND random() < 0.5 AND %s",
                    True,
                )
            )
        assert terminated
        queue.execute("UPDATE {t} SET run_at = clock_timestamp() WHERE state = 'SCHEDULED'")
        queue.wait_states(RESOLVED=200, timeout_s=120)
        assert process.terminate() == 0
    posted_once(queue, 200)


def test_a_server_that_crashes_comes_back_to_a_worker_that_waited(durable_server: PgServer) -> None:
    name = f"crash_{random.randrange(10**9)}"
    durable_server.create_database(name)
    queue = Queue(durable_server.dsn(name))
    queue.fill(150, "post:")
    with worker(queue.dsn, "work", "act", concurrency=2, batch_size=20, max_attempts=1_000) as process:
        process.wait_event("item_resolved", 20)
        acknowledged = {line["item_id"] for line in process.named("item_resolved")}
        durable_server.kill9()
        process.wait_event("claim_loop_trouble")
        durable_server.start()
        queue.conn = psycopg.connect(queue.dsn, autocommit=True, row_factory=psycopg.rows.dict_row)
        kept = {str(row["id"]) for row in queue.execute("SELECT id FROM {t} WHERE state = 'RESOLVED'")}
        assert acknowledged <= kept
        queue.execute("UPDATE {t} SET run_at = clock_timestamp() WHERE state = 'SCHEDULED'")
        queue.wait_states(RESOLVED=150, timeout_s=120)
        assert process.terminate() == 0
    posted_once(queue, 150)
    queue.close()


# --- a server that answers, but not as hoped ------------------------------------------------------------------------------


def test_a_server_that_became_read_only_is_left_for_one_that_is_not(queue: Queue, db: str, pg: PgServer) -> None:
    """B20: reads work, a plain SELECT succeeds; only a new connection helps once the server can write again."""
    alter = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
    with worker(queue.dsn, "work", "act") as process:
        wait_for("it is registered", lambda: queue.execute("SELECT 1 FROM leasequeue.worker"))
        pg.execute(alter.format(sql.Identifier(db), sql.Literal("on")))
        queue.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leasequeue-worker%%' AND %s",
            True,
        )
        wait_for("25006 is met", lambda: [e for e in process.named("claim_loop_trouble") if "25006" in e["error"]])
        (item,) = queue.add("")
        pg.execute(alter.format(sql.Identifier(db), sql.Literal("off")))
        queue.wait_state(item, "RESOLVED")
        process.wait_event("database_back")
        assert process.terminate() == 0


def test_a_table_lock_delays_and_breaks_nothing(queue: Queue) -> None:
    """B53: SKIP LOCKED does not skip a table lock; claims fail fast and come again, a lock shorter than the lease costs nothing."""
    (item,) = queue.add("sleep:10")
    with worker(queue.dsn, "work", "act_async", lock_timeout_ms=20_000, concurrency=2) as process:
        queue.wait_state(item, "ASSIGNED")
        with psycopg.connect(queue.dsn) as locking:
            locking.execute("LOCK TABLE work IN ACCESS EXCLUSIVE MODE")
            process.wait_event("claim_loop_trouble", kind="busy")
            locking.rollback()
        (other,) = queue.add("")
        queue.wait_state(other, "RESOLVED")
        assert queue.wait_state(item, "RESOLVED")["attempt"] == 1
        assert process.named("item_lost") == []


def test_a_rotated_password_is_read_from_its_file(queue: Queue, pg: PgServer, db: str, tmp_path: Path) -> None:
    """B19: password changed in the database first, in the file later; no restart."""
    role = sql.Identifier(f"rotating_{db}")
    pg.execute(sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD 'old'").format(role))
    try:
        host, port = "127.0.0.1", str(pg.port)
        for key, value in {"host": host, "port": port, "user": f"rotating_{db}", "password": "old", "dbname": db}.items():
            (tmp_path / key).write_text(value)
        with _from_file(tmp_path) as process:
            wait_for("it is registered", lambda: queue.execute("SELECT 1 FROM leasequeue.worker"))
            pg.execute(sql.SQL("ALTER ROLE {} PASSWORD 'new'").format(role))
            queue.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leasequeue-worker%%' AND %s",
                True,
            )
            wait_for(
                "the old password is refused",
                lambda: [e for e in process.named("claim_loop_trouble") if "authentication failed" in e["error"]],
            )
            (tmp_path / "password").write_text("new")
            (item,) = queue.add("")
            queue.wait_state(item, "RESOLVED")
            assert process.terminate() == 0
    finally:
        pg.execute(sql.SQL("DROP ROLE {}").format(role))


def _from_file(path: Path) -> Process:
    return Process(
        "leasequeue_worker.main",
        {
            "LEASEQUEUE_DSN_FILE": str(path), "LEASEQUEUE_TABLE": "work", "LEASEQUEUE_HTTP_PORT": "0",
            "LEASEQUEUE_HANDLER": "tests.support.handlers:act",
        },
    )  # fmt: skip


@pytest.mark.parametrize("skew_s", [600, -600])
def test_a_wrong_wall_clock_changes_nothing(queue: Queue, skew_s: int) -> None:
    """B49: leases are written and judged on the database's clock, kept on a monotonic one."""
    (item,) = queue.add("sleep:6")
    environment = {
        "LEASEQUEUE_DSN": queue.dsn, "LEASEQUEUE_TABLE": "work", "LEASEQUEUE_HTTP_PORT": "0",
        "LEASEQUEUE_HANDLER": "tests.support.handlers:act", "LEASEQUEUE_LOCK_TIMEOUT_MS": "3000",
    }  # fmt: skip
    with Process("tests.support.skewed", environment, [str(skew_s), "leasequeue_worker.main"]) as process:
        (line,) = process.wait_event("item_leased")
        row = queue.wait_state(item, "ASSIGNED")
        (lease,) = queue.execute("SELECT extract(epoch FROM lease_expires_at - clock_timestamp()) AS s FROM {t}")
        assert lease["s"] <= 3.0
        row = queue.wait_state(item, "RESOLVED")
        assert (row["result"], row["attempt"]) == ("slept", 1)
        (resolved,) = process.wait_event("item_resolved")
    _assert_skewed(line["timestamp"], row["leased_at"], skew_s)
    _assert_skewed(resolved["resolved_at"], row["resolved_at"], 0)


@pytest.mark.parametrize("skew_s", [600, -600])
def test_worker_and_reclaimer_with_opposite_clocks_take_nothing_from_each_other(queue: Queue, skew_s: int) -> None:
    """B49, the whole process (libfaketime): a worker ten minutes off beside a reclaimer ten minutes off the other way. A lease of 3 s lives
    through 8 s of work, no sweep takes it, and an ended one is taken when the database's clock says so."""
    queue.fill(3, "sleep:8")
    wait_for(
        "the server is up long enough for the reclaimer",
        lambda: queue.execute("SELECT 1 AS x WHERE clock_timestamp() > pg_postmaster_start_time() + interval '16.5 s'"),
    )
    with worker(queue.dsn, "work", "act", concurrency=3, lock_timeout_ms=3_000, **skewed(skew_s)) as process:
        leased = process.wait_event("item_leased", 3)
        for _ in range(3):
            with reclaimer(queue.dsn, "work", lock_timeout_ms=1_000, reclaim_after_s=10, **skewed(-skew_s)) as sweep:
                assert sweep.wait() == 0, sweep.tail()
            assert sweep.named("item_lease_reclaimed") == []
        queue.wait_states(RESOLVED=3)
        assert process.named("item_lost") == []
    rows = queue.rows()
    assert {(row["attempt"], row["crash_count"], row["result"]) for row in rows} == {(1, 0, "slept")}
    _assert_skewed(leased[0]["timestamp"], rows[0]["leased_at"], skew_s)
    _assert_skewed(sweep.named("run_ended")[0]["timestamp"], rows[0]["resolved_at"], -skew_s)


def _assert_skewed(told: str, database: Any, skew_s: float) -> None:
    """A time in a log line is off by the skew, within a minute."""
    off = (datetime.fromisoformat(told) - database).total_seconds()
    assert abs(off - skew_s) < 60
