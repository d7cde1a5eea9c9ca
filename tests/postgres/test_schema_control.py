"""The control schema: made once, safely, and rid of queues that are gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import leasequeue
from devtools.pgserver import PgServer
from leasequeue import Table, schema
from leasequeue.schema import control

Conn = psycopg.Connection[Any]


@pytest.mark.both_versions
def test_made_at_once_by_many(dsn: str, conn: Conn) -> None:
    def install(_: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as mine:
            control.install(mine)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(install, range(8)))
    assert conn.execute("SELECT queue, version FROM leasequeue.schema_version").fetchall() == [(0, schema.SCHEMA_VERSION)]


def test_each_queue_has_its_version(conn: Conn) -> None:
    schema.create(conn, "a")
    schema.create(conn, "b")
    conn.execute("UPDATE leasequeue.schema_version SET version = 0 WHERE queue = 'b'::regclass")
    assert (schema.verify(conn, "a").version, schema.verify(conn, "b").version) == (schema.SCHEMA_VERSION, 0)
    assert [problem.code for problem in schema.verify(conn, "b").problems] == ["VERSION"]


def test_queues_that_are_gone_leave_no_rows_for_the_next_of_their_oid(conn: Conn) -> None:
    schema.create(conn, "gone")
    schema.create(conn, "kept")
    for name in ("gone", "kept"):
        table = Table.load(conn, name)
        leasequeue.register(conn, table, f"w-{name}")
        leasequeue.own_table(conn, table, cr_uid=name, cr_namespace="ns", cr_name=name)
    conn.execute("DROP TABLE gone")
    schema.adopt(conn, "kept")
    assert conn.execute("SELECT worker_id FROM leasequeue.worker").fetchall() == [("w-kept",)]
    assert conn.execute("SELECT cr_uid FROM leasequeue.owner").fetchall() == [("kept",)]


def test_a_table_owner_adopts_beside_an_administrators_control_schema(conn: Conn, pg: PgServer, db: str) -> None:
    schema.create(conn, "installs_it")
    conn.execute("CREATE ROLE team LOGIN")
    try:
        conn.execute("CREATE SCHEMA team AUTHORIZATION team")
        conn.execute("GRANT USAGE ON SCHEMA leasequeue TO team")
        conn.execute("GRANT SELECT, INSERT, UPDATE ON leasequeue.schema_version TO team")
        with psycopg.connect(pg.dsn(db, "team"), autocommit=True) as other:
            other.execute("CREATE TABLE team.jobs (id bigint PRIMARY KEY, state text, leased_by text)")
            assert schema.adopt(other, "jobs", "team").ok
    finally:
        conn.execute("DROP OWNED BY team CASCADE")
        conn.execute("DROP ROLE team")
