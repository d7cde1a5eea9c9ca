"""A cordon keeps a pod's processes from claiming: it waits for a claim under way, and no lease appears after it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

from leasequeue import BadInput, Table, WorkerCounters
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import (
    Client,
    add,
    background,
    blocked_or_done,
    in_threads,
    name_of,
    rows,
    set_where,
    states,
)

Conn = psycopg.Connection[Any]


def register(client: Client, pod: str | None = "pod-1") -> Any:
    return client.call("register", client.worker_id, pod_uid=pod, pod_name=pod, slots=4)


@pytest.fixture
def worker(client: Client) -> Client:
    register(client)
    return client


@pytest.fixture
def operator(table: Table, open_client: OpenClient) -> Client:
    return open_client(table)


def test_unregistered_process_gets_nothing(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table)
    claimed = client.claimed(5, registered=True)
    assert (claimed.items, claimed.admission) == ([], "unregistered")
    register(client)
    claimed = client.claimed(5, registered=True)
    assert (len(claimed.items), claimed.admission) == (1, "open")


@pytest.mark.both_versions
@pytest.mark.parametrize("how", ["plain", "lanes", "strict"])
def test_cordoned_process_gets_nothing_until_it_is_lifted(
    admin: Conn, make_queue: Any, open_client: OpenClient, how: str
) -> None:
    table = make_queue(strict_lanes=how == "strict")
    worker = open_client(table, strict_lanes=how == "strict")
    register(worker)
    add(admin, table, 3, lane=lambda i: f"l{i}" if how != "plain" else None)
    options = {"lanes": ["l0", "l1", "l2"]} if how == "lanes" else {}
    assert worker.call("cordon", ["pod-1", "pod-unknown"], seconds=30) == [worker.worker_id]
    claimed = worker.claimed(5, registered=True, **options)
    assert (claimed.items, claimed.admission) == ([], "cordoned")
    assert states(admin, table) == {"PENDING": 3}
    assert worker.call("heartbeat", worker.worker_id, WorkerCounters()).cordoned
    worker.call("cordon", ["pod-1"], seconds=0)
    assert len(worker.claim(5, registered=True, **options)) == 3


def test_it_lapses_by_itself(admin: Conn, worker: Client, operator: Client) -> None:
    """A dead operator's cordons must not starve a queue."""
    operator.call("cordon", ["pod-1"], seconds=60)
    admin.execute(
        "UPDATE leasequeue.worker SET cordoned_until = cordoned_until - interval '61 seconds' WHERE queue = %s",
        [worker.table.oid],
    )
    add(admin, worker.table)
    assert len(worker.claim(registered=True)) == 1


@pytest.mark.parametrize("seconds", [61, -1, float("nan")])
def test_longer_than_a_minute_is_refused(operator: Client, seconds: float) -> None:
    with pytest.raises(BadInput, match="seconds"):
        operator.call("cordon", ["pod-1"], seconds=seconds)


def test_only_the_named_pods_and_this_queue(
    admin: Conn, make_queue: Any, table: Table, open_client: OpenClient, worker: Client
) -> None:
    neighbour, elsewhere = open_client(table), open_client(make_queue())
    register(neighbour, "pod-2")
    register(elsewhere, "pod-1")
    worker.call("cordon", ["pod-1"])
    for client in (neighbour, elsewhere):
        add(admin, client.table)
        assert len(client.claim(registered=True)) == 1


@pytest.mark.both_versions
def test_setting_it_waits_for_the_claim_under_way(admin: Conn, worker: Client, operator: Client) -> None:
    add(admin, worker.table, 2)
    worker.driver.execute("BEGIN")
    assert len(worker.claim(registered=True)) == 1
    with background(lambda: operator.call("cordon", ["pod-1"])) as cordoning:
        waits = blocked_or_done(admin, cordoning, operator.driver.pid)
        worker.driver.execute("COMMIT")
        assert waits, "the cordon was set while a claim was under way: its lease appears afterwards"
        assert cordoning.result() == [worker.worker_id]
    assert worker.claim(registered=True) == []


@pytest.mark.both_versions
def test_a_claim_waits_for_the_cordon_being_set(admin: Conn, worker: Client, operator: Client) -> None:
    add(admin, worker.table)
    operator.driver.execute("BEGIN")
    operator.call("cordon", ["pod-1"])
    with background(lambda: worker.claimed(registered=True)) as claiming:
        waits = blocked_or_done(admin, claiming, worker.driver.pid)
        operator.driver.execute("COMMIT")
        assert waits
        assert (claiming.result().items, claiming.result().admission) == ([], "cordoned")


