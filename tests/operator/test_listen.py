"""The database wakes the operator: which notifications arrive, which do not, and what a storm costs. Real PostgreSQL."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from kubernetes.aio.client import Configuration
from psycopg import sql

import leasequeue
from devtools.pgbouncer import PgBouncer
from devtools.pgserver import PgServer
from leasequeue import schema
from leasequeue.table import Table
from leasequeue_operator.observe import listen
from leasequeue_operator.observe.database import Hub
from leasequeue_operator.observe.group import Wanted
from leasequeue_operator.observe.secret import Connection
from tests.operator import samples
from tests.operator.apiserver import ApiServer
from tests.operator.test_app import QUEUES, running, until

pytestmark = pytest.mark.postgres

Admin = psycopg.Connection[Any]


class Ear:
    """A hub, and whom it woke."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.hub = Hub(heard=self.woken.append)

    async def look(self, dsn: str, table: str, uid: str) -> None:
        wanted = Wanted(uid=uid, namespace="team", name=f"q-{uid}", schema="public", table=table, strict=None)
        await self.hub.look(Connection(dsn), wanted, 5)

    async def hears(self, uid: str) -> None:
        await eventually(f"{uid} woken", lambda: uid in self.woken)

    async def listening(self, conn: Admin) -> None:
        """Whoever begins to listen is woken once, since what was sent before was sent to nobody."""
        await eventually("listening", lambda: listeners(conn) == 1 and bool(self.woken))
        self.woken.clear()


async def eventually(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


def listeners(conn: Admin) -> int:
    row = conn.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasequeue-operator-listen' AND datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    made = Ear()
    yield made
    await made.hub.close()


@pytest.fixture
def orders(conn: Admin) -> Table:
    schema.create(conn, "orders")
    return Table.load(conn, "orders")


async def test_one_connection_wakes_the_queue_that_got_items_and_no_other(
    ear: Ear, conn: Admin, dsn: str, orders: Table
) -> None:
    schema.create(conn, "refunds")
    await ear.look(dsn, "orders", "u1")
    await ear.look(dsn, "refunds", "u2")
    await eventually("both begun", lambda: set(ear.woken) == {"u1", "u2"})
    await ear.listening(conn)
    leasequeue.enqueue(conn, orders, [{}, {}])
    await ear.hears("u1")
    assert set(ear.woken) == {"u1"}


async def test_an_enqueue_that_is_rolled_back_wakes_nobody(ear: Ear, conn: Admin, dsn: str, orders: Table) -> None:
    await ear.look(dsn, "orders", "u1")
    await ear.listening(conn)
    with contextlib.suppress(ZeroDivisionError), conn.transaction():
        leasequeue.enqueue(conn, orders, [{}])
        raise ZeroDivisionError
    schema.create(conn, "other")
    await ear.look(dsn, "other", "u2")
    await ear.hears("u2")
    assert "u1" not in ear.woken


async def test_a_queue_that_left_wakes_nobody(ear: Ear, conn: Admin, dsn: str, orders: Table) -> None:
    schema.create(conn, "refunds")
    await ear.look(dsn, "orders", "u1")
    await ear.look(dsn, "refunds", "u2")
    await eventually("both begun", lambda: set(ear.woken) == {"u1", "u2"})
    await ear.listening(conn)
    await ear.hub.forget("u1")
    leasequeue.enqueue(conn, orders, [{}])
    leasequeue.enqueue(conn, Table.load(conn, "refunds"), [{}])
    await ear.hears("u2")
    assert "u1" not in ear.woken
    await ear.hub.forget("u2")
    await eventually("nobody listens for nobody", lambda: listeners(conn) == 0)


async def test_it_listens_again_after_its_connection_was_ended(ear: Ear, conn: Admin, dsn: str, orders: Table) -> None:
    await ear.look(dsn, "orders", "u1")
    await ear.listening(conn)
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasequeue-operator-listen'"
        " AND datname = current_database()"
    )
    # What was sent meanwhile is made up for: beginning to listen wakes.
    await ear.hears("u1")
    await ear.listening(conn)
    leasequeue.enqueue(conn, orders, [{}])
    await ear.hears("u1")


