"""The demo's own look at the database, through a port that kubectl forwards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from demo.errors import DemoError
from demo.kill import WorkerLeases
from demo.manifests import POSTGRES
from examples.review_queue.items import ReviewItem

CONNECT_SECONDS = 5
STATEMENT_TIMEOUT = "-c statement_timeout=20s"
INSERT = """
    INSERT INTO review_queue_item (idempotency_key, ledger_entity, variance_amount, match_decision, source_hash)
    VALUES (%s, %s, %s, %s, %s)
"""
STATES = "SELECT state, count(*) FROM review_queue_item GROUP BY state"
LEASES = """
    SELECT w.worker_id, w.pod_name, count(*)
    FROM review_queue_item t JOIN leasequeue.worker w ON w.worker_id = t.leased_by AND w.queue = 'review_queue_item'::regclass
    WHERE t.state = 'ASSIGNED' AND w.pod_name IS NOT NULL GROUP BY 1, 2
"""
HELD = "SELECT id::text FROM review_queue_item WHERE state = 'ASSIGNED' AND leased_by = %s"
CRASHED = "SELECT count(*) FROM review_queue_item WHERE id::text = ANY(%s) AND crash_count > 0"
RUNS = "SELECT runner, reclaimed FROM leasequeue.reclaim_run WHERE reclaimed > 0 ORDER BY id"


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows by state, as one statement saw them."""

    by_state: dict[str, int]

    @property
    def resolved(self) -> int:
        return self.by_state.get("RESOLVED", 0)

    @property
    def assigned(self) -> int:
        return self.by_state.get("ASSIGNED", 0)

    @property
    def total(self) -> int:
        return sum(self.by_state.values())


class Database:
    """One connection over a forwarded port, made anew when it is lost.

    Args:
        port: of this machine's loopback.
        password: of the role postgres.
    """

    def __init__(self, port: int, password: str) -> None:
        self.dsn = make_conninfo(
            host="127.0.0.1", port=port, user=POSTGRES, password=password, dbname=POSTGRES,
            connect_timeout=CONNECT_SECONDS, options=STATEMENT_TIMEOUT,
        )  # fmt: skip
        self._conn: psycopg.Connection[Any] | None = None

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What a query gives; tried once more on a new connection.

        Raises:
            DemoError: it failed twice.
        """
        try:
            return self._rows(query, values)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            self.close()
        except psycopg.Error as error:
            raise DemoError(f"PostgreSQL: {_plain(error)}") from None
        try:
            return self._rows(query, values)
        except psycopg.Error as error:
            raise DemoError(f"PostgreSQL: {_plain(error)}") from None

    def _rows(self, query: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        if self._conn is None or self._conn.closed:
            self._conn = psycopg.connect(self.dsn, autocommit=True)
        return self._conn.execute(query.encode(), values or None).fetchall()

    def close(self) -> None:
        """End the connection; the next query makes another."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def wait(self, seconds: float) -> None:
        """Wait until the server answers.

        Raises:
            DemoError: not within `seconds`.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._rows("SELECT 1", ())
                return
            except psycopg.OperationalError as error:
                self.close()
                if time.monotonic() > deadline:
                    raise DemoError(f"PostgreSQL does not answer within {seconds:.0f} s: {_plain(error)}") from None
            time.sleep(0.3)

    def seed(self, items: Sequence[ReviewItem]) -> None:
        """Make the published table and the ledger, and put the items in, as their users do without LeaseQueue."""
        folder = files("examples.review_queue")
        with psycopg.connect(self.dsn) as conn:
            for name in ("table.sql", "ledger.sql"):
                conn.execute((folder / name).read_bytes())
            rows = [(i.idempotency_key, i.ledger_entity, i.variance_amount, i.match_decision, i.source_hash) for i in items]
            with conn.cursor() as cursor:
                cursor.executemany(INSERT, rows)

    def counts(self) -> Counts:
        """Rows by state."""
        return Counts(dict(self.rows(STATES)))

    def leases(self) -> list[WorkerLeases]:
        """Leases by worker process, of those that run in a pod."""
        return [WorkerLeases(*row) for row in self.rows(LEASES)]

    def held_by(self, worker_id: str) -> list[str]:
        """Ids of the items ASSIGNED to one worker."""
        return [row[0] for row in self.rows(HELD, worker_id)]

    def crashed(self, ids: Sequence[str]) -> int:
        """How many of these items a reclaim has taken back."""
        count: int = self.rows(CRASHED, list(ids))[0][0]
        return count

    def reclaim_runs(self) -> list[tuple[str, int]]:
        """Runner and count of each recorded run that took items back."""
        return [(runner or "", int(reclaimed)) for runner, reclaimed in self.rows(RUNS)]


def _plain(error: psycopg.Error) -> str:
    """The first line of an error; libpq's messages name host and port, never the password."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
