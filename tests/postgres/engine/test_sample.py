"""Figures about queues: exact where decisions hang on them, one query for many queues, whatever is in them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from leasequeue import RunRecord, State, Table, WorkerCounters, stats
from tests.postgres.engine.conftest import MakeQueue, OpenClient
from tests.postgres.engine.support import Client, add, bulk, expire, rows

Conn = psycopg.Connection[Any]


def test_empty_queue_has_zeros_not_gaps(client: Client) -> None:
    stats = client.call("stats")
    assert stats.counts == dict.fromkeys(State, 0)
    assert (stats.expired, stats.scheduled_due, stats.workers, stats.held) == (0, 0, 0, 0)
    assert (stats.oldest_pending_at, stats.next_due_at, stats.oldest_expired_at, stats.swept_at) == (None,) * 4
    assert stats.idle


@pytest.mark.both_versions
@pytest.mark.parametrize("strict_lanes", [False, True])
def test_counts_of_all_states(admin: Conn, make_queue: MakeQueue, open_client: OpenClient, strict_lanes: bool) -> None:
    table = make_queue(strict_lanes=strict_lanes)
    numbers = {"PENDING": 7, "RESOLVED": 5, "SCHEDULED": 4, "FAILED": 3, "REPAIR": 2}
    for state, n in numbers.items():
        bulk(admin, table, n, state=state, lane="CASE WHEN i %% 2 = 0 THEN 'lane' || i END")
    client = open_client(table)
    client.claim(3)
    expire(admin, table, ago="10 seconds")
    stats = client.call("stats")
    assert stats.counts == {**numbers, "PENDING": 4, "ASSIGNED": 3}
    assert (stats.expired, stats.assigned, stats.due, stats.resolved_exact) == (3, 3, 4, True)
    assert timedelta(seconds=9) < stats.now - stats.oldest_expired_at


def test_oldest_is_the_oldest_of_all_priorities(admin: Conn, table: Table, client: Client) -> None:
    """B98: the head of the priority order is young; the oldest due row waits behind it."""
    add(admin, table, 30, priority=lambda i: 30 - i, created_at=lambda i: f"2025-01-{30 - i:02}Z")
    assert client.call("stats").oldest_pending_at == min(r["created_at"] for r in rows(admin, table).values())


def test_oldest_ignores_what_is_not_due(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, created_at="2020-01-01Z", run_at="2999-01-01Z")
    (due,) = add(admin, table, created_at="2024-01-01Z")
    assert client.call("stats").oldest_pending_at == rows(admin, table)[due]["created_at"]


def test_what_is_due_next(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 3, state="SCHEDULED", run_at=lambda i: f"20{50 + i}-01-01Z")
    add(admin, table, 2, state="SCHEDULED", run_at="2020-01-01Z")
    stats = client.call("stats")
    assert (stats.scheduled_due, stats.due) == (2, 2)
    assert stats.next_due_at.year == 2020


@pytest.mark.parametrize("at", ["infinity", "-infinity"])
def test_times_that_python_cannot_hold(admin: Conn, table: Table, client: Client, at: str) -> None:
    add(admin, table, created_at=at, run_at="-infinity")
    add(admin, table, state="SCHEDULED", run_at=at)
    assert client.call("stats").counts[State.PENDING] == 1


def test_many_queues_in_one_query(admin: Conn, make_queue: MakeQueue, open_client: OpenClient) -> None:
    tables = [make_queue(None if i else "sampled {n} %s") for i in range(4)]
    for n, table in enumerate(tables):
        add(admin, table, n)
    sampled = open_client(tables[0]).driver.call("sample", tables)
    assert {oid: stats.counts[State.PENDING] for oid, stats in sampled.items()} == {t.oid: n for n, t in enumerate(tables)}
    assert open_client(tables[0]).driver.call("sample", []) == {}


def test_writes_nothing(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 2)
    client.driver.execute("SET default_transaction_read_only = on")
    assert client.call("stats").counts[State.PENDING] == 2


def test_workers_seen_lately(admin: Conn, table: Table, open_client: OpenClient) -> None:
    alive, busy, gone = (open_client(table) for _ in range(3))
    for client in (alive, busy, gone):
        client.call("register", client.worker_id, pod_uid=client.worker_id, pod_name=None, slots=1)
    busy.call("heartbeat", busy.worker_id, WorkerCounters(held=3, running=2))
    alive.call("cordon", [alive.worker_id])
    gone_at = "UPDATE leasequeue.worker SET seen_at = now() - interval '1 minute' WHERE worker_id = %s"
    admin.execute(gone_at, [gone.worker_id])
    stats = alive.call("stats")
    assert (stats.workers, stats.workers_busy, stats.workers_cordoned, stats.held) == (2, 1, 1, 3)


def test_sweeps_and_runs_are_remembered(client: Client) -> None:
    run_id = client.call("start_run", runner="cron-1", max_inflight=100)
    client.call("record_run", run_id, RunRecord(sweeps=1, reclaimed=3), over=False)
    assert client.call("runs")[0].finished_at is None
    swept_at = client.call("swept", reclaimed=3, repaired=1)
    client.call("swept", reclaimed=2, repaired=0)
    client.call("record_run", run_id, RunRecord(sweeps=2, reclaimed=5, assigned=7, exceeded=True, error="x"), over=True)
    (run,) = client.call("runs")
    assert (run.id, run.record.reclaimed, run.record.exceeded, run.record.error) == (run_id, 5, True, "x")
    assert run.finished_at is not None
    stats = client.call("stats")
    assert (stats.reclaimed_total, stats.repaired_total) == (5, 1)
    assert stats.swept_at >= swept_at


def test_first_owner_keeps_the_table(client: Client) -> None:
    mine = {"cr_uid": "u1", "cr_namespace": "a", "cr_name": "q"}
    other = {"cr_uid": "u2", "cr_namespace": "b", "cr_name": "q"}
    assert client.call("own_table", **mine).mine
    second = client.call("own_table", **other)
    assert (second.mine, second.cr_uid, second.cr_namespace) == (False, "u1", "a")
    assert client.call("own_table", **mine).mine
    assert not client.call("disown", cr_uid="u2")
    assert client.call("disown", cr_uid="u1")
    assert client.call("own_table", **other).mine


def test_a_strict_queue_is_counted_by_its_lanes_whoever_asks(admin: Conn, strict: Table) -> None:
    """Its claim index holds rows without a lane only: asked plainly, PENDING was counted by reading the whole table."""
    add(admin, strict, 6, lane=lambda i: f"lane {i % 2}")
    add(admin, strict, 3)
    found = stats(admin, strict)
    assert found.counts[State.PENDING] == 9
    assert found.lanes is not None
    assert (found.lanes.unlaned, found.lanes.claimable, found.claimable) == (3, 2, 5)
