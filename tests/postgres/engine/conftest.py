"""Fixtures of the engine's tests: one database a server, a queue of its own a test, and clients over the sync and the async engine.

A test that takes `kind` (or `client`, `open_client`) runs twice, over both engines: one conformance suite.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from devtools.pgserver import PgServer
from leasequeue import Table, schema
from leasequeue.config import LeaseConfig
from tests.postgres.engine.support import DRIVERS, Client, new_worker

_numbers = itertools.count(1)
_databases: dict[tuple[int, int], str] = {}
GRACE_S = 16.0  # shortest lease (1 s) + 15 s: the reclaimer's grace after the server's start

OpenClient = Callable[..., Client]
MakeQueue = Callable[..., Table]

PAYLOAD = (
    schema.ColumnSpec("payload", "jsonb"),
    schema.ColumnSpec("amount", "numeric(18,2)"),
    schema.ColumnSpec("decision", "text"),
    schema.ColumnSpec("seen_at", "timestamptz"),
)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which engine this test runs over."""
    return str(request.param)


@pytest.fixture
def queue_dsn(pg: PgServer) -> str:
    """DSN of the database that the tests of one server share; each has its own tables in it."""
    key = (id(pg), os.getpid())
    if key not in _databases:
        name = f"engine_{os.getpid()}"
        pg.create_database(name)
        _databases[key] = name
    return pg.dsn(_databases[key])


@pytest.fixture
def admin(queue_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A plain connection to that database, autocommit."""
    with psycopg.connect(queue_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def make_queue(admin: psycopg.Connection[Any]) -> Iterator[MakeQueue]:
    """Makes queues by `leasequeue.schema.create`; dropped afterwards."""
    made: list[str] = []

    def make(name: str | None = None, **options: Any) -> Table:
        name = name or f"queue_{next(_numbers)}"
        options.setdefault("columns", PAYLOAD)
        schema.create(admin, name, **options)
        made.append(name)
        return Table.load(admin, name)

    yield make
    for name in made:
        admin.execute(psycopg.sql.SQL("DROP TABLE IF EXISTS {}").format(psycopg.sql.Identifier(name)))


@pytest.fixture
def table(make_queue: MakeQueue) -> Table:
    """An empty queue with columns payload, amount, decision and seen_at of its user's."""
    return make_queue()


@pytest.fixture
def strict(make_queue: MakeQueue) -> Table:
    """An empty queue with the indexes of strict lanes."""
    return make_queue(strict_lanes=True)


@pytest.fixture
def open_client(kind: str, queue_dsn: str, request: pytest.FixtureRequest) -> Iterator[OpenClient]:
    """Opens clients: `open_client(table, worker_id=…, **settings)`."""
    opened: list[Client] = []

    def open_one(table: Table, *, worker_id: str | None = None, dsn: str | None = None, **settings: Any) -> Client:
        client = Client(DRIVERS[kind](dsn or queue_dsn), table, worker_id or new_worker(), LeaseConfig(**settings))
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.driver.close()


@pytest.fixture
def client(table: Table, open_client: OpenClient) -> Client:
    """One worker's client on `table`."""
    return open_client(table)


@pytest.fixture
def settled_server(admin: psycopg.Connection[Any]) -> None:
    """The server has run long enough for the reclaimer to begin (waits once a session, mostly for nothing)."""
    while True:
        (age_s,) = admin.execute("SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8").fetchone()
        if age_s > GRACE_S:
            return
        time.sleep(GRACE_S - age_s + 0.05)