@pytest.mark.both_versions
def test_a_claim_looks_for_rows_only_once_it_holds_its_own(admin: Conn, worker: Client, operator: Client) -> None:
    """Else one that waits for a cordon would keep its rows from everybody meanwhile."""
    add(admin, worker.table, 3)
    operator.driver.execute("BEGIN")
    operator.call("cordon", ["pod-1"])
    with background(lambda: worker.claimed(3, registered=True)) as claiming:
        waits = blocked_or_done(admin, claiming, worker.driver.pid)
        free = admin.execute(f"SELECT id FROM {name_of(worker.table)} FOR UPDATE SKIP LOCKED").fetchall()
        operator.driver.execute("COMMIT")
        assert waits
        assert len(free) == 3
        assert (claiming.result().items, claiming.result().admission) == ([], "cordoned")


@pytest.mark.both_versions
def test_a_claim_whose_own_row_goes_while_it_waits_takes_nothing(admin: Conn, worker: Client) -> None:
    add(admin, worker.table)
    with psycopg.connect(admin.info.dsn) as other:
        other.execute("DELETE FROM leasequeue.worker WHERE worker_id = %s", [worker.worker_id])
        with background(lambda: worker.claimed(registered=True)) as claiming:
            waits = blocked_or_done(admin, claiming, worker.driver.pid)
            other.commit()
            assert waits
            assert (claiming.result().items, claiming.result().admission) == ([], "unregistered")
    assert states(admin, worker.table) == {"PENDING": 1}


@pytest.mark.both_versions
def test_after_the_wait_for_its_own_row_a_claim_takes_what_stands_then(
    admin: Conn, table: Table, worker: Client, open_client: OpenClient
) -> None:
    """The claim's snapshot is older than what it waited for: rows that somebody else took or put off are not leased, changed ones once."""
    ids, neighbour = add(admin, table, 6), open_client(table)
    with psycopg.connect(admin.info.dsn) as other:
        other.execute("UPDATE leasequeue.worker SET seen_at = now() WHERE worker_id = %s", [worker.worker_id])
        with background(lambda: worker.claim(6, registered=True)) as claiming:
            waits = blocked_or_done(admin, claiming, worker.driver.pid)
            one, two = neighbour.claim(2)
            neighbour.resolve(one.lease)
            set_where(admin, table, "priority = 7", "id = %(id)s", id=ids[2])
            set_where(admin, table, "decision = 'late'", "id = %(id)s", id=ids[3])
            set_where(admin, table, "run_at = now() + interval '1 hour'", "id = %(id)s", id=ids[4])
            other.commit()
            assert waits
            items = claiming.result()
    assert [one.id, two.id] == ids[:2]
    assert [item.id for item in items] == [ids[2], ids[3], ids[5]]
    assert items[1]["decision"] == "late"
    stored = rows(admin, table)
    assert [item.lease.token for item in items] == [stored[item.id]["lease_token"] for item in items]
    assert len({item.lease.token for item in items}) == 3
    assert states(admin, table) == {"RESOLVED": 1, "ASSIGNED": 4, "PENDING": 1}


def test_a_claim_with_a_snapshot_from_before_the_cordon_is_refused(admin: Conn, worker: Client, operator: Client) -> None:
    """In a transaction of the caller's whose snapshot stays as it is."""
    add(admin, worker.table)
    worker.driver.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    worker.driver.execute("SELECT 1")
    operator.call("cordon", ["pod-1"])
    with pytest.raises(errors.SerializationFailure):
        worker.claim(registered=True)
    worker.driver.execute("ROLLBACK")
    assert states(admin, worker.table) == {"PENDING": 1}


