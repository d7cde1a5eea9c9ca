"""The hub against a real PostgreSQL: one connection a database, faults told and healed, nobody held by another's table."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from devtools.pgserver import PgServer
from leasequeue import schema
from leasequeue.states import State
from leasequeue_operator.observe import address, group, sampling
from leasequeue_operator.observe.database import Hub
from leasequeue_operator.observe.group import Wanted
from leasequeue_operator.observe.secret import Connection
from leasequeue_operator.scaling.decide import STALE_AT_LEAST_S
from tests.support.clock import Clock

pytestmark = pytest.mark.postgres

Admin = psycopg.Connection[Any]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def hub(clock: Clock) -> AsyncIterator[Hub]:
    made = Hub(clock=clock, wall=clock)
    yield made
    await made.close()


def wanted(table: str, uid: str = "u1", **more: Any) -> Wanted:
    plain: dict[str, Any] = {"namespace": "team", "name": f"q-{uid}", "schema": "public", "strict": None}
    return Wanted(uid=uid, table=table, **{**plain, **more})


def make(conn: Admin, *tables: str) -> None:
    for table in tables:
        schema.create(conn, table)


def fill(conn: Admin, table: str, n: int) -> None:
    statement = sql.SQL("INSERT INTO {} (state) SELECT 'PENDING' FROM generate_series(1, {})")
    conn.execute(statement.format(sql.Identifier(table), n))


def connections(conn: Admin) -> int:
    row = conn.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasequeue-operator' AND datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])


def slow_down(monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: float) -> None:
    """From now on a sample takes so long."""
    real = sampling.sample

    async def slow(*args: Any) -> Any:
        clock.now += seconds
        return await real(*args)

    monkeypatch.setattr(sampling, "sample", slow)


async def none_left(conn: Admin) -> None:
    """A backend ends a moment after its client has gone."""
    for _ in range(100):
        if connections(conn) == 0:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the connection is still there")


async def test_a_sample(hub: Hub, conn: Admin, dsn: str, clock: Clock) -> None:
    make(conn, "50%_queue")
    fill(conn, "50%_queue", 3)
    view = await hub.look(Connection(dsn), wanted("50%_queue"), 5)
    assert view.ok
    assert view.stats is not None
    assert view.stats.counts[State.PENDING] == 3
    assert view.owner is not None
    assert view.owner.mine
    assert (view.stats_at, view.gaps) == (clock.now, ())


async def test_queues_of_one_database_share_one_connection_and_one_query(hub: Hub, conn: Admin, dsn: str, clock: Clock) -> None:
    tables = [f"t{n}" for n in range(8)]
    make(conn, *tables)
    for n, table in enumerate(tables):
        fill(conn, table, n)
        await hub.look(Connection(dsn), wanted(table, f"u{n}"), 5)
    assert connections(conn) == 1
    clock.now += 6
    view = await hub.look(Connection(dsn), wanted("t0", "u0"), 5)
    assert view.stats_at == clock.now
    again = [await hub.look(Connection(dsn), wanted(t, f"u{n}"), 5) for n, t in enumerate(tables)]
    assert [v.stats_at for v in again] == [clock.now] * 8
    assert [v.stats.counts[State.PENDING] for v in again if v.stats] == list(range(8))


async def test_more_tables_than_one_statement_takes_are_one_message(
    conn: Admin, dsn: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "MOST_TOGETHER", 3)
    asked: Counter[str] = Counter()
    hub = Hub(clock, clock, asked=lambda kind: asked.update([kind]))
    names = ["50%_odd", "with 'quote", *(f"t{n}" for n in range(5))]
    make(conn, *names)
    for n, table in enumerate(names):
        fill(conn, table, n)
        await hub.look(Connection(dsn), wanted(table, f"u{n}"), 5)
    asked.clear()
    clock.now += 6
    views = [await hub.look(Connection(dsn), wanted(table, f"u{n}"), 5) for n, table in enumerate(names)]
    assert [v.stats.counts[State.PENDING] for v in views if v.stats] == list(range(7))
    assert asked == {"sample": 1}
    with psycopg.connect(dsn) as holder:
        holder.execute("LOCK TABLE t0 IN ACCESS EXCLUSIVE MODE")
        clock.now += 6
        views = [await hub.look(Connection(dsn), wanted(table, f"u{n}"), 5) for n, table in enumerate(names)]
    assert [name for name, v in zip(names, views, strict=True) if v.stats_at != clock.now] == ["t0"]
    clock.now += 6
    views = [await hub.look(Connection(dsn), wanted(table, f"u{n}"), 5) for n, table in enumerate(names)]
    assert all(v.ok and v.stats_at == clock.now for v in views)
    await hub.close()


async def test_an_hour_of_polls_costs_one_question_each_and_one_a_minute(conn: Admin, dsn: str, clock: Clock) -> None:
    asked: Counter[str] = Counter()
    hub = Hub(clock, clock, asked=lambda kind: asked.update([kind]))
    make(conn, "a", "b", "c")
    for _ in range(120):
        clock.now += 5
        for table in ("a", "b", "c"):
            assert (await hub.look(Connection(dsn), wanted(table, table), 4.5)).ok
    await hub.close()
    assert asked["verify"] == 3
    assert asked["sample"] <= 122
    assert asked["marks"] <= 3 + 11


async def test_a_table_that_changes_is_judged_anew(hub: Hub, conn: Admin, dsn: str, clock: Clock) -> None:
    make(conn, "t")
    assert (await hub.look(Connection(dsn), wanted("t"), 5)).gaps == ()
    conn.execute("DROP INDEX t_lq_claim")
    clock.now += 61
    assert (await hub.look(Connection(dsn), wanted("t"), 5)).gaps
    schema.adopt(conn, "t")
    clock.now += 61
    assert (await hub.look(Connection(dsn), wanted("t"), 5)).gaps == ()


async def test_each_queue_is_asked_for_at_its_own_pace(conn: Admin, dsn: str, clock: Clock) -> None:
    hub = Hub(clock, clock)
    make(conn, "quick", "slow")
    seen: list[float | None] = []
    for _ in range(20):
        clock.now += 1
        await hub.look(Connection(dsn), wanted("quick", "u1"), 0.9)
        seen.append((await hub.look(Connection(dsn), wanted("slow", "u2"), 9)).stats_at)
    await hub.close()
    assert len(set(seen)) <= 5


async def test_a_fresh_sample_is_not_asked_for_again(hub: Hub, conn: Admin, dsn: str, clock: Clock) -> None:
    make(conn, "t")
    first = await hub.look(Connection(dsn), wanted("t"), 5)
    fill(conn, "t", 4)
    clock.now += 4
    assert await hub.look(Connection(dsn), wanted("t"), 5) is first


async def test_a_missing_table_holds_nobody_else_and_heals(hub: Hub, conn: Admin, dsn: str, clock: Clock) -> None:
    make(conn, "there")
    missing = await hub.look(Connection(dsn), wanted("gone", "u1"), 5)
    there = await hub.look(Connection(dsn), wanted("there", "u2"), 5)
    assert missing.unready is not None
    assert missing.unready.reason == "TableMissing"
    assert "gone" in missing.unready.message
    assert there.ok
    make(conn, "gone")
    clock.now += 6
    assert (await hub.look(Connection(dsn), wanted("gone", "u1"), 5)).ok


async def test_a_table_that_is_no_queue_is_told_with_the_command(hub: Hub, conn: Admin, dsn: str, clock: Clock) -> None:
    conn.execute('CREATE TABLE "Review Items" (id bigint PRIMARY KEY, state text, leased_by text)')
    view = await hub.look(Connection(dsn), wanted("Review Items"), 5)
    assert view.unready is not None
    assert view.unready.reason == "NotAdopted"
    assert "leasequeue schema adopt --schema public --table 'Review Items'" in view.unready.message
    schema.adopt(conn, "Review Items")
    clock.now += 6
    assert (await hub.look(Connection(dsn), wanted("Review Items"), 5)).ok


async def test_a_view_cannot_be_a_queue(hub: Hub, conn: Admin, dsn: str) -> None:
    conn.execute("CREATE VIEW v AS SELECT 1 AS id")
    view = await hub.look(Connection(dsn), wanted("v"), 5)
    assert view.unready is not None
    assert view.unready.reason == "TableRefused"
    assert "a view" in view.unready.message


async def test_a_missing_index_is_a_gap_with_its_command(hub: Hub, conn: Admin, dsn: str) -> None:
    make(conn, "t")
    conn.execute("DROP INDEX t_lq_claim")
    view = await hub.look(Connection(dsn), wanted("t"), 5)
    assert view.ok
    assert view.gaps
    assert view.command is not None
    assert "schema adopt" in view.command


async def test_a_locked_table_holds_nobody_else(hub: Hub, conn: Admin, dsn: str, clock: Clock) -> None:
    make(conn, "locked", "free")
    for n, table in enumerate(("locked", "free")):
        await hub.look(Connection(dsn), wanted(table, f"u{n}"), 5)
    with psycopg.connect(dsn) as holder:
        holder.execute("LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
        clock.now += 6
        locked = await hub.look(Connection(dsn), wanted("locked", "u0"), 5)
        free = await hub.look(Connection(dsn), wanted("free", "u1"), 5)
    assert locked.unready is not None
    assert locked.unready.reason in ("TableLocked", "QueryTimeout")
    assert locked.stats is not None  # the last one stays, with its age
    assert locked.stats_at == clock.now - 6
    assert (free.ok, free.stats_at) == (True, clock.now)
    clock.now += 6
    assert (await hub.look(Connection(dsn), wanted("locked", "u0"), 5)).ok


async def test_a_table_dropped_while_it_is_watched(hub: Hub, conn: Admin, dsn: str, clock: Clock) -> None:
    make(conn, "t")
    assert (await hub.look(Connection(dsn), wanted("t"), 5)).ok
    conn.execute("DROP TABLE t")
    clock.now += 6
    await hub.look(Connection(dsn), wanted("t"), 5)
    clock.now += 6
    view = await hub.look(Connection(dsn), wanted("t"), 5)
    assert view.unready is not None
    assert view.unready.reason == "TableMissing"
    make(conn, "t")
    clock.now += 6
    assert (await hub.look(Connection(dsn), wanted("t"), 5)).ok


def reach(pg: PgServer, db: str, **more: Any) -> Connection:
    plain = {"host": "127.0.0.1", "port": pg.port, "user": "postgres", "password": pg.password, "dbname": db}
    return Connection(make_conninfo("", **{**plain, **more}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"password": "Wrong-Word"}, "AuthenticationFailed"),
        ({"user": "nobody_here", "password": "Wrong-Word"}, "AuthenticationFailed"),
        ({"dbname": "no_such_database"}, "DatabaseMissing"),
        ({"port": 1}, "HostUnreachable"),
        ({"host": "no-such-host.invalid"}, "HostUnreachable"),
        ({"sslmode": "require"}, "TlsNotOffered"),
    ],
)
async def test_why_there_is_no_connection(hub: Hub, pg: PgServer, db: str, change: dict[str, Any], reason: str) -> None:
    view = await hub.look(reach(pg, db, **change), wanted("t"), 5)
    assert view.unreachable is not None
    assert view.unreachable.reason == reason
    assert "Wrong-Word" not in view.unreachable.message
    assert pg.password not in view.unreachable.message


async def test_a_silent_host_is_given_up_in_time(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "CONNECT_DEADLINE_S", 0.3)

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(10)
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    view = await asyncio.wait_for(hub.look(Connection(f"host=127.0.0.1 port={port}"), wanted("t"), 5), 5)
    server.close()
    assert view.unreachable is not None
    assert view.unreachable.reason == "HostUnreachable"


async def test_fifty_queues_of_a_dead_host_share_its_back_off(hub: Hub, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    async def refuse(*_: Any, **__: Any) -> None:
        nonlocal tries
        tries += 1
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(address.dsn, "aconnect", refuse)
    for _ in range(120):  # ten minutes
        clock.now += 5
        for n in range(50):
            view = await hub.look(Connection("host=dead"), wanted("t", f"u{n}"), 4.5)
            assert view.unreachable is not None
    assert 5 <= tries <= 20


async def test_a_changed_secret_is_tried_at_once(hub: Hub, conn: Admin, pg: PgServer, db: str) -> None:
    make(conn, "t")
    wrong = await hub.look(reach(pg, db, password="wrong"), wanted("t"), 5)
    assert wrong.unreachable is not None
    assert (await hub.look(reach(pg, db), wanted("t"), 5)).ok


async def test_an_outage_is_told_keeps_the_last_sample_and_heals(
    hub: Hub, conn: Admin, dsn: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(conn, "t")
    fill(conn, "t", 5)
    first = await hub.look(Connection(dsn), wanted("t"), 5)
    conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasequeue-operator'")
    real = address.dsn.aconnect

    async def refuse(*_: Any, **__: Any) -> None:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(address.dsn, "aconnect", refuse)
    clock.now += 6
    await hub.look(Connection(dsn), wanted("t"), 5)
    clock.now += 6
    view = await hub.look(Connection(dsn), wanted("t"), 5)
    assert view.unreachable is not None
    assert (view.stats, view.stats_at) == (first.stats, first.stats_at)
    monkeypatch.setattr(address.dsn, "aconnect", real)
    clock.now += 61
    assert (await hub.look(Connection(dsn), wanted("t"), 5)).ok


async def test_a_read_only_server_is_told_and_left(hub: Hub, conn: Admin, dsn: str, db: str, clock: Clock) -> None:
    make(conn, "t")
    name = sql.Identifier(db)
    conn.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
    view = await hub.look(Connection(dsn), wanted("t"), 5)
    assert view.unreachable is not None
    assert view.unreachable.reason == "DatabaseReadOnly"
    await none_left(conn)
    conn.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
    clock.now += 61
    assert (await hub.look(Connection(dsn), wanted("t"), 5)).ok


async def test_the_first_queue_owns_the_table_whatever_the_spelling(
    hub: Hub, conn: Admin, dsn: str, pg: PgServer, db: str
) -> None:
    make(conn, "t")
    first = await hub.look(Connection(dsn), wanted("t", "u1"), 5)
    second = await hub.look(reach(pg, db), wanted("t", "u2"), 5)
    assert first.owner is not None
    assert second.owner is not None
    assert (first.owner.mine, second.owner.mine, second.owner.cr_uid) == (True, False, "u1")


async def test_ownership_ends_with_the_queue(hub: Hub, conn: Admin, dsn: str, clock: Clock) -> None:
    make(conn, "t")
    await hub.look(Connection(dsn), wanted("t", "u1"), 5)
    await hub.look(Connection(dsn), wanted("t", "u2"), 5)
    await hub.forget("u1")
    clock.now += 61
    view = await hub.look(Connection(dsn), wanted("t", "u2"), 5)
    assert view.owner is not None
    assert view.owner.mine


async def test_a_table_of_an_owner_that_is_no_more_can_be_taken_over(hub: Hub, conn: Admin, dsn: str) -> None:
    make(conn, "t")
    await hub.look(Connection(dsn), wanted("t", "old"), 5)
    await hub.look(Connection(dsn), wanted("t", "new"), 5)
    await hub.take_over("new", "old")
    view = await hub.look(Connection(dsn), wanted("t", "new"), 5)
    assert view.owner is not None
    assert view.owner.mine


async def test_the_last_queue_of_a_database_closes_its_connection(hub: Hub, conn: Admin, dsn: str) -> None:
    make(conn, "t")
    await hub.look(Connection(dsn), wanted("t"), 5)
    assert connections(conn) == 1
    await hub.forget("u1")
    await none_left(conn)


async def test_strict_lanes_are_counted(hub: Hub, conn: Admin, dsn: str) -> None:
    schema.create(conn, "t", strict_lanes=True)
    conn.execute("INSERT INTO t (lane, state) VALUES ('a', 'PENDING'), ('a', 'PENDING'), ('b', 'REPAIR'), ('b', 'PENDING')")
    view = await hub.look(Connection(dsn), wanted("t", strict="Block"), 5)
    assert view.stats is not None
    assert view.stats.lanes is not None
    assert (view.stats.lanes.claimable, view.stats.lanes.blocked) == (1, 1)


async def test_queues_that_arrive_at_once_are_asked_for_at_once(conn: Admin, dsn: str, clock: Clock) -> None:
    asked: Counter[str] = Counter()
    hub = Hub(clock, clock, asked=lambda kind: asked.update([kind]))
    names = [f"t{n}" for n in range(20)]
    make(conn, *names)
    views = await asyncio.gather(*(hub.look(Connection(dsn), wanted(t, t), 5) for t in names))
    assert all(v.ok for v in views)
    assert asked["sample"] <= 2
    clock.now += 3
    make(conn, "late")
    before = asked["sample"]
    assert (await hub.look(Connection(dsn), wanted("late", "late"), 5)).ok
    assert asked["sample"] == before + 1
    assert [(await hub.look(Connection(dsn), wanted(t, t), 5)).stats_at for t in names] == [clock.now - 3] * 20
    await hub.close()


async def test_each_queue_reads_its_own_table_whatever_the_names(hub: Hub, conn: Admin, dsn: str) -> None:
    """B01: reserved words, capitals, percent signs, another schema, names that share their first 62 bytes."""
    conn.execute('CREATE SCHEMA "Ops"')
    names = [("public", "user"), ("public", "order"), ("public", "50%_queue"), ("Ops", "my-Queue"), ("public", "my-Queue"),
             ("public", "x" * 62 + "a"), ("public", "x" * 62 + "b")]  # fmt: skip
    for n, (where, name) in enumerate(names):
        schema.create(conn, name, where)
        statement = sql.SQL("INSERT INTO {} (state) SELECT 'PENDING' FROM generate_series(1, {})")
        conn.execute(statement.format(sql.Identifier(where, name), n))
    views = [await hub.look(Connection(dsn), wanted(name, f"u{n}", schema=where), 5) for n, (where, name) in enumerate(names)]
    assert [v.stats.counts[State.PENDING] for v in views if v.stats] == list(range(7))
    too_long = await hub.look(Connection(dsn), wanted("x" * 64, "long"), 5)
    assert too_long.unready is not None
    assert "63" in too_long.unready.message


async def test_a_database_that_is_slow_as_a_whole_is_asked_in_smaller_parts(
    conn: Admin, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than four tables at once take too long: nobody is left out, and nobody is called locked or missing."""
    monkeypatch.setattr(sampling, "MOST_TOGETHER", 8)
    clock, real, sizes = Clock(), sampling.sample, []

    async def slow(on: Any, tables: Any, strict: Any) -> Any:
        sizes.append(len(tables))
        clock.now += 0.5 if len(tables) <= 4 else 2.0
        if len(tables) > 4:
            raise psycopg.errors.QueryCanceled("too slow")
        return await real(on, tables, strict)

    monkeypatch.setattr(sampling, "sample", slow)
    hub = Hub(clock, clock)
    names = [f"t{n:02d}" for n in range(24)]
    make(conn, *names)
    for _ in range(6):
        views = await asyncio.gather(*(hub.look(Connection(dsn), wanted(t, t), 4.9) for t in names))
        clock.now += 5
    assert all(v.ok for v in views)
    assert all(v.stats_at is not None and clock.now - v.stats_at < 40 for v in views)
    assert sizes.count(1) <= 1  # the first to come
    await hub.close()


