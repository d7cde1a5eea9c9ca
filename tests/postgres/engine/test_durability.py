"""Guarantee 12: what was acknowledged survives `kill -9` of the server. Only plain claims and renewals may be lost: the fence makes
that harmless.

The server's WAL writer sleeps for 10 s, so that a commit which did not wait for the disk is lost for certain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from devtools.pgserver import PgServer
from leasequeue import Outcome, Settlement, Table, schema
from leasequeue.enqueue import enqueue
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import Client, add, row, rows, states

Conn = psycopg.Connection[Any]


@pytest.fixture
def lazy_server(durable_server: PgServer) -> Iterator[PgServer]:
    with psycopg.connect(durable_server.dsn(), autocommit=True) as conn:
        conn.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        conn.execute("ALTER SYSTEM SET autovacuum = off")
        conn.execute("SELECT pg_reload_conf()")
    yield durable_server
    durable_server.start()
    with psycopg.connect(durable_server.dsn(), autocommit=True) as conn:
        conn.execute("ALTER SYSTEM RESET ALL")
        conn.execute("DROP TABLE IF EXISTS durable")


@pytest.fixture
def durable(lazy_server: PgServer) -> Table:
    with psycopg.connect(lazy_server.dsn(), autocommit=True) as conn:
        schema.create(conn, "durable")
        add(conn, Table.load(conn, "durable"), 40)
        conn.execute("CHECKPOINT")
        return Table.load(conn, "durable")


Write = Callable[[Client, Any], Any]


def _settle(verb: str, delay: float = 0.0) -> Write:
    return lambda client, lease: client.call("settle", [Settlement(lease, verb, delay, "why")])[lease.id]


WRITES: dict[str, tuple[Write, str]] = {
    "resolve": (lambda client, lease: client.resolve(lease, result=1)[0], "RESOLVED"),
    "retry": (_settle("RETRY", 60.0), "SCHEDULED"),
    "fail": (_settle("FAIL"), "FAILED"),
    "repair": (_settle("REPAIR"), "REPAIR"),
    "release": (_settle("RELEASE", 60.0), "SCHEDULED"),
}


def test_acknowledged_completions_survive(lazy_server: PgServer, durable: Table, open_client: OpenClient) -> None:
    """One of each kind, then the server is killed in the moment after the last acknowledgement."""
    client = open_client(durable, dsn=lazy_server.dsn())
    leases = [item.lease for item in client.claim(len(WRITES))]
    for lease, (write, _) in zip(leases, WRITES.values(), strict=True):
        assert write(client, lease) != Outcome.LOST
    lazy_server.kill9()
    client.driver.close()
    lazy_server.start()
    with psycopg.connect(lazy_server.dsn(), autocommit=True) as conn:
        found = {name: row(conn, durable, lease.id)["state"] for lease, name in zip(leases, WRITES, strict=True)}
    assert found == {name: state for name, (_, state) in WRITES.items()}


def test_acknowledged_enqueue_survives(lazy_server: PgServer, durable: Table) -> None:
    with psycopg.connect(lazy_server.dsn(), autocommit=True) as conn:
        added = enqueue(conn, durable, [{"idempotency_key": f"k{i}"} for i in range(3)])
        lazy_server.kill9()
    lazy_server.start()
    with psycopg.connect(lazy_server.dsn(), autocommit=True) as conn:
        assert {one.id for one in added} <= set(rows(conn, durable))


@pytest.mark.parametrize("settings", [{"max_inflight_policy": "Enforce"}, {"strict_lanes": True}], ids=["ceiling", "strict"])
def test_claims_that_others_rely_on_survive(
    lazy_server: PgServer, durable: Table, open_client: OpenClient, settings: dict[str, Any]
) -> None:
    """Under a ceiling or strict lanes a lost claim would let a second item run beside the first."""
    client = open_client(durable, dsn=lazy_server.dsn(), **settings)
    (item,) = client.claim()
    lazy_server.kill9()
    client.driver.close()
    lazy_server.start()
    with psycopg.connect(lazy_server.dsn(), autocommit=True) as conn:
        assert row(conn, durable, item.id)["lease_token"] == item.lease.token


def test_plain_claim_may_be_lost_and_its_completion_is_then_refused(
    lazy_server: PgServer, durable: Table, open_client: OpenClient
) -> None:
    client = open_client(durable, dsn=lazy_server.dsn())
    (item,) = client.claim()
    lazy_server.kill9()
    client.driver.close()
    lazy_server.start()
    again = open_client(durable, dsn=lazy_server.dsn(), worker_id=client.worker_id)
    outcome = again.resolve(item.lease)
    with psycopg.connect(lazy_server.dsn(), autocommit=True) as conn:
        stored = row(conn, durable, item.id)["state"]
    assert (outcome, stored) in [([Outcome.LOST], "PENDING"), ([Outcome.RESOLVED], "RESOLVED")]


def test_killed_in_the_middle_of_many_commits(lazy_server: PgServer, durable: Table, open_client: OpenClient) -> None:
    """Four workers complete items one after another; whatever was acknowledged before the kill is there, and nothing else changed."""
    clients = [open_client(durable, dsn=lazy_server.dsn()) for _ in range(4)]
    held = {client.worker_id: [item.lease for item in client.claim(10)] for client in clients}
    acknowledged: list[Any] = []
    enough = threading.Event()

    def work(client: Client) -> None:
        for lease in held[client.worker_id]:
            try:
                outcome = client.resolve(lease, result="kept")
            except psycopg.OperationalError:
                return
            assert outcome == [Outcome.RESOLVED]
            acknowledged.append(lease.id)
            if len(acknowledged) >= 8:
                enough.set()

    threads = [threading.Thread(target=work, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    assert enough.wait(30)
    lazy_server.kill9()
    for thread in threads:
        thread.join(30)
    lazy_server.start()
    with psycopg.connect(lazy_server.dsn(), autocommit=True) as conn:
        stored = rows(conn, durable)
        resolved = {item_id for item_id, r in stored.items() if r["state"] == "RESOLVED"}
        assert set(acknowledged) <= resolved
        assert {stored[item_id]["result"] for item_id in resolved} == {"kept"}
        assert set(states(conn, durable)) <= {"RESOLVED", "ASSIGNED", "PENDING"}
