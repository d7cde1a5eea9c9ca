"""A call of the async engine that is cancelled leaves its connection idle or closed, and no lease that nobody knows of."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

import leasequeue
from leasequeue import Table, aio
from leasequeue.config import LeaseConfig
from tests.postgres.engine.support import add, name_of, row, states, waiting_pids

Conn = psycopg.Connection[Any]
CEILING = LeaseConfig(max_inflight_policy="Enforce", max_inflight=100)


async def until_waiting(admin: Conn, pid: int) -> None:
    for _ in range(2000):
        if pid in waiting_pids(admin):
            return
        await asyncio.sleep(0.002)
    pytest.fail("the call never waited for the lock")


async def test_claim_cancelled_while_it_waits(admin: Conn, table: Table, queue_dsn: str) -> None:
    add(admin, table, 3)
    conn = await leasequeue.aconnect(queue_dsn)
    with admin.transaction():
        admin.execute("SELECT pg_advisory_xact_lock(%s)", [0x4C510001 << 32 | table.oid])
        claiming = asyncio.create_task(aio.claim(conn, table, worker_id="w", n=3, config=CEILING))
        await until_waiting(admin, conn.info.backend_pid)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
    assert conn.closed or conn.info.transaction_status is TransactionStatus.IDLE
    assert states(admin, table) == {"PENDING": 3}
    if not conn.closed:
        claimed = await aio.claim(conn, table, worker_id="w", n=3, config=CEILING)
        assert len(claimed.items) == 3
    await conn.close()


async def test_completion_cancelled_while_it_waits(admin: Conn, table: Table, queue_dsn: str) -> None:
    """Told by its outcome afterwards: not done, the lease stands."""
    add(admin, table)
    conn = await leasequeue.aconnect(queue_dsn)
    (item,) = (await aio.claim(conn, table, worker_id="w", n=1, config=LeaseConfig())).items
    with admin.transaction():
        admin.execute(f"SELECT 1 FROM {name_of(table)} FOR UPDATE")
        resolving = asyncio.create_task(aio.resolve(conn, table, leasequeue.Completion(item.lease)))
        await until_waiting(admin, conn.info.backend_pid)
        resolving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resolving
    assert conn.closed or conn.info.transaction_status is TransactionStatus.IDLE
    assert row(admin, table, item.id)["state"] == "ASSIGNED"
    again = await leasequeue.aconnect(queue_dsn)
    assert await aio.lease_outcome(again, table, item.lease) is None
    await again.close()
    await conn.close()
