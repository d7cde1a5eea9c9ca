"""The queues: tables in one database, and a LeaseQueue for each."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import psycopg

from leasequeue import schema
from leasequeue_operator.kinds import LEASE_QUEUE, SECRET, Kind
from leasequeue_operator.kube import MERGE, Kube, KubeError

MANAGER = "benchmark"
AT_ONCE = 16
NAMESPACE = Kind("v1", "Namespace", "namespaces")


def make_tables(dsn: str, count: int, say: Callable[[str], None]) -> None:
    """Make `count` empty queue tables, but for those that are there; nobody owns any of them afterwards."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        there = int(row[0]) if row else 0
        if there:
            conn.execute("TRUNCATE leasequeue.owner")
        for n in range(there, count):
            schema.create(conn, table(n))
            if n % 250 == 249:
                say(f"{n + 1} tables")


def table(n: int) -> str:
    """Name of the n-th table."""
    return f"queue_{n:04d}"


def namespace(n: int, namespaces: int) -> str:
    """Namespace of the n-th queue."""
    return f"fleet-{n % namespaces}"


def lease_queue(n: int, namespaces: int, poll_s: int, *, reclaimers: bool) -> dict[str, Any]:
    """The n-th LeaseQueue: no worker as long as nothing is due."""
    return {
        "apiVersion": LEASE_QUEUE.api_version,
        "kind": LEASE_QUEUE.name,
        "metadata": {"name": f"q-{n:04d}", "namespace": namespace(n, namespaces)},
        "spec": {
            "database": {"secretRef": {"name": "db"}, "table": table(n)},
            "worker": {"handler": "fleet.handler:handle"},
            "scaling": {"pollPeriodSeconds": poll_s, "maxReplicas": 3},
            "reclaimer": {"suspend": not reclaimers},
        },
    }


async def make_namespaces(kube: Kube, namespaces: int, dsn: str) -> None:
    """Namespaces, each with the Secret of the database."""
    uri = base64.b64encode(dsn.encode()).decode()
    for n in range(namespaces):
        meta = {"name": f"fleet-{n}"}
        await _unless_there(kube.call("POST", NAMESPACE.path(None), body={"metadata": meta}))
        secret = {"metadata": {"name": "db", "namespace": meta["name"]}, "data": {"uri": uri}}
        await _unless_there(kube.create(SECRET, secret, MANAGER))


async def _unless_there(call: Awaitable[Any]) -> None:
    try:
        await call
    except KubeError as ex:
        if ex.reason != "AlreadyExists":
            raise


async def make_queues(kube: Kube, bodies: Iterable[dict[str, Any]]) -> None:
    """Create LeaseQueues, some at a time."""
    await _each(bodies, lambda body: kube.create(LEASE_QUEUE, body, MANAGER))


async def poll_every(kube: Kube, count: int, namespaces: int, poll_s: int) -> None:
    """Change the poll period of all queues."""
    change = {"spec": {"scaling": {"pollPeriodSeconds": poll_s}}}
    paths = (LEASE_QUEUE.path(namespace(n, namespaces), f"q-{n:04d}") for n in range(count))
    await _each(paths, lambda path: kube.patch(path, change, content_type=MERGE))


async def ready(kube: Kube) -> int:
    """How many are Ready."""
    found = 0
    async for page in kube.pages(LEASE_QUEUE, None):
        for item in page["items"]:
            told = {c["type"]: c["status"] for c in (item.get("status") or {}).get("conditions", ())}
            found += told.get("Ready") == "True"
    return found


async def _each(things: Iterable[Any], act: Callable[[Any], Awaitable[Any]]) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(thing: Any) -> None:
        async with limit:
            await act(thing)

    async with asyncio.TaskGroup() as group:
        for thing in things:
            group.create_task(one(thing))
