"""Cordons of a queue's pods, over one connection.

A pod in which no process has registered yet gets a row that stands in for it: whatever registers in the pod later inherits
its cordon, so no lease can appear there unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from leasequeue import aio
from leasequeue.table import Table
from leasequeue.workers import WorkerRow
from leasequeue_operator.plan.fleet import STAND_IN, stand_in
from leasequeue_operator.scaling.shrink import CORDON_S


async def change(
    conn: psycopg.AsyncConnection[Any], table: Table, cordon: Mapping[str, str], uncordon: Sequence[str]
) -> list[WorkerRow]:
    """Lift cordons, set cordons, and read the processes after that.

    Args:
        conn: an idle autocommit connection.
        table: the queue's table.
        cordon: pod uid → pod name.
        uncordon: pod uids.
    """
    if not cordon and not uncordon:
        return await aio.workers(conn, table)
    before = await aio.workers(conn, table)
    if uncordon:
        await aio.cordon(conn, table, list(uncordon), seconds=0)
        for row in before:
            if row.worker_id.startswith(STAND_IN) and row.pod_uid in uncordon:
                await aio.deregister(conn, table, row.worker_id)
    known = {row.pod_uid for row in before}
    for uid, name in cordon.items():
        if uid not in known:
            await aio.register(conn, table, stand_in(uid), pod_uid=uid, pod_name=name, slots=0)
    if cordon:
        await aio.cordon(conn, table, list(cordon), seconds=CORDON_S)
    return await aio.workers(conn, table)