@pytest.mark.both_versions
def test_no_lease_after_it_with_many_claimers(admin: Conn, table: Table, open_client: OpenClient, operator: Client) -> None:
    """Eight processes of one pod claim without pause; at some moment the cordon is set; later leases than that are counted."""
    add(admin, table, 400)
    clients = [open_client(table) for _ in range(8)]
    for client in clients:
        register(client)

    def claim_until_cordoned(client: Client) -> None:
        while (claimed := client.claimed(2, registered=True)).admission == "open" and claimed.items:
            pass

    def cordon() -> Any:
        while not states(probe, table).get("ASSIGNED"):
            pass
        operator.call("cordon", ["pod-1"])
        return probe.execute("SELECT clock_timestamp()").fetchone()[0]

    with psycopg.connect(admin.info.dsn, autocommit=True) as probe:
        *_, cordoned_at = in_threads([*(lambda c=c: claim_until_cordoned(c) for c in clients), cordon])
    leased_at = [r["leased_at"] for r in rows(admin, table).values() if r["leased_at"]]
    assert leased_at
    assert max(leased_at) <= cordoned_at


def test_process_that_starts_in_a_cordoned_pod_inherits_it(
    admin: Conn, table: Table, worker: Client, open_client: OpenClient
) -> None:
    add(admin, table)
    worker.call("cordon", ["pod-1"])
    late = open_client(table)
    assert register(late).cordoned
    assert late.claim(registered=True) == []
    assert not register(open_client(table), "pod-2").cordoned
    assert not register(open_client(table), None).cordoned


@pytest.mark.both_versions
def test_process_that_registers_while_the_cordon_is_being_set(
    admin: Conn, table: Table, worker: Client, operator: Client, open_client: OpenClient
) -> None:
    """The cordon is not yet committed: the new row must either be seen by it or see it."""
    add(admin, table)
    late = open_client(table)
    operator.driver.execute("BEGIN")
    operator.call("cordon", ["pod-1"])
    with background(lambda: register(late)) as registering:
        waits = blocked_or_done(admin, registering, late.driver.pid)
        operator.driver.execute("COMMIT")
        assert waits, "the process registered past a cordon under way"
        assert registering.result().cordoned
    assert late.claim(registered=True) == []


def test_registering_again_keeps_the_cordon_and_the_counters(worker: Client) -> None:
    worker.call("cordon", ["pod-1"])
    worker.call("heartbeat", worker.worker_id, WorkerCounters(held=2, running=1, claimed_total=9))
    assert register(worker).cordoned
    (seen,) = worker.call("workers")
    assert (seen.cordoned, seen.claimed_total, seen.pod_uid, seen.slots) == (True, 9, "pod-1", 4)


def test_renewals_and_completions_go_on(admin: Conn, worker: Client) -> None:
    add(admin, worker.table, 2)
    one, two = worker.claim(2, registered=True)
    worker.call("cordon", ["pod-1"])
    assert worker.renew(one.lease, two.lease) == ["RENEWED", "RENEWED"]
    assert worker.resolve(one.lease) == ["RESOLVED"]
    assert worker.call("held_by_pods", ["pod-1", "pod-none"]) == {"pod-1": 1, "pod-none": 0}


def test_held_counts_the_table_not_what_workers_say(admin: Conn, worker: Client) -> None:
    add(admin, worker.table, 3)
    worker.claim(3, registered=True)
    worker.call("heartbeat", worker.worker_id, WorkerCounters(held=0))
    assert worker.call("held_by_pods", ["pod-1"]) == {"pod-1": 3}
    assert [seen.leases for seen in worker.call("workers")] == [3]


def test_totals_outlive_their_process(admin: Conn, worker: Client, operator: Client) -> None:
    worker.call(
        "heartbeat", worker.worker_id, WorkerCounters(claimed_total=7, finished_total=5, lost_total=1, busy_ms_total=99)
    )
    before = operator.call("stats")
    worker.call("deregister", worker.worker_id)
    after = operator.call("stats")
    assert (before.claimed_total, before.finished_total, before.lost_total, before.busy_ms_total) == (7, 5, 1, 99)
    assert (after.claimed_total, after.finished_total, after.lost_total, after.busy_ms_total, after.workers) == (7, 5, 1, 99, 0)
    assert not worker.call("heartbeat", worker.worker_id, WorkerCounters()).registered


def test_stale_processes_go_only_when_they_hold_nothing(admin: Conn, table: Table, open_client: OpenClient) -> None:
    add(admin, table)
    holder, idle = open_client(table), open_client(table)
    register(holder)
    register(idle)
    holder.claim(registered=True)
    admin.execute("UPDATE leasequeue.worker SET seen_at = now() - interval '2 days' WHERE queue = %s", [table.oid])
    idle.call("deregister")
    assert [seen.worker_id for seen in idle.call("workers")] == [holder.worker_id]
    admin.execute(f"DELETE FROM {name_of(table)}")
