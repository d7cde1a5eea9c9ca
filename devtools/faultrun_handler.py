"""Handlers of the fault run: one posting per execution, fenced with the item's completion or, for comparison, on its own."""

from __future__ import annotations

import os
import random
import threading
import time
from typing import Any

import psycopg

POST = "INSERT INTO posting (item, amount, kind, worker, attempt) VALUES (%s, %s, %s, %s, %s)"
_local = threading.local()


def handle(item: Any, ctx: Any) -> dict[str, Any]:
    """Work for 10 to 40 ms, then post the item's amount: inside the fence, or on a connection that knows nothing of leases."""
    time.sleep(random.uniform(0.01, 0.04))
    values = (item.id, item["amount"], item["kind"], item.leased_by, item.attempt)
    if item["kind"] == "fenced":
        with ctx.transaction() as conn:
            conn.execute(POST, values)
    else:
        _plain().execute(POST, values)
    return {"amount": item["amount"]}


def _plain() -> psycopg.Connection[Any]:
    conn: psycopg.Connection[Any] | None = getattr(_local, "conn", None)
    if conn is None or conn.closed:
        conn = _local.conn = psycopg.connect(os.environ["FAULTRUN_DSN"], autocommit=True, connect_timeout=5)
    return conn
