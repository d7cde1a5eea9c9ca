"""`ctx.transaction()` against handlers that use its connection in ways that could part the effects from the completion."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
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
