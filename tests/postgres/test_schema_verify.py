"""schema verify: what it finds, and that it changes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from devtools.pgserver import PgServer
from devtools.samples import CONTENT_JOBS, review_queue
from leasequeue import BadInput, NotAdopted, Table, TableMissing, schema
from leasequeue.cli.app import run
from leasequeue.schema import ColumnSpec, Report

Conn = psycopg.Connection[Any]


@pytest.fixture
def guest(conn: Conn, pg: PgServer, db: str) -> Iterator[Conn]:
    """A role that may log in and nothing else."""
    conn.execute("CREATE ROLE guest LOGIN")
    with psycopg.connect(pg.dsn(db, "guest"), autocommit=True) as other:
        yield other
    conn.execute("DROP OWNED BY guest")
    conn.execute("DROP ROLE guest")


def codes(report: Report) -> set[str]:
    return {finding.code for finding in (*report.problems, *report.warnings)}


@pytest.mark.both_versions
def test_before_adoption_it_names_all_that_is_missing_and_the_command(conn: Conn, dsn: str) -> None:
    review_queue(conn, 3)
    report = schema.verify(conn, "review_queue_item")
    assert not report.ok
    assert "column lease_token uuid is missing" in report.missing
    assert report.command == "leasequeue schema adopt --schema public --table review_queue_item"
    with pytest.raises(NotAdopted, match="leasequeue schema adopt"):
        Table.load(conn, "review_queue_item")
    assert run([*shlex.split(report.command)[1:], "--dsn", dsn]) == 0, "the command that verify prints works as it is"
    assert schema.verify(conn, "review_queue_item").ok


def test_the_command_for_a_table_that_does_not_look_like_a_queue_confirms_it(conn: Conn, dsn: str) -> None:
    conn.execute(CONTENT_JOBS)
    report = schema.verify(conn, "content_jobs", strict_lanes=True)
    assert report.command
    assert run([*shlex.split(report.command)[1:], "--dsn", dsn]) == 0
    assert schema.verify(conn, "content_jobs", strict_lanes=True).ok


def test_it_changes_nothing(conn: Conn) -> None:
    review_queue(conn, 3)
    with conn.transaction():
        conn.execute("SET TRANSACTION READ ONLY")
        assert not schema.verify(conn, "review_queue_item").ok
        assert conn.execute("SELECT to_regnamespace('leasequeue') IS NULL").fetchone() == (True,)


async def test_async_says_the_same(conn: Conn, dsn: str) -> None:
    review_queue(conn, 3)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as aconn:
        assert await schema.averify(aconn, "review_queue_item") == schema.verify(conn, "review_queue_item")


def test_published_indexes_that_only_cost_are_warned_of(conn: Conn) -> None:
    review_queue(conn, 3)
    conn.execute("CREATE INDEX by_expiry ON review_queue_item (lease_expires_at)")
    conn.execute("CREATE INDEX by_entity ON review_queue_item (ledger_entity)")
    report = schema.adopt(conn, "review_queue_item")
    warned = {w.code: (w.text, w.fix) for w in report.warnings}
    assert "idx_review_queue_dequeue" in warned["INDEX_UNUSED"][0]
    assert "by_expiry" in warned["RENEWAL_NOT_HOT"][0]
    assert not any("by_entity" in w.text for w in report.warnings)
    for _, fix in warned.values():
        assert fix
        conn.execute(fix)
    assert schema.verify(conn, "review_queue_item").warnings == ()


# PRECISION_FAULT
@pytest.mark.parametrize("kind", ["double precision", "real"])
def test_float_columns_are_warned_of(conn: Conn, kind: str) -> None:
    report = schema.create(conn, "orders", columns=[ColumnSpec("amount", kind), ColumnSpec("exact", "numeric(18,2)")])
    (warning,) = report.warnings
    assert (warning.code, "column amount is" in warning.text) == ("PRECISION_FAULT", True)
    assert warning.fix
    conn.execute(warning.fix)
    assert schema.verify(conn, "orders").warnings == ()


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("DROP INDEX orders_lq_claim", "INDEX"),
        ("DROP INDEX orders_lq_idempotency_key", "INDEX"),
        ("ALTER TABLE orders DROP COLUMN source_hash", "COLUMN_MISSING"),
        ("ALTER TABLE orders ALTER COLUMN priority DROP NOT NULL", "COLUMN_NULLABLE"),
        ("ALTER TABLE orders ALTER COLUMN run_at DROP DEFAULT", "COLUMN_DEFAULT"),
        ("ALTER TABLE orders DROP CONSTRAINT orders_lq_leased", "CHECK_MISSING"),
        (
            "ALTER TABLE orders DROP CONSTRAINT orders_lq_state, ADD CONSTRAINT orders_lq_state CHECK (state IN ('PENDING'))",
            "STATE_CHECK",
        ),
        ("ALTER TABLE orders RENAME COLUMN idempotency_key TO k; ALTER TABLE orders ADD COLUMN idempotency_key text", "INDEX"),
        ("DELETE FROM leasequeue.schema_version WHERE queue <> 0", "VERSION"),
        ("DROP SCHEMA leasequeue CASCADE", "CONTROL_MISSING"),
    ],
)
def test_damage_is_found_and_adopt_mends_it(conn: Conn, damage: str, code: str) -> None:
    schema.create(conn, "orders")
    conn.execute(damage, prepare=False)
    report = schema.verify(conn, "orders")
    assert code in {problem.code for problem in report.problems}
    assert schema.adopt(conn, "orders").ok


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("ALTER TABLE orders SET UNLOGGED", "UNLOGGED"),
        ("ALTER TABLE orders ENABLE ROW LEVEL SECURITY", "ROW_SECURITY"),
        ("ALTER TABLE orders RESET (fillfactor)", "OPTIONS"),
    ],
)
def test_risks_are_warnings(conn: Conn, damage: str, code: str) -> None:
    schema.create(conn, "orders")
    conn.execute(damage)
    report = schema.verify(conn, "orders")
    assert (report.ok, codes(report)) == (True, {code})


# B02: what is missing, and for whom
def test_no_usage_on_the_schema_is_not_a_missing_table(conn: Conn, guest: Conn) -> None:
    conn.execute("CREATE SCHEMA a")
    schema.create(conn, "q", "a")
    for look in (schema.verify, Table.load):
        with pytest.raises(TableMissing, match="permission denied for schema 'a'"):
            look(guest, "q", "a")
        with pytest.raises(TableMissing, match="schema 'b' does not exist"):
            look(guest, "q", "b")


def test_a_search_path_never_decides_which_table(conn: Conn, guest: Conn) -> None:
    for name in ("a", "b"):
        conn.execute(f"CREATE SCHEMA {name}")
        schema.create(conn, "q", name)
        conn.execute(f"GRANT USAGE ON SCHEMA {name}, leasequeue TO guest")
        conn.execute(f"GRANT SELECT ON {name}.q, leasequeue.schema_version TO guest")
    conn.execute("ALTER ROLE guest SET search_path = b")
    guest.execute("SET search_path = b")
    assert Table.load(guest, "q", "a").oid == Table.load(conn, "q", "a").oid
    assert schema.verify(guest, "q", "a").table == "a.q"
    with pytest.raises(TableMissing, match="does not exist in that schema"):
        schema.verify(guest, "q")


def test_a_role_that_may_only_read_verifies(conn: Conn, guest: Conn) -> None:
    schema.create(conn, "orders")
    conn.execute("GRANT USAGE ON SCHEMA leasequeue TO guest")
    conn.execute("GRANT SELECT ON orders, leasequeue.schema_version TO guest")
    assert schema.verify(guest, "orders").ok


def test_a_role_without_the_control_schema_is_told_the_grant(conn: Conn, guest: Conn) -> None:
    schema.create(conn, "orders")
    conn.execute("GRANT SELECT ON orders TO guest")
    (problem,) = schema.verify(guest, "orders").problems
    assert problem.code == "CONTROL_DENIED"
    assert problem.fix
    for statement in problem.fix.replace("the role", "guest").split(";"):
        conn.execute(statement)
    assert schema.verify(guest, "orders").ok


def test_a_view_is_told_as_such(conn: Conn) -> None:
    schema.create(conn, "orders")
    conn.execute("CREATE VIEW seen AS SELECT * FROM orders")
    report = schema.verify(conn, "seen")
    assert ([p.code for p in report.problems], report.command) == (["KIND"], None)


def test_bad_names(conn: Conn) -> None:
    for name in ("", "q" * 64, "a\0b"):
        with pytest.raises(BadInput):
            schema.verify(conn, name)


def test_the_report_as_json(conn: Conn) -> None:
    schema.create(conn, "orders")
    assert schema.verify(conn, "orders").as_dict() == {
        "table": "public.orders",
        "ok": True,
        "version": schema.SCHEMA_VERSION,
        "problems": [],
        "warnings": [],
        "command": None,
    }
