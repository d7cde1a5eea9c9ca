"""Guarantee 5: leases that ended are taken back in pages; nothing is torn from a worker that renewed, finished or leased it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import errors

from devtools.pgserver import PgServer
from leasequeue import Outcome, Table, schema
from leasequeue.config import LeaseConfig
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import (
    Client,
    add,
    background,
    blocked_or_done,
    expire,
    gate_at_update,
    in_threads,
    name_of,
    row,
    rows,
    set_where,
    states,
)

Conn = psycopg.Connection[Any]
pytestmark = pytest.mark.usefixtures("settled_server")


@pytest.mark.both_versions
def test_expired_leases_go_back_and_can_be_leased_at_once(admin: Conn, table: Table, open_client: OpenClient) -> None:
    dead, alive = open_client(table), open_client(table)
    add(admin, table, 5)
    items = dead.claim(5)
    expire(admin, table)
    taken = dead.reclaim()
    assert {(r.id, r.state, r.leased_by, r.attempt, r.crash_count) for r in taken} == {
        (item.id, "PENDING", dead.worker_id, 1, 1) for item in items
    }
    assert {r.trace_id for r in taken} == {item.trace_id for item in items}
    for stored in rows(admin, table).values():
        assert (stored["leased_by"], stored["leased_at"], stored["lease_expires_at"], stored["lease_token"]) == (None,) * 4
        assert f"lease of {dead.worker_id} ended at" in stored["last_error"]
    assert [item.id for item in alive.claim(5)] == [item.id for item in items]


def test_not_before_reclaim_after(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 2)
    one, two = client.claim(2)
    expire(admin, table, one.id, ago="40 seconds")
    expire(admin, table, two.id, ago="50 seconds")
    assert [item.id for item in client.reclaim(reclaim_after_s=45)] == [two.id]


def test_live_leases_are_left_alone(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 3)
    client.claim(3)
    before = rows(admin, table)
    assert client.reclaim() == []
    assert rows(admin, table) == before


def test_poison_item_goes_to_repair(admin: Conn, table: Table, client: Client) -> None:
    """B47: an item whose workers die is executed max_crashes times, then a person must look."""
    (item_id,) = add(admin, table)
    runs = 0
    while items := client.claim():
        runs += 1
        assert items[0].id == item_id
        expire(admin, table)
        (taken,) = client.reclaim(max_crashes=3)
        assert runs <= 3
    assert (runs, taken.state) == (3, "REPAIR")
    assert (row(admin, table, item_id)["state"], row(admin, table, item_id)["crash_count"]) == ("REPAIR", 3)


def test_releases_do_not_make_an_item_poison(admin: Conn, table: Table, client: Client) -> None:
    """Five planned shutdowns during one long item are not crashes and use up no attempt."""
    (item_id,) = add(admin, table)
    for _ in range(5):
        client.release(client.claim()[0].lease)
    stored = row(admin, table, item_id)
    assert (stored["state"], stored["attempt"], stored["crash_count"]) == ("PENDING", 0, 0)


def test_in_pages_until_empty(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 25)
    client.claim(25)
    expire(admin, table)
    pages = []
    while True:
        page = client.call("reclaim", config=LeaseConfig(lock_timeout_ms=1_000, reclaim_after_s=10, reclaim_batch=10))
        pages.append((len(page.items), page.full))
        if not page.full:
            break
    assert pages == [(10, True), (10, True), (5, False)]
    assert states(admin, table) == {"PENDING": 25}


def test_live_rows_first_do_not_fill_the_page(admin: Conn, table: Table, client: Client) -> None:
    """B71: more live leases than a page holds, sorted before the expired one."""
    add(admin, table, 30)
    items = client.claim(30)
    set_where(admin, table, "leased_by = 'zzz', lease_expires_at = now() - interval '1 hour'", "id = %(id)s", id=items[-1].id)
    assert [item.id for item in client.reclaim(reclaim_batch=5)] == [items[-1].id]


def test_never_needs_free_capacity(admin: Conn, table: Table, open_client: OpenClient) -> None:
    """B40: the ceiling is used up by dead leases, and its lock is held: the reclaimer works all the same."""
    client = open_client(table, max_inflight_policy="Enforce", max_inflight=100)
    add(admin, table, 110)
    client.claim(100)
    assert client.claim(10) == []
    expire(admin, table)
    other = open_client(table, max_inflight_policy="Enforce", max_inflight=100)
    with other.driver.transaction():
        assert other.claim(10) == []  # holds the ceiling's lock until the transaction ends
        with background(lambda: client.reclaim(reclaim_batch=1000)) as reclaiming:
            assert not blocked_or_done(admin, reclaiming, client.driver.pid), "the reclaimer waited for the ceiling"
    assert len(reclaiming.result()) == 100
    assert len(client.claim(100)) == 100


def test_locked_rows_are_skipped(admin: Conn, table: Table, client: Client) -> None:
    """A row's lock means that somebody is at work on it, its completion most likely."""
    add(admin, table, 3)
    locked, *others = [item.id for item in client.claim(3)]
    expire(admin, table)
    with admin.transaction():
        admin.execute(f"SELECT 1 FROM {name_of(table)} WHERE id = %s FOR UPDATE", [locked])
        try:
            taken = client.reclaim()
        except errors.LockNotAvailable:
            taken = None
        assert taken is not None, "the reclaimer waited for a locked row"
    assert {item.id for item in taken} == set(others)


