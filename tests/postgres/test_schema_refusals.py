"""What adopt refuses, before it alters anything, and what it says to do."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from devtools.samples import review_queue
from leasequeue import BadInput, TableMissing, schema
from leasequeue.schema import CannotAdopt

Conn = psycopg.Connection[Any]
CATALOG = """
    SELECT c.relname, c.relfilenode, c.reloptions, c.relnatts,
           (SELECT array_agg(conname::text ORDER BY 1) FROM pg_constraint WHERE conrelid = c.oid)
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname NOT LIKE 'pg%' AND n.nspname <> 'information_schema' ORDER BY c.oid
"""
QUEUE = "id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'PENDING', leased_by text"


def refused(conn: Conn, table: str, **options: Any) -> str:
    """The refusal's text; asserts that nothing was altered."""
    before = conn.execute(CATALOG).fetchall()
    with pytest.raises(CannotAdopt) as caught:
        schema.adopt(conn, table, **options)
    assert conn.execute(CATALOG).fetchall() == before
    return str(caught.value)


# B37: not every relation can be a queue
@pytest.mark.parametrize(
    ("ddl", "what"),
    [
        ("CREATE VIEW q AS SELECT state, max(leased_by) AS leased_by FROM base GROUP BY state", "a view"),
        ("CREATE MATERIALIZED VIEW q AS SELECT * FROM base", "a materialized view"),
        ("CREATE TABLE q (LIKE base) PARTITION BY LIST (state)", "a partitioned table"),
        ("CREATE TABLE q () INHERITS (base)", "table inheritance"),
    ],
)
def test_relations_that_cannot_be_queues(conn: Conn, ddl: str, what: str) -> None:
    conn.execute(f"CREATE TABLE base ({QUEUE})")
    conn.execute(ddl)
    assert what in refused(conn, "q")


def test_a_partition_and_an_inheritance_parent(conn: Conn) -> None:
    conn.execute("CREATE TABLE parent (id bigint, state text, leased_by text) PARTITION BY LIST (state)")
    conn.execute("CREATE TABLE q PARTITION OF parent DEFAULT")
    assert "a partition of another table" in refused(conn, "q")
    conn.execute(f"CREATE TABLE mother ({QUEUE})")
    conn.execute("CREATE TABLE child () INHERITS (mother)")
    assert "table inheritance" in refused(conn, "mother")


# B34, B37: types under which states never match, or times change their meaning with the session
@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("id int PRIMARY KEY, state char(9), leased_by text", "state is character(9); it must be text"),
        ("id int PRIMARY KEY, state varchar(5), leased_by text", "state is character varying(5); it must be text"),
        ("id int PRIMARY KEY, state mood, leased_by text", "state is the enum mood; it must be text"),
        ("id int PRIMARY KEY, state word, leased_by text", "state is the domain word; it must be text"),
        (QUEUE + ", run_at timestamp", "run_at is timestamp without time zone"),
        (QUEUE + ", lease_expires_at timestamp", "AT TIME ZONE 'UTC'"),
        (QUEUE + ", priority numeric", "priority is numeric; it must be integer"),
        (QUEUE + ", priority smallint", "priority is smallint"),
        (QUEUE + ", result text", "result is text; it must be jsonb"),
        (QUEUE + ", lease_token text", "lease_token is text; it must be uuid"),
        (QUEUE + ", last_error varchar(100)", "last_error is character varying(100)"),
        (QUEUE + ", attempt int GENERATED ALWAYS AS (1) STORED", "attempt is a generated column"),
        ("id numeric PRIMARY KEY, state text, leased_by text", "id is numeric; it must be one of uuid, bigint"),
        ("id bigint, state text, leased_by text", "id is not unique"),
        ("id bigint, part int, state text, leased_by text, PRIMARY KEY (id, part)", "id is not unique"),
        ("key uuid PRIMARY KEY, state text, leased_by text", "column id is missing"),
    ],
)
def test_columns_of_a_wrong_type(conn: Conn, columns: str, text: str) -> None:
    conn.execute("CREATE TYPE mood AS ENUM ('PENDING', 'ASSIGNED', 'RESOLVED')")
    conn.execute("CREATE DOMAIN word AS text")
    conn.execute(f"CREATE TABLE q ({columns})")
    assert text in refused(conn, "q")


@pytest.mark.parametrize(
    "column",
    [
        "state char(9) NOT NULL DEFAULT 'PENDING'",
        "state mood NOT NULL DEFAULT 'PENDING'",
        "state varchar(5)",
        "run_at timestamp NOT NULL DEFAULT now()",
        "priority smallint",
    ],
)
def test_the_sql_that_a_refusal_prints_mends_it(conn: Conn, column: str) -> None:
    conn.execute("CREATE TYPE mood AS ENUM ('PENDING', 'ASSIGNED', 'RESOLVED')")
    others = "leased_by text" if column.startswith("state") else "leased_by text, state text"
    conn.execute(f"CREATE TABLE q (id bigint PRIMARY KEY, {column}, {others})")
    conn.execute(
        "INSERT INTO q (id, state) VALUES (1, 'PENDI')"
        if "varchar" in column
        else "INSERT INTO q (id, state) VALUES (1, 'PENDING')"
    )
    with pytest.raises(CannotAdopt) as caught:
        schema.adopt(conn, "q")
    for finding in caught.value.findings:
        assert finding.fix
        conn.execute(finding.fix)
    conn.execute("UPDATE q SET state = 'PENDING'")
    if column.startswith("priority"):
        conn.execute("UPDATE q SET priority = 0")
    assert schema.adopt(conn, "q").ok


