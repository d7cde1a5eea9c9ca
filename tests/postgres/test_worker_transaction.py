"""`ctx.transaction()` against handlers that use its connection in ways that could part the effects from the completion."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import leasequeue
from leasequeue.config import LeaseConfig
from leasequeue.dsn import DsnSource, connect
from leasequeue.table import Table
from leasequeue_worker.context import AsyncContext, Context
from leasequeue_worker.held import Held
from leasequeue_worker.link import Watchdog
from leasequeue_worker.transaction import TransactionMisused, Transactions, TransactionsAsync
from tests.support.queues import Queue

TWICE = "INSERT INTO posting VALUES (1)"


class Slot:
    """One slot's transactions, and items to run in it."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.conn = queue, connect(queue.dsn)
        self.table = Table.load(self.conn, queue.name)
        source = DsnSource(dsn=queue.dsn)
        self.sync = Transactions(source, lambda: self.table, lease_s=30, watchdog=Watchdog())
        self.asynchronous = TransactionsAsync(source, lambda: self.table, lease_s=30)
        self.conn.execute("CREATE TABLE posting (k int PRIMARY KEY)")
        self.conn.execute("INSERT INTO posting VALUES (1)")

    def lease(self) -> Held:
        """A fresh item, leased."""
        self.queue.add("")
        (item,) = leasequeue.claim(self.conn, self.table, worker_id="w", n=1, config=LeaseConfig()).items
        return Held(item, item.lease, time.monotonic() + 30, time.monotonic())

    def state(self, held: Held) -> str:
        """Its state as the database has it."""
        return str(self.queue.row(held.lease.id)["state"])

    def postings(self) -> list[int]:
        """What the handlers wrote."""
        return [row[0] for row in self.conn.execute("SELECT k FROM posting WHERE k > 1 ORDER BY k")]


@pytest.fixture
def slot(dsn: str) -> Iterator[Slot]:
    queue = Queue(dsn)
    made = Slot(queue)
    yield made
    made.conn.close()
    queue.close()


