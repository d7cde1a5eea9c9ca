"""Guarantee 6: under Enforce no more than max_inflight rows are ever ASSIGNED, whoever claims; Alert only tells."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import errors

from leasequeue import BadInput, LeaseConfig, Table
from tests.postgres.engine.conftest import MakeQueue, OpenClient
from tests.postgres.engine.support import Client, add, bulk, in_threads, name_of, set_where, states, wait_until, waiting_pids

Conn = psycopg.Connection[Any]
CEILING = {"max_inflight_policy": "Enforce", "max_inflight": 100}


@pytest.mark.both_versions
def test_exact_with_32_claimers(admin: Conn, table: Table, open_client: OpenClient) -> None:
    add(admin, table, 400)
    clients = [open_client(table, **CEILING) for _ in range(32)]

    def claim_until_nothing(client: Client) -> int:
        leased = 0
        with contextlib.suppress(errors.LockNotAvailable):  # waited 4 × 300 ms for its turn: a later poll would come again
            while items := client.claim(9):
                leased += len(items)
        return leased

    leased = in_threads([lambda c=c: claim_until_nothing(c) for c in clients])
    assert sum(leased) == states(admin, table)["ASSIGNED"] == 100


@pytest.mark.parametrize("how", ["plain", "lanes", "strict"])
def test_all_snapshots_are_taken_under_the_lock(admin: Conn, make_queue: Any, open_client: OpenClient, how: str) -> None:
    """Eight claims of 50 stand at the ceiling's lock together and go on one after another: 100, not 400."""
    table = make_queue(strict_lanes=how == "strict")
    add(admin, table, 450, lane=(lambda i: f"l{i % 9}") if how == "lanes" else None)
    clients = [open_client(table, strict_lanes=how == "strict", **CEILING) for _ in range(8)]
    options = {"lanes": [f"l{i}" for i in range(9)]} if how == "lanes" else {}
    key = 0x4C510001 << 32 | table.oid

    def claim(client: Client) -> int:
        with contextlib.suppress(errors.LockNotAvailable):
            return len(client.claim(50, **options))
        return 0

    with ThreadPoolExecutor(8) as pool:
        with admin.transaction():
            admin.execute("SELECT pg_advisory_xact_lock(%s)", [key])
            claiming = [pool.submit(claim, client) for client in clients]
            pids = {client.driver.pid for client in clients}
            wait_until(lambda: all(f.done() for f in claiming) or len(pids & set(waiting_pids(admin))) >= 6, "claims wait")
        leased = sum(future.result() for future in claiming)
    assert leased == states(admin, table)["ASSIGNED"] == 100


def test_places_that_come_free_are_used(admin: Conn, table: Table, open_client: OpenClient) -> None:
    client = open_client(table, **CEILING)
    add(admin, table, 130)
    items = client.claim(120)
    assert (len(items), client.claim(10)) == (100, [])
    client.resolve(*[item.lease for item in items[:7]])
    client.release(*[item.lease for item in items[7:9]])
    assert len(client.claim(50)) == 9


def test_neighbours_leases_are_counted(admin: Conn, table: Table, open_client: OpenClient) -> None:
    bulk(admin, table, 150)
    set_where(
        admin,
        table,
        "state = 'ASSIGNED', leased_by = 'neighbour', lease_expires_at = now() + interval '1 hour'",
        f"id IN (SELECT id FROM {name_of(table)} LIMIT 95)",
    )
    client = open_client(table, **CEILING)
    assert (len(client.claim(20)), client.claim(20)) == (5, [])


def test_over_the_ceiling_claims_nothing_and_breaks_nothing(admin: Conn, table: Table, open_client: OpenClient) -> None:
    """The ceiling was lowered, or neighbours went over it: a negative rest must not become a LIMIT."""
    greedy, modest = open_client(table), open_client(table, **CEILING)
    add(admin, table, 200)
    greedy.claim(150)
    assert modest.claim(10) == []
    assert states(admin, table) == {"ASSIGNED": 150, "PENDING": 50}


def test_alert_does_not_stop_claims(admin: Conn, table: Table, open_client: OpenClient) -> None:
    client = open_client(table, max_inflight_policy="Alert", max_inflight=100)
    add(admin, table, 120)
    assert len(client.claim(120)) == 120


def test_queues_do_not_share_a_lock(admin: Conn, make_queue: Any, open_client: OpenClient) -> None:
    one, two = (open_client(make_queue(), **CEILING) for _ in range(2))
    add(admin, one.table)
    add(admin, two.table)
    with one.driver.transaction():
        assert len(one.claim()) == 1
        assert len(two.claim()) == 1


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("settings", [{"max_inflight_policy": "Enforce", "max_inflight": 100}, {"strict_lanes": True}])
def test_in_a_callers_transaction_with_an_older_snapshot_it_is_refused(
    admin: Conn, make_queue: MakeQueue, open_client: OpenClient, level: str, settings: dict[str, Any]
) -> None:
    """The ceiling is counted, and heads are looked up, after a lock: with a snapshot from before it the count would be old. A plain claim
    needs no lock, and under READ COMMITTED the caller's transaction is welcome."""
    table = make_queue(strict_lanes="strict_lanes" in settings)
    client = open_client(table, **settings)
    add(admin, table, 2)
    client.driver.execute(f"BEGIN ISOLATION LEVEL {level}")
    with pytest.raises(BadInput, match="need READ COMMITTED"):
        client.claim(1)
    client.driver.execute("COMMIT")
    assert states(admin, table) == {"PENDING": 2}
    client.driver.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
    assert len(client.claim(1)) == 1
    client.driver.execute("COMMIT")
    client.driver.execute(f"BEGIN ISOLATION LEVEL {level}")
    assert len(client.claim(1, config=LeaseConfig())) == 1
    client.driver.execute("COMMIT")
