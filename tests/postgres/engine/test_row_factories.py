"""A caller's own connection may give rows as dicts or named tuples: the engine reads its own as tuples and leaves the setting."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row, namedtuple_row

import leasequeue
from leasequeue import Completion, Outcome, Table, aio
from leasequeue.config import LeaseConfig
from tests.postgres.engine.conftest import MakeQueue
from tests.postgres.engine.support import add

FACTORIES = [dict_row, namedtuple_row]


@pytest.mark.parametrize("factory", FACTORIES)
def test_sync(admin: psycopg.Connection[Any], make_queue: MakeQueue, queue_dsn: str, factory: Any) -> None:
    table = make_queue()
    add(admin, table, 2)
    with psycopg.connect(queue_dsn, autocommit=True, row_factory=factory) as conn:
        assert Table.load(conn, table.name, table.schema) == table
        assert leasequeue.enqueue(conn, table, [{"idempotency_key": "a"}])[0].created
        assert leasequeue.enqueue_many(conn, table, [{"idempotency_key": "b"}]).created == 1
        (item, *_), config = leasequeue.claim(conn, table, worker_id="w", n=4, config=LeaseConfig()).items, LeaseConfig()
        assert leasequeue.renew(conn, table, [item.lease], config=config)[item.id] is Outcome.RENEWED
        assert leasequeue.resolve(conn, table, Completion(item.lease, result={"a": 1}))[item.id] is Outcome.RESOLVED
        assert leasequeue.stats(conn, table).assigned == 3
        assert conn.row_factory is factory


@pytest.mark.parametrize("factory", FACTORIES)
def test_async(admin: psycopg.Connection[Any], make_queue: MakeQueue, queue_dsn: str, factory: Any) -> None:
    table = make_queue()
    add(admin, table, 1)

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(queue_dsn, autocommit=True, row_factory=factory) as conn:
            assert await Table.aload(conn, table.name, table.schema) == table
            assert (await aio.enqueue_many(conn, table, [{"idempotency_key": "b"}])).created == 1
            claimed = await aio.claim(conn, table, worker_id="w", n=2, config=LeaseConfig())
            outcomes = await aio.resolve(conn, table, [Completion(item.lease) for item in claimed.items])
            assert set(outcomes.values()) == {Outcome.RESOLVED}
            assert len(outcomes) == 2
            assert conn.row_factory is factory

    asyncio.run(work())
