"""Limits that a connection keeps for its session: same bounds, same isolation, fewer statements; others bring their own as ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

import leasequeue
from leasequeue.dsn import connect
from leasequeue.fence import Completion
from leasequeue.run import Operation, Query, keep_limits, one, run
from leasequeue.schema import create
from leasequeue.table import Table
from leasequeue.wire import Wire

Conn = psycopg.Connection[Any]
CONFIG = leasequeue.LeaseConfig()
SETTINGS = (
    "lock_timeout",
    "statement_timeout",
    "synchronous_commit",
    "enable_seqscan",
    "plan_cache_mode",
    "transaction_isolation",
)
SHOWN = "SELECT " + ", ".join(f"current_setting('{name}') AS {name}" for name in SETTINGS)


@pytest.fixture
def kept(dsn: str) -> Iterator[Conn]:
    with connect(dsn) as conn:
        keep_limits(conn)
        yield conn


@pytest.fixture
def table(conn: Conn) -> Table:
    create(conn, "work")
    conn.execute("INSERT INTO work (idempotency_key) SELECT 'k' || n FROM generate_series(1, 3) AS n")
    return Table.load(conn, "work")


def shown(conn: Conn, **options: Any) -> dict[str, str]:
    """What an operation with these options finds set."""

    def flow() -> Any:
        return (yield Operation(lambda: one(Query(SHOWN, None)), **options))

    return dict(zip(SETTINGS, run(conn, flow()).rows[0], strict=True))


@pytest.mark.parametrize(
    "options", [{}, {"durable": False}, {"one_plan": True}, {"free_plans": True, "lock_timeout_ms": 5_000}]
)
def test_every_operation_finds_its_limits_on_a_connection_that_keeps_some(
    conn: Conn, kept: Conn, options: dict[str, Any]
) -> None:
    assert shown(kept, **options) == shown(conn, **options)
    assert shown(kept) == shown(conn), "the limits of another operation did not stay"


def test_a_database_that_defaults_to_serializable_still_gets_read_committed(conn: Conn, dsn: str, db: str) -> None:
    conn.execute(f'ALTER DATABASE "{db}" SET default_transaction_isolation = serializable')
    with connect(dsn) as later:
        keep_limits(later)
        assert shown(later)["transaction_isolation"] == "read committed"


def test_a_single_statement_is_committed_when_it_returns(conn: Conn, kept: Conn, table: Table) -> None:
    (item, *_) = leasequeue.claim(kept, table, worker_id="w", n=3, config=CONFIG).items
    assert leasequeue.resolve(kept, table, Completion(item.lease))[item.id] is leasequeue.Outcome.RESOLVED
    assert conn.execute("SELECT state FROM work WHERE id = %s", [item.id]).fetchone() == ("RESOLVED",)
    assert leasequeue.resolve(kept, table, Completion(item.lease))[item.id] is leasequeue.Outcome.ALREADY_RESOLVED


def test_a_claim_that_finds_nothing_asks_why_in_one_statement(
    conn: Conn, table: Table, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle worker polls twice a second: a transaction of the usual limits would wait for the disk each time."""
    conn.execute("DELETE FROM work")
    leasequeue.register(conn, table, "w")
    sent: list[tuple[int, dict[str, Any]]] = []
    real = Wire.ask

    def noted(self: Wire, queries: Any, **around: Any) -> Any:
        sent.append((len(queries), around))
        return real(self, queries, **around)

    monkeypatch.setattr(Wire, "ask", noted)
    with connect(dsn) as claims:
        keep_limits(claims, durable=False, one_plan=True)
        found = leasequeue.claim(claims, table, worker_id="w", n=3, config=CONFIG, registered=True)
    assert (found.items, found.admission) == ([], "open")
    assert sent == [(1, {}), (1, {})]


def test_a_locked_row_ends_the_wait_of_a_single_statement(kept: Conn, table: Table, dsn: str) -> None:
    (item, *_) = leasequeue.claim(kept, table, worker_id="w", n=1, config=CONFIG).items
    with psycopg.connect(dsn) as somebody:
        somebody.execute("SELECT FROM work WHERE id = %s FOR UPDATE", [item.id])
        with pytest.raises(errors.LockNotAvailable):
            leasequeue.resolve(kept, table, Completion(item.lease))
    assert leasequeue.resolve(kept, table, Completion(item.lease))[item.id] is leasequeue.Outcome.RESOLVED


def test_a_table_that_gets_a_column_under_a_prepared_statement(conn: Conn, kept: Conn, table: Table) -> None:
    """There is no ROLLBACK in a single statement, at which psycopg would forget its plans: they are forgotten by name."""

    def flow() -> Any:
        return (yield Operation(lambda: one(Query("SELECT w.* FROM work AS w", None))))

    before = run(kept, flow())
    conn.execute("ALTER TABLE work ADD COLUMN note text")
    assert len(run(kept, flow()).names) == len(before.names) + 1


@pytest.mark.parametrize("keep", [True, False])
def test_a_table_with_a_rule_completes_its_items(conn: Conn, dsn: str, table: Table, keep: bool) -> None:
    """An audit by rule, as old schemas have it: PostgreSQL refuses to change such a table inside WITH."""
    conn.execute("CREATE TABLE seen (id uuid, state text)")
    conn.execute("CREATE RULE seen AS ON UPDATE TO work DO ALSO INSERT INTO seen VALUES (NEW.id, NEW.state)")
    table = Table.load(conn, "work")
    with connect(dsn) as ours:
        if keep:
            keep_limits(ours)
        items = leasequeue.claim(ours, table, worker_id="w", n=3, config=CONFIG).items
        conn.execute("UPDATE work SET lease_token = gen_random_uuid() WHERE id = %s", [items[0].id])
        outcomes = leasequeue.resolve(
            ours, table, [Completion(items[0].lease), Completion(items[1].lease), Completion(items[2].lease, 1)]
        )
    lost, *done = [outcomes[item.id] for item in items]
    assert (lost, done) == (leasequeue.Outcome.LOST, [leasequeue.Outcome.RESOLVED] * 2)
