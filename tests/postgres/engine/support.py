"""What the engine's tests share: one client over the sync and the async engine, rows and leases by plain SQL, waits without guesses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg.rows import dict_row

import leasequeue
from leasequeue import aio
from leasequeue.config import LeaseConfig
from leasequeue.fence import Completion
from leasequeue.item import Item, Lease
from leasequeue.states import Outcome
from leasequeue.table import Table, quoted

T = TypeVar("T")
PATIENCE_S = 20.0


class Driver(Protocol):
    """A connection and the engine over it."""

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any: ...
    def load(self, name: str, schema: str) -> Table: ...
    def execute(self, statement: str, params: Any = None) -> list[dict[str, Any]]: ...
    def transaction(self) -> contextlib.AbstractContextManager[Any]: ...
    def close(self) -> None: ...
    @property
    def pid(self) -> int: ...


class SyncDriver:
    """The engine over `leasequeue.connect`."""

    def __init__(self, dsn: str, application_name: str = "leasequeue") -> None:
        self.conn = leasequeue.connect(dsn, application_name=application_name)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(leasequeue, name)(self.conn, *args, **kwargs)

    def load(self, name: str, schema: str) -> Table:
        return Table.load(self.conn, name, schema)

    def execute(self, statement: str, params: Any = None) -> list[dict[str, Any]]:
        cursor = self.conn.cursor(row_factory=dict_row).execute(statement, params)
        return cursor.fetchall() if cursor.description else []

    def transaction(self) -> contextlib.AbstractContextManager[Any]:
        return self.conn.transaction()

    def close(self) -> None:
        self.conn.close()

    @property
    def pid(self) -> int:
        return self.conn.info.backend_pid


class AsyncDriver:
    """The engine over `leasequeue.aconnect`, on an event loop of its own."""

    def __init__(self, dsn: str, application_name: str = "leasequeue") -> None:
        self._runner = asyncio.Runner()
        self.conn = self.wait(leasequeue.aconnect(dsn, application_name=application_name))

    def wait(self, waited: Any) -> Any:
        async def inside() -> Any:
            return await waited

        return self._runner.run(inside())

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.wait(getattr(aio, name)(self.conn, *args, **kwargs))

    def load(self, name: str, schema: str) -> Table:
        return self.wait(Table.aload(self.conn, name, schema))

    def execute(self, statement: str, params: Any = None) -> list[dict[str, Any]]:
        async def inside() -> list[dict[str, Any]]:
            cursor = await self.conn.cursor(row_factory=dict_row).execute(statement, params)
            return await cursor.fetchall() if cursor.description else []

        return self.wait(inside())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        transaction = self.conn.transaction()
        entered = self.wait(transaction.__aenter__())
        try:
            yield entered
        except BaseException as ex:
            if not self.wait(transaction.__aexit__(type(ex), ex, ex.__traceback__)):
                raise
        else:
            self.wait(transaction.__aexit__(None, None, None))

    def close(self) -> None:
        if not self.conn.closed:
            self.wait(self.conn.close())
        self._runner.close()

    @property
    def pid(self) -> int:
        return self.conn.info.backend_pid


DRIVERS: dict[str, Callable[..., Driver]] = {"sync": SyncDriver, "async": AsyncDriver}


@dataclass
class Client:
    """One worker process as the engine sees it: a connection, an identity, a configuration."""

    driver: Driver
    table: Table
    worker_id: str
    config: LeaseConfig = field(default_factory=LeaseConfig)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Engine function `name` on this client's table."""
        return self.driver.call(name, self.table, *args, **kwargs)

    def claimed(self, n: int = 1, **options: Any) -> leasequeue.Claimed:
        options.setdefault("config", self.config)
        return self.call("claim", worker_id=self.worker_id, n=n, **options)

    def claim(self, n: int = 1, **options: Any) -> list[Item]:
        return self.claimed(n, **options).items

    def renew(self, *leases: Lease, config: LeaseConfig | None = None) -> list[Outcome]:
        outcomes = self.call("renew", list(leases), config=config or self.config)
        return [outcomes[lease.id] for lease in leases]

    def resolve(self, *leases: Lease, result: Any = None) -> list[Outcome]:
        outcomes = self.call("resolve", [Completion(lease, result) for lease in leases])
        return [outcomes[lease.id] for lease in leases]

    def retry(self, lease: Lease, after_s: float | None = 0.0, error: str = "tried") -> Outcome:
        return self.call("retry", lease, after_s=after_s, error=error, config=self.config)

    def release(self, *leases: Lease, after_s: float = 0.0) -> list[Outcome]:
        outcomes = self.call("release", list(leases), after_s=after_s)
        return [outcomes[lease.id] for lease in leases]

    def reclaim(self, **settings: Any) -> list[leasequeue.ReclaimedItem]:
        """One page. The lease duration is the shortest, so that the grace after the server's start is over soonest."""
        return self.call("reclaim", config=LeaseConfig(**{"lock_timeout_ms": 1_000, "reclaim_after_s": 10, **settings})).items


# --- the table by plain SQL ----------------------------------------------------------------------------------------------


def name_of(table: Table) -> str:
    """The table's quoted name, for statements without parameters of psycopg."""
    return quoted(table.schema, table.name).replace("%%", "%")


