"""Guarantee 10: everything works through PgBouncer in transaction mode with one server connection, and nothing stays on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

import leasequeue
from devtools.pgbouncer import PgBouncer
from devtools.pgserver import PgServer
from leasequeue import ClaimMark, Outcome, Settlement, Table, WorkerCounters
from leasequeue.config import LeaseConfig
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import Client, add, expire, in_threads, name_of, rows, states, wait_until

Conn = psycopg.Connection[Any]
SETTINGS = "SELECT name, setting FROM pg_settings WHERE name <> 'application_name' ORDER BY name"


@pytest.fixture(scope="module")
def bouncer(postgres_18: PgServer) -> Iterator[PgBouncer]:
    """PgBouncer before server 18."""
    with PgBouncer(postgres_18) as running:
        yield running


@pytest.fixture
def pooled_dsn(bouncer: PgBouncer, admin: Conn) -> str:
    return bouncer.dsn(admin.info.dbname)


@pytest.fixture
def pooled(table: Table, pooled_dsn: str, open_client: OpenClient) -> Client:
    return open_client(table, dsn=pooled_dsn)


def test_pooler_is_recognised(pooled_dsn: str, queue_dsn: str) -> None:
    with leasequeue.connect(pooled_dsn) as through, leasequeue.connect(queue_dsn) as direct:
        assert (leasequeue.is_pooled(through), leasequeue.is_pooled(direct)) == (True, False)


@pytest.mark.parametrize("strict_lanes", [False, True])
def test_every_operation_works(
    admin: Conn, make_queue: Any, pooled_dsn: str, open_client: OpenClient, strict_lanes: bool, settled_server: None
) -> None:
    table = make_queue(strict_lanes=strict_lanes)
    add(admin, table, 8, lane=lambda i: f"lane {i}" if strict_lanes else None)
    settings = {"strict_lanes": strict_lanes, "max_inflight_policy": "Enforce", "max_inflight": 100}
    client, other = (open_client(table, dsn=pooled_dsn, **settings) for _ in range(2))
    assert client.driver.load(table.name, "public").oid == table.oid
    client.call("register", client.worker_id, pod_uid="pod", pod_name="pod", slots=2)
    one, two, three, four = client.claim(4, registered=True, mark=ClaimMark())
    assert client.renew(one.lease, two.lease) == [Outcome.RENEWED] * 2
    assert client.resolve(one.lease, result={"a": 1}) == [Outcome.RESOLVED]
    outcomes = client.call("settle", [Settlement(two.lease, "RETRY", 60.0, "x"), Settlement(three.lease, "FAIL", error="y")])
    assert set(outcomes.values()) == {Outcome.RETRIED, Outcome.FAILED}
    assert client.call("release_unheld", worker_id=client.worker_id, held_tokens=[]) == 1
    assert len(client.claim(1)) == 1
    expire(admin, table)
    assert len(client.reclaim()) == 1
    client.call("heartbeat", client.worker_id, WorkerCounters(held=1))
    assert client.call("cordon", ["pod"]) == [client.worker_id]
    assert client.claimed(1, registered=True).admission == "cordoned"
    assert client.call("stats").counts["PENDING"] == len(other.claim(20)) == 5
    client.call("deregister", client.worker_id)
    assert four.lease is not None


def test_in_the_callers_transaction(admin: Conn, table: Table, pooled: Client) -> None:
    add(admin, table)
    (item,) = pooled.claim()
    with pooled.driver.transaction():
        pooled.resolve(item.lease)
        pooled.call("set_result", item.lease, {"in": "transaction"})
    assert states(admin, table) == {"RESOLVED": 1}


def test_twelve_clients_share_one_connection(admin: Conn, table: Table, pooled_dsn: str, open_client: OpenClient) -> None:
    """Every transaction of every client runs on the same backend; nothing of one may reach the other."""
    add(admin, table, 120)
    clients = [open_client(table, dsn=pooled_dsn) for _ in range(12)]

    def work(client: Client) -> int:
        done = 0
        while items := client.claim(5):
            client.renew(*[item.lease for item in items])
            done += client.resolve(*[item.lease for item in items], result="x").count(Outcome.RESOLVED)
        return done

    assert sum(in_threads([lambda c=c: work(c) for c in clients])) == 120
    assert states(admin, table) == {"RESOLVED": 120}
    backends = {c.driver.execute("SELECT pg_backend_pid() AS pid")[0]["pid"] for c in clients}
    assert len(backends) == 1


def test_no_setting_and_no_lock_stays_on_the_connection(
    admin: Conn, make_queue: Any, pooled_dsn: str, open_client: OpenClient
) -> None:
    """B25, B26: what the next client of the connection finds; also after an operation that failed half-way."""
    table = make_queue(strict_lanes=True)
    add(admin, table, 3, lane="a")
    client = open_client(table, dsn=pooled_dsn, strict_lanes=True, max_inflight_policy="Enforce")
    with psycopg.connect(pooled_dsn, autocommit=True, prepare_threshold=None) as stranger:
        before = stranger.execute(SETTINGS).fetchall()
        (backend,) = stranger.execute("SELECT pg_backend_pid()").fetchone()
        (item,) = client.claim(3)
        client.resolve(item.lease)
        with admin.transaction():
            admin.execute(f"LOCK TABLE {name_of(table)} IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(errors.LockNotAvailable):
                client.claim(3)
        assert stranger.execute(SETTINGS).fetchall() == before
        locks = admin.execute("SELECT locktype FROM pg_locks WHERE pid = %s AND locktype = 'advisory'", [backend]).fetchall()
        prepared = stranger.execute("SELECT name FROM pg_prepared_statements").fetchall()
    assert (locks, prepared) == ([], [])


def test_client_that_vanishes_in_the_middle_leaves_nothing(
    admin: Conn, table: Table, pooled_dsn: str, open_client: OpenClient
) -> None:
    add(admin, table, 2)
    gone = leasequeue.connect(pooled_dsn)
    gone.execute("BEGIN")
    leasequeue.claim(gone, table, worker_id="gone", n=1, config=LeaseConfig())
    gone.close()
    client = open_client(table, dsn=pooled_dsn)
    leased: set[Any] = set()

    def both_leased() -> bool:
        with contextlib.suppress(errors.LockNotAvailable):  # until the pooler noticed that its client is gone
            leased.update(item.id for item in client.claim(2))
        return len(leased) == 2

    wait_until(both_leased, "the vanished client's transaction ended")
    assert {r["leased_by"] for r in rows(admin, table).values()} == {client.worker_id}