# B37: states in another spelling would wait for ever
def test_rows_in_states_that_nobody_serves(conn: Conn) -> None:
    conn.execute(f"CREATE TABLE q ({QUEUE})")
    conn.execute("INSERT INTO q (id, state) VALUES (1, 'pending'), (2, 'PENDING '), (3, 'PENDING')")
    text = refused(conn, "q")
    assert "'pending': 1" in text
    assert "'PENDING ': 1" in text
    mend = re.search(r"run: (UPDATE .*?) --", text)
    assert mend
    conn.execute(mend[1])
    assert schema.adopt(conn, "q").ok


@pytest.mark.parametrize(
    "check",
    [
        "length(state) BETWEEN 7 AND 8",
        "state ~ '^(PENDING|ASSIGNED|RESOLVED)$'",
        "state IN ('open', 'done', 'PENDING '::text) OR length(state) = 7",
        "NOT (state = 'ASSIGNED' AND leased_by IS NULL) AND state <> 'REPAIR'",
        "(state = 'ASSIGNED') = (leased_by IS NOT NULL)",
    ],
)
def test_a_state_check_that_cannot_be_read_is_refused_with_the_sql_to_run(conn: Conn, check: str) -> None:
    conn.execute(f'CREATE TABLE q ({QUEUE}, CONSTRAINT "odd check" CHECK ({check}))')
    text = refused(conn, "q")
    drop = re.search(r'run: (ALTER TABLE "public"\."q" DROP CONSTRAINT "odd check")', text)
    assert drop, text
    conn.execute(drop[1])
    assert schema.adopt(conn, "q").ok


@pytest.mark.parametrize(
    "check",
    [
        "state <> ''",
        "state <> 'ASSIGNED' OR leased_by IS NOT NULL",
        "length(state) < 20",
        "state IN ('PENDING', 'ASSIGNED', 'RESOLVED', 'SCHEDULED', 'FAILED', 'REPAIR', 'PARKED')",
    ],
)
def test_checks_that_suit_us_stay(conn: Conn, check: str) -> None:
    conn.execute(f"CREATE TABLE q ({QUEUE}, CONSTRAINT fine CHECK ({check}))")
    assert schema.adopt(conn, "q").ok
    assert conn.execute("SELECT count(*) FROM pg_constraint WHERE conname = 'fine'").fetchone() == (1,)


def test_lower_case_vocabulary_is_not_ours_to_replace(conn: Conn) -> None:
    conn.execute(
        f"CREATE TABLE q ({QUEUE.replace('PENDING', 'pending')}, CONSTRAINT words CHECK (state IN ('pending', 'done')))"
    )
    assert "constraint words" in refused(conn, "q")


def test_a_column_default_outside_our_states_is_told(conn: Conn) -> None:
    conn.execute("CREATE TABLE q (id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'new', leased_by text)")
    assert "default of column state is 'new'::text" in refused(conn, "q")


def test_names_that_postgres_would_cut(conn: Conn) -> None:
    with pytest.raises(BadInput, match="64 bytes"):
        schema.adopt(conn, "q" * 64)
    with pytest.raises(BadInput, match="64 bytes"):
        schema.verify(conn, "q", "s" * 64)


def test_missing_tables_and_schemas(conn: Conn) -> None:
    conn.execute('CREATE TABLE "Queue" (id int)')
    with pytest.raises(TableMissing, match="case-sensitive"):
        schema.adopt(conn, "queue")
    with pytest.raises(TableMissing, match="schema 'nope' does not exist"):
        schema.adopt(conn, "queue", "nope")


def test_only_the_owner_adopts(conn: Conn, pg: Any, db: str) -> None:
    review_queue(conn)
    conn.execute("CREATE ROLE guest LOGIN")
    try:
        conn.execute("GRANT SELECT, INSERT, UPDATE ON review_queue_item TO guest")
        with psycopg.connect(pg.dsn(db, "guest"), autocommit=True) as other:
            assert "only its owner may alter it" in refused(other, "review_queue_item")
    finally:
        conn.execute("DROP OWNED BY guest")
        conn.execute("DROP ROLE guest")


def test_inside_a_transaction(conn: Conn) -> None:
    review_queue(conn)
    with conn.transaction(), pytest.raises(BadInput, match="autocommit"):
        schema.adopt(conn, "review_queue_item")