# B41: what happened to the row after the reclaimer's snapshot and before it got to the row.
LIVE = "lease_expires_at = clock_timestamp() + interval '30 seconds'"
RIVALS = {
    "renewed": LIVE,
    "finished": "state = 'RESOLVED', resolved_at = clock_timestamp()",
    "gave back": "state = 'PENDING', leased_by = NULL, lease_token = NULL, lease_expires_at = NULL",
    "leased by a successor": f"leased_by = 'successor', lease_token = gen_random_uuid(), {LIVE}",
    "leased by a neighbour": f"leased_by = 'neighbour', {LIVE}",
}


@pytest.mark.parametrize("rival", RIVALS.values(), ids=RIVALS)
def test_what_its_holder_did_meanwhile_stands(admin: Conn, table: Table, open_client: OpenClient, rival: str) -> None:
    """The sweep stands still in the middle of its page; the next row of the page changes meanwhile."""
    add(admin, table, 2)
    first, second = open_client(table, worker_id="a"), open_client(table, worker_id="b")
    (one,), (two,) = first.claim(), second.claim()
    expire(admin, table)
    with gate_at_update(admin, table, "OLD.leased_by = 'a'") as gate, background(first.reclaim) as reclaiming:
        assert blocked_or_done(admin, reclaiming, first.driver.pid)
        set_where(admin, table, rival, "id = %(id)s", id=two.id)
        after = row(admin, table, two.id)
        gate.rollback()
        taken = [r.id for r in reclaiming.result()]
    assert taken == [one.id]
    assert row(admin, table, two.id) == after


@pytest.mark.both_versions
def test_many_reclaimers_take_each_lease_once(admin: Conn, table: Table, open_client: OpenClient) -> None:
    add(admin, table, 200)
    dead = open_client(table)
    dead.claim(200)
    expire(admin, table)
    reclaimers = [open_client(table) for _ in range(8)]

    def sweep(client: Client) -> list[Any]:
        taken: list[Any] = []
        while states(probes[client.worker_id], table).get("ASSIGNED"):
            taken += [item.id for item in client.reclaim(reclaim_batch=15)]
        return taken

    probes = {c.worker_id: psycopg.connect(admin.info.dsn, autocommit=True) for c in reclaimers}
    taken = [item for mine in in_threads([lambda c=c: sweep(c) for c in reclaimers]) for item in mine]
    for probe in probes.values():
        probe.close()
    assert (len(taken), len(set(taken))) == (200, 200)
    assert {r["crash_count"] for r in rows(admin, table).values()} == {1}
    assert len(dead.claim(200)) == 200