async def test_a_server_that_refuses_is_tried_again_with_longer_waits(monkeypatch: pytest.MonkeyPatch, pg: PgServer) -> None:
    waits: list[float] = []
    monkeypatch.setattr(listen.random, "uniform", lambda low, high: waits.append(high) or 0.01)
    listener = listen.Listener(pg.dsn("no_such_database"), lambda _: None)
    listener.want(["leasequeue_1"])
    await eventually("tried", lambda: len(waits) > 3)
    await listener.close()
    listener.want(["leasequeue_2"])
    assert listener._task is None


async def test_through_a_transaction_pooler_nobody_listens_and_looks_go_on(
    ear: Ear, conn: Admin, pg: PgServer, db: str, orders: Table
) -> None:
    with PgBouncer(pg) as pooler:
        await ear.look(pooler.dsn(db), "orders", "u1")
        leasequeue.enqueue(conn, orders, [{}])
        wanted = Wanted(uid="u1", namespace="team", name="q-u1", schema="public", table="orders", strict=None)
        await asyncio.sleep(1)
        view = await ear.hub.look(Connection(pooler.dsn(db)), wanted, 0)
    assert view.ok
    assert view.stats is not None
    assert view.stats.due == 1
    assert ear.woken == []


async def test_a_storm_is_heard_a_few_times_a_second(ear: Ear, conn: Admin, dsn: str, orders: Table) -> None:
    await ear.look(dsn, "orders", "u1")
    await ear.listening(conn)
    began = time.monotonic()
    storm = sql.SQL("NOTIFY {}").format(sql.Identifier(orders.channel))
    for _ in range(5_000):
        conn.execute(storm)
        await asyncio.sleep(0)
    seconds = time.monotonic() - began
    await ear.hears("u1")
    assert len(ear.woken) <= seconds / listen.GULP_EVERY_S + 2


async def test_a_thousand_queues_are_listened_to_in_one_message(conn: Admin, pg: PgServer, db: str) -> None:
    heard: set[str] = set()
    listener = listen.Listener(pg.dsn(db), heard.update)
    channels = {f"leasequeue_{n}" for n in range(1000)}
    listener.want(channels)
    await eventually("begun", lambda: heard == channels)
    heard.clear()
    conn.execute("NOTIFY leasequeue_999")
    await eventually("heard", lambda: heard == {"leasequeue_999"})
    listener.want({"leasequeue_1", "leasequeue_2000"})
    await eventually("changed", lambda: "leasequeue_2000" in heard)
    heard.clear()
    conn.execute("NOTIFY leasequeue_999")
    conn.execute("NOTIFY leasequeue_1")
    await eventually("heard the other", lambda: "leasequeue_1" in heard)
    await listener.close()
    assert "leasequeue_999" not in heard


async def test_without_a_wish_to_listen_there_is_one_connection(conn: Admin, dsn: str, orders: Table) -> None:
    hub = Hub()
    wanted = Wanted(uid="u1", namespace="team", name="q-u1", schema="public", table="orders", strict=None)
    await hub.look(Connection(dsn), wanted, 5)
    assert listeners(conn) == 0
    await hub.close()


async def test_the_first_item_of_an_idle_queue_starts_a_worker_long_before_the_poll(
    api: ApiServer, configuration: Configuration, conn: Admin, pg: PgServer, db: str, orders: Table
) -> None:
    uri = base64.b64encode(pg.dsn(db, tcp=True).encode()).decode()
    api.store("v1/secrets", "team", {"metadata": {"name": "db"}, "data": {"uri": uri}})
    api.store(QUEUES, "team", samples.body(database={"table": "orders"}, scaling={"pollPeriodSeconds": 300, "maxReplicas": 3}))
    deployments = "apps/v1/deployments"

    def replicas() -> int | None:
        found = api.stored(deployments, "team", "orders-worker")
        return found["spec"].get("replicas") if found else None

    async with running(configuration, resync_s=3600) as operator:
        await until("at rest", lambda: replicas() == 0 and listeners(conn) == 1)
        await until("seen at rest", lambda: operator._reconciler.memories["team", "orders"].observation is not None)
        await asyncio.sleep(2)
        leasequeue.enqueue(conn, orders, [{}])
        await until("a worker", lambda: replicas() == 1)
        looks = operator._tally.reconciliations["done"]
        for _ in range(40):  # workers are there now: more items are their business
            leasequeue.enqueue(conn, orders, [{}])
            await asyncio.sleep(0.05)
        assert operator._tally.reconciliations["done"] <= looks + 3
        assert operator._tally.wakes <= 3
