"""Procrastinate."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import sys
import time
from typing import Any

import uvloop
from _proto import DSN, Worker, aone_by_one, apace, enqueued, opts, out, sent

O = opts()  # noqa: E741
logging.disable(logging.WARNING)
if sys.argv[1] == "version":
    out({"version": importlib.metadata.version("procrastinate")})
    sys.exit()

import procrastinate  # noqa: E402
import psycopg  # noqa: E402

pool = O.get("pool", 10)
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=DSN, min_size=min(pool, 4), max_size=pool))
WORKER = Worker()


@app.task(name="bench", queue="bench")
async def bench(n: int, t: float | None = None) -> None:
    """Count one job."""
    WORKER.job(n, t)


async def setup() -> None:
    """Its schema."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue() -> None:
    """Its bulk form, or single jobs."""
    n, chunk = O["n"], O.get("chunk", 5000)
    async with app.open_async(), await psycopg.AsyncConnection.connect(DSN, autocommit=True) as conn:
        await app.job_manager.list_queues_async()

        async def with_effect(number: int) -> None:
            async with conn.transaction():
                await conn.execute("INSERT INTO effect VALUES (%s)", [number], prepare=True)
                await bench.configure(connection=conn).defer_async(n=number)

        if O["how"] == "one":
            await aone_by_one(n, lambda number: bench.defer_async(n=number))
        elif O["how"] == "tx":
            await aone_by_one(n, with_effect)
        else:
            began = time.perf_counter()
            for start in range(0, n, chunk):
                numbers, lanes = range(start, min(n, start + chunk)), O.get("lanes")
                for lane in range(lanes or 1):  # one lock a call
                    jobs = bench.configure(lock=f"lane-{lane}") if lanes else bench
                    await jobs.batch_defer_async(*({"n": i} for i in numbers if not lanes or i % lanes == lane))
            enqueued(time.perf_counter() - began)


async def work() -> None:
    """Several workers on one loop, which is how it is fastest."""
    async with app.open_async():
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        def stop() -> None:
            stopped.set()
            for task in tasks:
                task.cancel()

        WORKER.on_stop = lambda: loop.call_soon_threadsafe(stop)
        WORKER.ready_and_wait()
        waits = bool(O.get("latency"))
        options: dict[str, Any] = {
            "queues": ["bench"], "wait": waits, "concurrency": O.get("conc", 10), "install_signal_handlers": False,
            "listen_notify": waits and "poll_s" not in O, "fetch_job_polling_interval": O.get("poll_s", 5.0),
        }  # fmt: skip
        workers = [app.run_worker_async(name=f"w{i}", **options) for i in range(O.get("workers", 1))]
        tasks += [asyncio.create_task(one) for one in workers]
        await asyncio.gather(*tasks, return_exceptions=True)
        await stopped.wait()
    WORKER.done()


async def produce() -> None:
    """Single jobs on schedule."""
    calls, late = [], []
    async with app.open_async():
        async for number, lateness in apace(O["rate"], O["seconds"]):
            t = time.time()
            await bench.defer_async(n=number, t=t)
            calls.append(time.time() - t)
            late.append(lateness)
    sent(calls, late)


uvloop.run({"setup": setup, "enqueue": enqueue, "work": work, "produce": produce}[sys.argv[1]]())