def test_expiry_at_infinity_breaks_no_sweep(admin: Conn, table: Table, client: Client) -> None:
    """B31: such a row cannot be fetched by the driver; it is never reclaimed and in nobody's way."""
    add(admin, table, 3)
    forever, *_ = client.claim(3)
    expire(admin, table)
    set_where(admin, table, "lease_expires_at = 'infinity'", "id = %(id)s", id=forever.id)
    assert len(client.reclaim()) == 2
    set_where(admin, table, "lease_expires_at = '-infinity'", "id = %(id)s", id=forever.id)
    assert [item.id for item in client.reclaim()] == [forever.id]


def test_scheduled_order_is_kept_after_reclaim(admin: Conn, table: Table, client: Client) -> None:
    """A reclaimed row keeps its place in the order: it does not starve behind fresh ones."""
    add(admin, table, 1, priority=5)
    (old,) = client.claim()
    add(admin, table, 5, priority=5)
    expire(admin, table)
    client.reclaim()
    assert client.claim()[0].id == old.id


class TestAfterTheServerStarted:
    """Workers get to renew first: nothing is reclaimed within one lease duration and 15 s."""

    def test_nothing_is_reclaimed(self, durable_server: PgServer, open_client: OpenClient) -> None:
        with psycopg.connect(durable_server.dsn(), autocommit=True) as admin:
            schema.create(admin, "after_start")
            table = Table.load(admin, "after_start")
            client = open_client(table, dsn=durable_server.dsn())
            add(admin, table)
            (item,) = client.claim()
            expire(admin, table)
            client.driver.close()
        durable_server.restart()
        with psycopg.connect(durable_server.dsn(), autocommit=True) as admin:
            client = open_client(table, dsn=durable_server.dsn(), worker_id=item.leased_by)
            assert client.reclaim() == []
            assert client.renew(item.lease) == [Outcome.RENEWED]
            admin.execute(f"DROP TABLE {name_of(table)}")


def test_deadlock_freedom_of_everything_at_once(admin: Conn, table: Table, open_client: OpenClient) -> None:
    """B53: claims, batch renewals, batch completions and sweeps over the same 300 rows: no deadlock, no error, all done."""
    total = 300
    add(admin, table, total)
    (before,) = admin.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    workers = [open_client(table, max_crashes=1000) for _ in range(8)]
    others = [open_client(table) for _ in range(4)]
    done: list[int] = []
    probes = {c.worker_id: psycopg.connect(admin.info.dsn, autocommit=True) for c in (*workers, *others)}

    def unfinished(client: Client) -> int:
        return total - states(probes[client.worker_id], table).get("RESOLVED", 0)

    def work(client: Client) -> None:
        while unfinished(client):
            leases = [item.lease for item in client.claim(20)]
            client.renew(*leases[::-1])
            done.append(client.resolve(*leases[::2][::-1]).count(Outcome.RESOLVED))
            client.renew(*leases)
            client.release(*leases[1::2])

    def sweep(client: Client) -> None:
        while unfinished(client):
            set_where(
                probes[client.worker_id],
                table,
                "lease_expires_at = clock_timestamp() - interval '1 hour'",
                f"id = ANY (ARRAY(SELECT id FROM {name_of(table)} WHERE state = 'ASSIGNED' LIMIT 5 FOR UPDATE SKIP LOCKED))",
            )
            client.reclaim(max_crashes=1000)

    calls: list[Callable[[], None]] = [lambda c=c: work(c) for c in workers] + [lambda c=c: sweep(c) for c in others]
    in_threads(calls)
    for probe in probes.values():
        probe.close()
    assert states(admin, table) == {"RESOLVED": total}
    assert sum(done) == total
    (after,) = admin.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert after == before
