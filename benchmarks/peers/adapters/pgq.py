"""PgQueuer, over asyncpg or psycopg."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import sys
import time
from typing import Any

import uvloop
from _proto import DSN, Worker, aone_by_one, apace, enqueued, opts, out, sent

O = opts()  # noqa: E741
logging.disable(logging.WARNING)
if sys.argv[1] == "version":
    out({"version": importlib.metadata.version("pgqueuer")})
    sys.exit()

from pgqueuer import PgQueuer, types  # noqa: E402
from pgqueuer.db import AsyncpgDriver, PsycopgDriver  # noqa: E402
from pgqueuer.models import Job  # noqa: E402
from pgqueuer.queries import Queries  # noqa: E402


async def connect() -> Any:
    """A connection of the chosen driver."""
    if O.get("driver", "apg") == "apg":
        import asyncpg

        return await asyncpg.connect(dsn=DSN)
    import psycopg

    return await psycopg.AsyncConnection.connect(DSN, autocommit=True)


def queries(conn: Any) -> Any:
    """PgQueuer's statements on a connection."""
    return Queries(AsyncpgDriver(conn) if O.get("driver", "apg") == "apg" else PsycopgDriver(conn))


async def setup() -> None:
    """Its schema, and its own advice for autovacuum."""
    found = queries(await connect())
    await found.install()
    await found.optimize_autovacuum()


async def enqueue() -> None:
    """Its bulk form, or single jobs."""
    n, chunk = O["n"], O.get("chunk", 5000)
    conn = await connect()
    q = queries(conn)
    await q.queue_size()

    async def one(number: int) -> None:
        await q.enqueue("bench", b'{"n": %d}' % number, 0)

    async def with_effect(number: int) -> None:
        async with conn.transaction():
            await conn.execute("INSERT INTO effect VALUES ($1)", number)
            await one(number)

    if O["how"] != "bulk":
        await aone_by_one(n, one if O["how"] == "one" else with_effect)
        return
    began = time.perf_counter()
    for start in range(0, n, chunk):
        numbers = range(start, min(n, start + chunk))
        await q.enqueue(["bench"] * len(numbers), [b'{"n": %d}' % i for i in numbers], [0] * len(numbers))
    enqueued(time.perf_counter() - began)


async def work() -> None:
    """Its queue manager alone: `PgQueuer.run` would add the scheduler's loop, which nothing here needs."""
    worker = Worker()
    managers = []
    for _ in range(O.get("consumers", 1)):
        q = queries(await connect())
        manager = PgQueuer(q.driver, queries=q)

        @manager.entrypoint("bench")
        async def bench(job: Job) -> None:
            found = json.loads(job.payload)
            worker.job(found["n"], found.get("t"))

        managers.append(manager)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()

    def stop() -> None:
        for manager in managers:
            manager.shutdown.set()
        stopped.set()

    worker.on_stop = lambda: loop.call_soon_threadsafe(stop)
    worker.ready_and_wait()
    mode = types.QueueExecutionMode.continuous if O.get("latency") else types.QueueExecutionMode.drain
    await asyncio.gather(*(m.qm.run(batch_size=O.get("batch", 100), mode=mode) for m in managers))
    await stopped.wait()
    worker.done()


async def produce() -> None:
    """Single jobs on schedule."""
    q = queries(await connect())
    calls, late = [], []
    async for number, lateness in apace(O["rate"], O["seconds"]):
        t = time.time()
        await q.enqueue("bench", json.dumps({"n": number, "t": t}).encode(), 0)
        calls.append(time.time() - t)
        late.append(lateness)
    sent(calls, late)


uvloop.run({"setup": setup, "enqueue": enqueue, "work": work, "produce": produce}[sys.argv[1]]())
