"""The handler of the drills' workers: the column `task` says what becomes of an item.

    work SECONDS     takes that long, then resolves
    hold             takes until its queue's gate is opened (a row in the table `gate`)
    retry SECONDS    the first attempt is retried at once, the second resolves after SECONDS
    fail, repair     is given up, is set aside

It runs in the worker's own image, mounted from a ConfigMap, so it imports nothing of this package.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psycopg

from leasequeue.verdict import Fail, Repair, Retry

LOOK_S = 1.0
OPEN = "SELECT 1 FROM gate WHERE queue = %s"


class Gate:
    """One look a second at the gate for all items of this process that wait at it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def passed(self) -> None:
        """Wait until it is open."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._look())
        await self._open.wait()

    async def _look(self) -> None:
        dsn = (Path(os.environ["LEASEQUEUE_DSN_FILE"]) / "uri").read_text().strip()
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            while not await (await conn.execute(OPEN, (os.environ["LEASEQUEUE_TABLE"],))).fetchone():  # noqa: ASYNC110 - the event is in the database
                await asyncio.sleep(LOOK_S)
        self._open.set()


GATE = Gate()


async def handle(item: Any, ctx: Any) -> dict[str, Any]:  # noqa: ARG001 - the signature of a handler
    """Do as `task` says.

    Raises:
        Retry, Fail, Repair: where it says so, and Repair where it says nothing known.
    """
    word, _, rest = item["task"].partition(" ")
    if word == "hold":
        await GATE.passed()
    elif word in ("work", "retry"):
        if word == "retry" and item.attempt == 1:
            raise Retry(after_s=0.5, error="as the task says")
        await asyncio.sleep(float(rest))
    elif word == "fail":
        raise Fail("as the task says")
    else:
        raise Repair(f"task {item['task']!r}")
    return {"task": item["task"]}
