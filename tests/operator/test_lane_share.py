"""Two queues that share a table by their lanes are looked at lane by lane. Real PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import leasequeue
from leasequeue import schema
from leasequeue.config import LeaseConfig
from leasequeue.lane_depth import alane_depth
from leasequeue.table import Table
from leasequeue_operator.observe.database import Hub
from leasequeue_operator.observe.group import Wanted
from leasequeue_operator.observe.secret import Connection

pytestmark = pytest.mark.postgres

Admin = psycopg.Connection[Any]


def wanted(uid: str, *lanes: str, strict: Any = None) -> Wanted:
    return Wanted(uid=uid, namespace="team", name=uid, schema="public", table="jobs", strict=strict, lanes=lanes)


async def test_each_queue_sees_its_own_lanes(conn: Admin, dsn: str) -> None:
    schema.create(conn, "jobs")
    table = Table.load(conn, "jobs")
    leasequeue.enqueue(conn, table, [{"lane": "fast"}] * 3 + [{"lane": "slow"}] * 40 + [{"lane": "other"}] * 5 + [{}] * 7)
    leasequeue.register(conn, table, "w1", pod_uid="p1", pod_name="fast-1", slots=2)
    held = leasequeue.claim(conn, table, worker_id="w1", n=2, config=LeaseConfig(), lanes=["fast"])
    conn.execute("UPDATE jobs SET lease_expires_at = now() - interval '1 s' WHERE id = %s", [held.items[0].id])
    hub = Hub()
    fast = await hub.look(Connection(dsn), wanted("a", "fast"), 5)
    both = await hub.look(Connection(dsn), wanted("b", "slow", "other", "slow"), 5)
    whole = await hub.look(Connection(dsn), wanted("c"), 5)
    await hub.close()
    assert fast.own is not None
    assert (fast.own.pending, fast.own.assigned, fast.own.expired, fast.own.claimable) == (1, 2, 1, 1)
    assert both.own is not None
    assert (both.own.pending, both.own.assigned, both.own.claimable) == (45, 0, 45)
    assert [w.pod_uid for w in fast.workers] == ["p1"]
    assert whole.own is None
    assert whole.stats is not None
    assert whole.stats.due == 53


async def test_of_strict_lanes_the_free_heads_count(conn: Admin, dsn: str) -> None:
    schema.create(conn, "jobs", strict_lanes=True)
    table = Table.load(conn, "jobs")
    rows = [{"lane": lane} for lane in ("a", "b", "c") for _ in range(10)]
    leasequeue.enqueue(conn, table, [*rows, *[{"lane": "z"}] * 4])
    conn.execute(
        "UPDATE jobs SET state = 'FAILED' WHERE id = (SELECT id FROM jobs WHERE lane = 'b' ORDER BY created_at, id LIMIT 1)"
    )
    later = "UPDATE jobs SET state = 'SCHEDULED', run_at = now() - interval '1 s' WHERE id = (SELECT id FROM jobs WHERE lane = 'z' ORDER BY created_at, id LIMIT 1)"
    conn.execute(later)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        block = await alane_depth(other, table, ["a", "b", "c"], strict="Block")
        passed = await alane_depth(other, table, ["a", "b", "c"], strict="Pass")
        scheduled = await alane_depth(other, table, ["z"], strict="Block")
    assert (block.pending, block.claimable) == (29, 2)
    assert (passed.pending, passed.claimable) == (29, 3)
    assert (scheduled.pending, scheduled.scheduled_due, scheduled.claimable) == (3, 1, 0)
