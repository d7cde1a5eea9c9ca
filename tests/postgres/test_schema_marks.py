"""Marks of tables: they stay while `verify` says the same, and change with everything that it looks at."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from leasequeue import schema
from leasequeue.run import run
from leasequeue.schema.marks import Mark, marks_flow

pytestmark = [pytest.mark.postgres, pytest.mark.both_versions]

Conn = psycopg.Connection[Any]

CHANGES = [
    "ALTER TABLE t ADD COLUMN extra int",
    "ALTER TABLE t DROP COLUMN result",
    "ALTER TABLE t RENAME COLUMN source_hash TO hash",
    "ALTER TABLE t ALTER COLUMN priority TYPE bigint",
    "ALTER TABLE t ALTER COLUMN state SET DEFAULT 'RESOLVED'",
    "ALTER TABLE t ALTER COLUMN state DROP DEFAULT",
    "ALTER TABLE t ALTER COLUMN lane SET NOT NULL",
    "ALTER TABLE t ADD CHECK (state <> 'REPAIR')",
    "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "DROP INDEX t_lq_claim",
    "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 't_lq_claim'::regclass",
    "CREATE INDEX ON t (lease_expires_at)",
    "ALTER TABLE t RENAME TO other",
    "DROP TABLE t",
    "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE t RESET (fillfactor)",
    "ALTER TABLE t SET UNLOGGED",
    "CREATE TABLE child () INHERITS (t)",
    "UPDATE leasequeue.schema_version SET version = 0 WHERE queue = 't'::regclass",
    "DELETE FROM leasequeue.schema_version WHERE queue = 't'::regclass",
]


def mark(conn: Conn, table: str = "t") -> Mark:
    (found,) = run(conn, marks_flow([("public", table)]))
    return found


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(conn: Conn, change: str) -> None:
    schema.create(conn, "t")
    before = mark(conn)
    assert mark(conn) == before
    conn.execute(change)
    assert mark(conn).text != before.text


def test_work_on_the_queue_changes_nothing(conn: Conn) -> None:
    schema.create(conn, "t")
    before = mark(conn)
    conn.execute("INSERT INTO t (state) SELECT 'PENDING' FROM generate_series(1, 1000)")
    conn.execute("UPDATE t SET priority = 1")
    conn.execute("VACUUM ANALYZE t")
    assert mark(conn) == before


def test_each_table_has_its_own(conn: Conn) -> None:
    schema.create(conn, "50%_queue")
    schema.create(conn, "other")
    names = [("public", "50%_queue"), ("public", "missing"), ("public", "gone"), ("public", "other"), ("nowhere", "other")]
    found = run(conn, marks_flow(names))
    assert found[0].text != found[3].text
    assert found[1] == found[2]  # neither is there
    conn.execute('ALTER TABLE "50%_queue" ADD COLUMN extra int')
    again = run(conn, marks_flow(names))
    assert [now == before for now, before in zip(again, found, strict=True)] == [False, True, True, True, True]


def test_the_owner_is_told_apart(conn: Conn) -> None:
    schema.create(conn, "t")
    before = mark(conn)
    conn.execute("INSERT INTO leasequeue.owner (queue, cr_uid, cr_namespace, cr_name) VALUES ('t'::regclass, 'u', 'n', 'q')")
    assert mark(conn) == Mark(before.text, "u")


def test_a_right_that_is_taken_away_is_seen(conn: Conn) -> None:
    schema.create(conn, "t")
    before = mark(conn)
    conn.execute("GRANT SELECT ON t TO pg_monitor")
    assert mark(conn).text != before.text