def swallowed(tx: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(psycopg.errors.UniqueViolation):
        tx.execute(TWICE)


def rolled_back(tx: psycopg.Connection[Any]) -> None:
    tx.execute("ROLLBACK")


@pytest.mark.parametrize(("misuse", "says"), [(swallowed, "failed inside"), (rolled_back, "ended by the handler")])
def test_a_transaction_that_cannot_commit_is_never_told_as_done(slot: Slot, misuse: Callable[[Any], None], says: str) -> None:
    held = slot.lease()
    with pytest.raises(TransactionMisused, match=says), Context(held, slot.sync).transaction() as tx:
        misuse(tx)
    assert not held.committed
    assert slot.state(held) == "ASSIGNED"


def test_an_async_transaction_that_cannot_commit_is_never_told_as_done(slot: Slot) -> None:
    held = slot.lease()

    async def handle() -> None:
        async with AsyncContext(held, slot.asynchronous).transaction() as tx:
            with contextlib.suppress(psycopg.errors.UniqueViolation):
                await tx.execute(TWICE)

    with pytest.raises(TransactionMisused, match="failed inside"):
        asyncio.run(handle())
    assert not held.committed
    assert slot.state(held) == "ASSIGNED"


def test_an_error_behind_a_savepoint_costs_nothing(slot: Slot) -> None:
    held = slot.lease()
    with Context(held, slot.sync).transaction() as tx:
        with contextlib.suppress(psycopg.errors.UniqueViolation), tx.transaction():
            tx.execute(TWICE)
        tx.execute("INSERT INTO posting VALUES (2)")
    assert held.committed
    assert (slot.state(held), slot.postings()) == ("RESOLVED", [2])


def test_what_a_handler_leaves_open_is_not_the_next_items_transaction(slot: Slot) -> None:
    first, second = slot.lease(), slot.lease()
    with Context(first, slot.sync).transaction() as tx:
        pass
    tx.execute("BEGIN")
    tx.execute("INSERT INTO posting VALUES (3)")
    with Context(second, slot.sync).transaction() as tx:
        tx.execute("INSERT INTO posting VALUES (4)")
    assert (slot.state(second), slot.postings()) == ("RESOLVED", [4])


def test_what_an_async_handler_leaves_open_is_not_the_next_items_transaction(slot: Slot) -> None:
    first, second = slot.lease(), slot.lease()

    async def handle() -> None:
        async with AsyncContext(first, slot.asynchronous).transaction() as tx:
            pass
        await tx.set_autocommit(False)
        await tx.execute("INSERT INTO posting VALUES (3)")
        async with AsyncContext(second, slot.asynchronous).transaction() as tx:
            await tx.execute("INSERT INTO posting VALUES (4)")

    asyncio.run(handle())
    assert (slot.state(second), slot.postings()) == ("RESOLVED", [4])


def test_a_handlers_row_factory_is_its_own(slot: Slot) -> None:
    first, second = slot.lease(), slot.lease()
    context = Context(first, slot.sync)
    with context.transaction() as tx:
        tx.row_factory = dict_row  # type: ignore[assignment]
        context.set_result({"row": tx.execute("SELECT 1 AS one").fetchone()})
    with Context(second, slot.sync).transaction() as tx:
        assert tx.execute("SELECT 1").fetchone() == (1,)
    assert (slot.state(first), slot.state(second)) == ("RESOLVED", "RESOLVED")
    assert slot.queue.row(first.lease.id)["result"] == {"row": {"one": 1}}


def test_a_transaction_inside_its_own_is_refused(slot: Slot) -> None:
    held = slot.lease()
    context = Context(held, slot.sync)
    with pytest.raises(TransactionMisused, match="open already"), context.transaction(), context.transaction():
        pass
    assert slot.state(held) == "ASSIGNED"


# What a handler does to its session with one statement each, and the question that shows it to the next item.
LEFT_BEHIND = {
    "role": ("SET ROLE pg_monitor", "SELECT current_user <> session_user"),
    "search path": ("SET search_path = pg_catalog", "SELECT current_schema() IS DISTINCT FROM 'public'"),
    "time zone": ("SET timezone = 'Asia/Tokyo'", "SELECT current_setting('timezone') = 'Asia/Tokyo'"),
    "a setting of its own": ("SET app.tenant = 'seven'", "SELECT coalesce(current_setting('app.tenant', true), '') <> ''"),
    "read only": ("SET default_transaction_read_only = on", "SELECT current_setting('transaction_read_only') = 'on'"),
    "statement timeout": ("SET statement_timeout = '1ms'", "SELECT current_setting('statement_timeout') <> '0'"),
    "temporary table": ("CREATE TEMP TABLE scratch (x int)", "SELECT to_regclass('pg_temp.scratch') IS NOT NULL"),
    "listening": ("LISTEN somebody", "SELECT count(*) > 0 FROM pg_listening_channels()"),
    "session lock": ("SELECT pg_advisory_lock(4)", "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_BEHIND)
def test_what_a_handler_set_does_not_reach_the_next_item(slot: Slot, what: str) -> None:
    leave, seen = LEFT_BEHIND[what]
    first, second = slot.lease(), slot.lease()
    with Context(first, slot.sync).transaction() as tx:
        tx.execute(leave)
    with Context(second, slot.sync).transaction() as tx:
        assert tx.execute(seen).fetchone() == (False,)
        tx.execute("INSERT INTO posting VALUES (2)")
    assert [slot.state(held) for held in (first, second)] == ["RESOLVED", "RESOLVED"]
    assert slot.postings() == [2]


@pytest.mark.parametrize("what", ["role", "search path", "read only", "statement timeout"])
def test_what_an_async_handler_set_does_not_reach_the_next_item(slot: Slot, what: str) -> None:
    leave, seen = LEFT_BEHIND[what]
    first, second = slot.lease(), slot.lease()

    async def both() -> None:
        async with AsyncContext(first, slot.asynchronous).transaction() as tx:
            await tx.execute(leave)
        async with AsyncContext(second, slot.asynchronous).transaction() as tx:
            assert await (await tx.execute(seen)).fetchone() == (False,)

    asyncio.run(both())
    assert [slot.state(held) for held in (first, second)] == ["RESOLVED", "RESOLVED"]


def test_what_a_handler_set_on_the_connection_object_does_not_reach_the_next_item(slot: Slot) -> None:
    first, second = slot.lease(), slot.lease()
    with Context(first, slot.sync).transaction() as tx:
        pass
    tx.read_only = True
    with Context(second, slot.sync).transaction() as tx:
        tx.execute("INSERT INTO posting VALUES (2)")
    assert slot.postings() == [2]


def test_statements_stay_prepared_from_item_to_item(slot: Slot) -> None:
    """The reset is no DISCARD ALL: the fence's plan is made once a connection."""
    counts: list[Any] = []
    for _ in range(3):
        held = slot.lease()
        with Context(held, slot.sync).transaction() as tx:
            counts.append(tx.execute("SELECT count(*), pg_backend_pid() FROM pg_prepared_statements").fetchone())
    assert counts[0][0] > 0
    assert counts[1] == counts[2]


def test_two_transactions_of_one_item_at_once_are_refused(slot: Slot) -> None:
    """Two tasks of one handler open one each before either is fenced: the second would be a savepoint of the first."""
    held = slot.lease()
    ctx = AsyncContext(held, slot.asynchronous)

    async def post(k: int) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO posting VALUES (%s)", [k])
            await asyncio.sleep(0.1)

    async def both() -> Any:
        return await asyncio.gather(post(2), post(3), return_exceptions=True)

    ended = asyncio.run(both())
    assert [type(end) for end in ended] == [type(None), TransactionMisused]
    assert slot.postings() == [2]
    assert slot.state(held) == "RESOLVED"


def test_two_threads_of_one_handler_are_refused_too(slot: Slot) -> None:
    held = slot.lease()
    ctx = Context(held, slot.sync)
    line = threading.Barrier(2)

    def post(k: int) -> str:
        line.wait(10)
        try:
            with ctx.transaction() as tx:
                tx.execute("INSERT INTO posting VALUES (%s)", [k])
                time.sleep(0.2)
        except Exception as ex:
            return type(ex).__name__
        return "done"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(post, (2, 3))) == sorted(["done", TransactionMisused.__name__])
    assert len(slot.postings()) == 1


def test_one_left_open_by_an_item_does_not_refuse_the_next(slot: Slot) -> None:
    first, second = slot.lease(), slot.lease()
    left = Context(first, slot.sync).transaction()
    left.__enter__()
    with Context(second, slot.sync).transaction() as tx:
        tx.execute("INSERT INTO posting VALUES (2)")
    assert slot.postings() == [2]
    assert slot.state(second) == "RESOLVED"
    with contextlib.suppress(Exception):
        left.__exit__(None, None, None)
    assert slot.state(first) == "ASSIGNED"
