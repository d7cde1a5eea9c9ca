"""schema create: the table of a new queue."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql

import leasequeue
from leasequeue import BadInput, LeaseConfig, Table, TableMissing, schema
from leasequeue.schema import ColumnSpec

Conn = psycopg.Connection[Any]
AMOUNT = [ColumnSpec("amount", "numeric(18,2)", not_null=True)]
LONG = "q" * 63


def tables(conn: Conn) -> set[str]:
    rows = conn.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
    return {name for (name,) in rows}


@pytest.mark.both_versions
def test_a_created_table_is_ready(conn: Conn) -> None:
    report = schema.create(conn, "orders", columns=AMOUNT)
    assert (report.ok, report.problems, report.warnings, report.command) == (True, (), (), None)
    assert report.version == schema.SCHEMA_VERSION
    table = Table.load(conn, "orders")
    assert (table.id_type, table.columns["amount"]) == ("uuid", "numeric(18,2)")


@pytest.mark.both_versions
def test_ids_are_uuidv7_where_the_server_has_it(conn: Conn) -> None:
    schema.create(conn, "orders")
    (item,) = leasequeue.enqueue(conn, Table.load(conn, "orders"), [{}])
    assert item.id.version == (7 if conn.info.server_version >= 180000 else 4)


@pytest.mark.parametrize(("id_type", "first"), [("bigint", 1), ("text", "a/1")])
def test_other_keys(conn: Conn, id_type: str, first: Any) -> None:
    schema.create(conn, "orders", id_type=id_type)
    rows = [{"id": first}] if id_type == "text" else [{}]
    (item,) = leasequeue.enqueue(conn, Table.load(conn, "orders"), rows)
    assert item.id == first


def test_create_again_changes_nothing(conn: Conn) -> None:
    schema.create(conn, "orders", columns=AMOUNT)
    before = conn.execute("SELECT oid, relname FROM pg_class ORDER BY oid").fetchall()
    assert schema.create(conn, "orders", columns=AMOUNT).ok
    assert conn.execute("SELECT oid, relname FROM pg_class ORDER BY oid").fetchall() == before


def test_create_finishes_what_is_unfinished(conn: Conn) -> None:
    schema.create(conn, "orders", columns=AMOUNT)
    conn.execute("DROP INDEX orders_lq_claim")
    assert not schema.verify(conn, "orders").ok
    assert schema.create(conn, "orders", columns=AMOUNT).ok


@pytest.mark.parametrize(
    ("columns", "id_type", "problem"),
    [
        ([], "uuid", "column amount is not asked for"),
        ([*AMOUNT, ColumnSpec("site", "text")], "uuid", "column site is missing"),
        ([ColumnSpec("amount", "text")], "uuid", "column amount is numeric"),
        (AMOUNT, "bigint", "column id is uuid, not bigint"),
    ],
)
def test_another_table_of_that_name_is_refused(conn: Conn, columns: list[ColumnSpec], id_type: str, problem: str) -> None:
    schema.create(conn, "orders", columns=AMOUNT)
    with pytest.raises(BadInput, match=problem):
        schema.create(conn, "orders", columns=columns, id_type=id_type)


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("CREATE VIEW taken AS SELECT 1 AS id", "it is a view; .* choose another name"),
        ("CREATE TABLE taken (id int) PARTITION BY LIST (id)", "it is a partitioned table; .* choose another name"),
        (
            "CREATE TABLE taken (k int, amount numeric)",
            "is no lease queue; nothing was changed: .* schema adopt --schema public --table taken",
        ),
        ("CREATE SEQUENCE taken", "something that is no table"),
        ("CREATE TYPE taken AS (k int)", "something that is no table"),
    ],
)
def test_something_else_of_that_name_is_told_and_left_alone(conn: Conn, ddl: str, problem: str) -> None:
    conn.execute(ddl)
    with pytest.raises(BadInput, match=problem):
        schema.create(conn, "taken")
    assert conn.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'taken_lq%'").fetchone() == (0,)


def test_a_plain_table_of_that_name_is_left_alone(conn: Conn) -> None:
    conn.execute("CREATE TABLE orders (id uuid PRIMARY KEY, amount numeric(18,2))")
    with pytest.raises(BadInput, match=r"is no lease queue.*schema adopt"):
        schema.create(conn, "orders", columns=AMOUNT)
    names = [
        name for (name,) in conn.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0")
    ]
    assert names == ["id", "amount"]


# B01: every one of these names once hit another table, or none, somewhere
@pytest.mark.parametrize(
    "name", ["my-Queue", "order", "user", "50%_queue", "a.b", 'q"; DROP TABLE victim; --', "Ünïcode", "{table}", LONG]
)
def test_any_name_works_and_means_exactly_its_table(conn: Conn, name: str) -> None:
    conn.execute("CREATE TABLE victim (id int)")
    conn.execute('CREATE SCHEMA "Ops"')
    for where in ("public", "Ops"):
        assert schema.create(conn, name, where, columns=AMOUNT).ok
    table = Table.load(conn, name, "Ops")
    leasequeue.enqueue(conn, table, [{"amount": 1, "idempotency_key": "only-here"}])
    config = LeaseConfig()
    assert leasequeue.claim(conn, Table.load(conn, name), worker_id="w", n=5, config=config).items == []
    (item,) = leasequeue.claim(conn, table, worker_id="w", n=5, config=config).items
    assert item.idempotency_key == "only-here"
    assert leasequeue.stats(conn, Table.load(conn, name)).due == 0
    assert "victim" in tables(conn)


def test_names_that_share_63_bytes_never_meet(conn: Conn) -> None:
    schema.create(conn, LONG)
    with pytest.raises(BadInput, match="69 bytes"):
        schema.create(conn, LONG + "_other")
    with pytest.raises(BadInput, match="69 bytes"):
        Table.load(conn, LONG + "_other")


def test_long_names_that_share_their_beginning_get_indexes_of_their_own(conn: Conn) -> None:
    names = [LONG[:-1] + "a", LONG[:-1] + "b"]
    for name in names:
        assert schema.create(conn, name).ok
    owners = conn.execute("SELECT count(DISTINCT indrelid) FROM pg_index WHERE indexrelid::regclass::text LIKE '%lq_claim%'")
    assert owners.fetchone() == (2,)


def test_a_type_cannot_smuggle_syntax(conn: Conn) -> None:
    conn.execute("CREATE TABLE victim (id int)")
    for kind in (
        "text); DROP TABLE victim; --",
        "text DEFAULT now()",
        "nosuchtype",
        "text -- x",
        "numeric(18,2",
        "",
        "text, y text",
    ):
        with pytest.raises(BadInput):
            schema.create(conn, "orders", columns=[ColumnSpec("x", kind)])
    assert tables(conn) == {"victim"}


@pytest.mark.parametrize(
    "kind", ["numeric(18,2)", "varchar(10)", "timestamp with time zone", "text[]", "double precision", "jsonb"]
)
def test_types_the_server_knows(conn: Conn, kind: str) -> None:
    schema.create(conn, "orders", columns=[ColumnSpec("x", kind)])
    assert schema.create(conn, "orders", columns=[ColumnSpec("x", kind)]).ok


@pytest.mark.parametrize("name", ["state", "lease_token", "id", "attempt"])
def test_lease_columns_are_not_the_users(conn: Conn, name: str) -> None:
    with pytest.raises(BadInput, match="lease column"):
        schema.create(conn, "orders", columns=[ColumnSpec(name, "text")])


def test_no_schema_is_made_by_a_typo(conn: Conn) -> None:
    with pytest.raises(TableMissing, match="schema 'pubilc' does not exist"):
        schema.create(conn, "orders", "pubilc")


def test_no_right_to_create_says_what_to_grant(conn: Conn, pg: Any, db: str) -> None:
    conn.execute("CREATE ROLE plain LOGIN")
    try:
        schema.create(conn, "installs_the_control_schema")
        conn.execute("GRANT USAGE ON SCHEMA leasequeue TO plain")
        conn.execute("GRANT SELECT ON leasequeue.schema_version TO plain")
        conn.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        with (
            psycopg.connect(pg.dsn(db, "plain"), autocommit=True) as other,
            pytest.raises(TableMissing, match="GRANT CREATE ON SCHEMA"),
        ):
            schema.create(other, "orders")
    finally:
        conn.execute("DROP OWNED BY plain")
        conn.execute("DROP ROLE plain")


def test_created_at_once_by_many(dsn: str) -> None:
    def make(_: int) -> bool:
        with psycopg.connect(dsn, autocommit=True) as conn:
            return schema.create(conn, "orders", columns=AMOUNT).ok

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(make, range(4))) == [True] * 4


def test_refused_inside_a_transaction(conn: Conn) -> None:
    with conn.transaction(), pytest.raises(BadInput, match="autocommit connection outside a transaction"):
        schema.create(conn, "orders")


def test_rows_without_an_owner_or_in_no_known_state_are_refused_by_the_table(conn: Conn) -> None:
    schema.create(conn, "orders")
    for wrong in (
        "state = 'pending'",
        "state = 'PENDING '",
        "state = 'ASSIGNED'",
        "state = 'ASSIGNED', leased_by = 'w'",
        "priority = -2147483648",
    ):
        conn.execute("INSERT INTO orders DEFAULT VALUES")
        with pytest.raises(psycopg.errors.CheckViolation):
            conn.execute(sql.SQL("UPDATE orders SET ") + sql.SQL(wrong))