async def test_who_waited_for_a_slow_look_takes_its_answer(conn: Admin, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, real, asked = Clock(), sampling.sample, []

    async def slow(on: Any, tables: Any, strict: Any) -> Any:
        asked.append(len(tables))
        await asyncio.sleep(0.05)
        clock.now += 20  # longer than the period
        return await real(on, tables, strict)

    monkeypatch.setattr(sampling, "sample", slow)
    hub = Hub(clock, clock)
    names = [f"t{n}" for n in range(6)]
    make(conn, *names)
    await asyncio.gather(*(hub.look(Connection(dsn), wanted(t, t), 5) for t in names))
    clock.now += 30
    asked.clear()
    await asyncio.gather(*(hub.look(Connection(dsn), wanted(t, t), 5) for t in names))
    assert asked == [6]
    await hub.close()


async def test_a_sample_that_takes_longer_than_a_period_is_not_asked_for_by_each_that_looks(
    conn: Admin, dsn: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    hub = Hub(clock, clock, asked=lambda kind: asked.update([kind]))
    tables = [f"t{n}" for n in range(10)]
    make(conn, *tables)
    for n, table in enumerate(tables):
        await hub.look(Connection(dsn), wanted(table, f"u{n}"), 1)
    slow_down(monkeypatch, clock, 3)
    clock.now += 2
    asked.clear()
    for n, table in enumerate(tables):  # one slot works on them in turn
        view = await hub.look(Connection(dsn), wanted(table, f"u{n}"), 1)
        assert view.stats is not None
    assert asked["sample"] == 1
    clock.now += 4
    await hub.look(Connection(dsn), wanted("t0", "u0"), 1)
    assert asked["sample"] == 2
    await hub.close()


async def test_the_wait_for_locked_tables_keeps_nobodys_sample(
    hub: Hub, conn: Admin, dsn: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of them take eight seconds a poll; the others' samples must not grow so old that the scaling holds."""
    locked = [f"locked{n}" for n in range(4)]
    make(conn, "free", *locked)
    for table in ("free", *locked):
        await hub.look(Connection(dsn), wanted(table, table), 5)
    real = sampling.sample

    async def some_are_locked(on: Any, tables: Any, strict: Any) -> Any:
        if any(table.name in locked for table in tables):
            clock.now += 2
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return await real(on, tables, strict)

    monkeypatch.setattr(sampling, "sample", some_are_locked)
    for _ in range(5):
        clock.now += 6
        began = clock.now
        view = await hub.look(Connection(dsn), wanted("free", "free"), 5)
    assert (view.ok, view.stats_at) == (True, began)


async def test_no_sample_is_kept_until_the_scaling_holds_for_it(
    hub: Hub, conn: Admin, dsn: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(conn, "t")
    await hub.look(Connection(dsn), wanted("t"), 5)
    slow_down(monkeypatch, clock, 9)
    clock.now += 6
    await hub.look(Connection(dsn), wanted("t"), 5)
    for _ in range(10):
        clock.now += 1
        view = await hub.look(Connection(dsn), wanted("t"), 5)
        assert view.stats_at is not None
        assert clock.now - view.stats_at <= STALE_AT_LEAST_S