def add(conn: psycopg.Connection[Any], table: Table, n: int = 1, /, **columns: Any) -> list[Any]:
    """Insert n rows, created one after another; returns their ids in that order. Columns are values or functions of the number."""
    names = ", ".join(quoted(name) for name in columns)
    marks = ", ".join(["%s"] * len(columns))
    target = quoted(table.schema, table.name)
    statement = (
        f"INSERT INTO {target} ({names}) VALUES ({marks}) RETURNING id"
        if columns
        else f"INSERT INTO {target} DEFAULT VALUES RETURNING id"
    )
    ids = []
    with conn.transaction(), conn.pipeline():
        cursors = [
            conn.execute(statement, [value(i) if callable(value) else value for value in columns.values()]) for i in range(n)
        ]
    for cursor in cursors:
        row = cursor.fetchone()
        ids.append(row[0] if not isinstance(row, dict) else row["id"])
    return ids


def bulk(conn: psycopg.Connection[Any], table: Table, n: int, state: str = "PENDING", lane: str = "NULL") -> None:
    """Insert n rows by one statement. `lane` is SQL over the number `i`."""
    conn.execute(
        f"INSERT INTO {quoted(table.schema, table.name)} (state, lane, resolved_at, run_at) "
        f"SELECT %(state)s, {lane}, CASE WHEN %(state)s = 'RESOLVED' THEN now() END, "
        "CASE WHEN %(state)s = 'SCHEDULED' THEN now() + interval '1 day' ELSE now() END FROM generate_series(1, %(n)s) AS i",
        {"state": state, "n": n},
    )


def rows(conn: psycopg.Connection[Any], table: Table) -> dict[Any, dict[str, Any]]:
    """All rows by id."""
    cursor = conn.cursor(row_factory=dict_row).execute(f"SELECT * FROM {name_of(table)} ORDER BY created_at, id")
    return {row["id"]: row for row in cursor}


def row(conn: psycopg.Connection[Any], table: Table, item_id: Any) -> dict[str, Any]:
    """One row."""
    statement = f"SELECT * FROM {quoted(table.schema, table.name)} WHERE id = %s"
    found = conn.cursor(row_factory=dict_row).execute(statement, [item_id]).fetchone()
    assert found is not None, f"no row {item_id}"
    return found


def states(conn: psycopg.Connection[Any], table: Table) -> dict[str, int]:
    """Rows per state."""
    found = conn.execute(f"SELECT state, count(*) FROM {name_of(table)} GROUP BY 1").fetchall()
    return dict(found)


def set_where(conn: psycopg.Connection[Any], table: Table, assignments: str, condition: str = "true", **params: Any) -> int:
    """UPDATE by hand; returns how many rows changed."""
    name = quoted(table.schema, table.name) if params else name_of(table)
    return conn.execute(f"UPDATE {name} SET {assignments} WHERE {condition}", params or None).rowcount


def expire(conn: psycopg.Connection[Any], table: Table, *ids: Any, ago: str = "1 hour") -> None:
    """Let leases (all, or those of the given items) have ended `ago`."""
    condition = "state = 'ASSIGNED'" + (" AND id = ANY (%(ids)s)" if ids else "")
    changed = set_where(
        conn, table, "lease_expires_at = clock_timestamp() - %(ago)s::interval", condition, ago=ago, ids=list(ids)
    )
    assert changed, "nothing was leased"


# --- waits and threads ---------------------------------------------------------------------------------------------------


def wait_until(condition: Callable[[], T], what: str) -> T:
    """Poll until `condition` holds; fails after 20 s. Never the thing under test: only that a state has been reached."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.005)


def waiting_pids(conn: psycopg.Connection[Any], application_name: str | None = None) -> list[int]:
    """Backends of this database that wait for a lock."""
    found = conn.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND (%(name)s::text IS NULL OR application_name = %(name)s)",
        {"name": application_name},
    )
    return [pid for (pid,) in found]


def blocked_or_done(conn: psycopg.Connection[Any], future: Future[Any], pid: int) -> bool:
    """Wait until the call in `future` either ended or waits for a lock; True when it waits."""
    wait_until(lambda: future.done() or pid in waiting_pids(conn), "the call ended or waits for a lock")
    return not future.done()


def in_threads(work: Sequence[Callable[[], T]]) -> list[T]:
    """Run all at once from one starting line; results in order; the first error is raised."""
    line = threading.Barrier(len(work))

    def start(one: Callable[[], T]) -> T:
        line.wait(PATIENCE_S)
        return one()

    with ThreadPoolExecutor(len(work)) as pool:
        futures = [pool.submit(start, one) for one in work]
        return [future.result(timeout=120) for future in futures]


@contextlib.contextmanager
def background(work: Callable[[], T]) -> Iterator[Future[T]]:
    """Run one call in a thread; it must have ended when the block ends."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


def new_worker() -> str:
    """Identity of a process."""
    return f"w-{uuid.uuid4().hex[:10]}"


def lost(lease: Lease, **changes: Any) -> Lease:
    """The same lease with another token or owner."""
    given = {"id": lease.id, "token": lease.token, "worker_id": lease.worker_id, **changes}
    return Lease(**given)


GATE = 4711


@contextlib.contextmanager
def gate_at_update(conn: psycopg.Connection[Any], table: Table, condition: str) -> Iterator[psycopg.Connection[Any]]:
    """Updates of rows that meet `condition` (over OLD and NEW) stop at a gate, between two rows of one statement.

    Yields a connection that holds the gate shut; its next commit or rollback opens it.
    """
    name = name_of(table)
    conn.execute(
        "CREATE OR REPLACE FUNCTION public.stop_at_gate() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NEW; END$$"
    )
    conn.execute(
        f"CREATE TRIGGER gate BEFORE UPDATE ON {name} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION public.stop_at_gate()"
    )
    with psycopg.connect(conn.info.dsn) as keeper:
        keeper.execute("SELECT pg_advisory_xact_lock(%s)", [GATE])
        yield keeper
    conn.execute(f"DROP TRIGGER gate ON {name}")
