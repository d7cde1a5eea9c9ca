"""enqueue_many: any number of rows through COPY, in bounded memory, all or nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest

import leasequeue
from leasequeue import BadInput, DuplicateKey, Table, aio, connect, load, schema
from leasequeue.bulk import Loaded
from leasequeue.schema import ColumnSpec

Conn = psycopg.Connection[Any]


@pytest.fixture
def orders(conn: Conn) -> Table:
    schema.create(conn, "orders", columns=[ColumnSpec("amount", "numeric(18,2)"), ColumnSpec("doc", "jsonb")])
    return Table.load(conn, "orders")


def rows(n: int, bad_at: int | None = None) -> Iterator[dict[str, Any]]:
    for i in range(n):
        yield {
            "idempotency_key": f"k{i}",
            "amount": Decimal(i) / 100 if i != bad_at else 0.5,
            **({"lane": "x"} if i % 5 == 0 else {}),
        }


def count(conn: Conn) -> int:
    row = conn.execute("SELECT count(*) FROM orders").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.both_versions
def test_in_order_and_exact(conn: Conn, orders: Table) -> None:
    assert leasequeue.enqueue_many(conn, orders, rows(3_000)) == Loaded(3_000, 3_000)
    stored = conn.execute("SELECT idempotency_key, amount, lane FROM orders ORDER BY created_at, id").fetchall()
    assert stored == [(r["idempotency_key"], r["amount"], r.get("lane")) for r in rows(3_000)]
    distinct = conn.execute("SELECT count(DISTINCT created_at), max(created_at) <= clock_timestamp() FROM orders").fetchone()
    assert distinct == (3_000, True)


def test_keys_that_are_there_are_passed_over(conn: Conn, orders: Table) -> None:
    leasequeue.enqueue(conn, orders, [{"idempotency_key": "k1"}, {"idempotency_key": "k7"}])
    twice = [*rows(10), {"idempotency_key": "k3"}]
    assert leasequeue.enqueue_many(conn, orders, twice) == Loaded(11, 8)
    assert count(conn) == 10


def test_error_on_duplicate_loads_nothing(conn: Conn, orders: Table) -> None:
    leasequeue.enqueue(conn, orders, [{"idempotency_key": "k7"}])
    with pytest.raises(DuplicateKey, match="'k7'"):
        leasequeue.enqueue_many(conn, orders, rows(10), on_duplicate="error")
    assert count(conn) == 1


def test_all_or_nothing(conn: Conn, orders: Table) -> None:
    with pytest.raises(BadInput, match=r"row 2901, column amount=0\.5"):
        leasequeue.enqueue_many(conn, orders, rows(3_000, bad_at=2_900))
    assert count(conn) == 0
    assert leasequeue.enqueue_many(conn, orders, rows(5)).created == 5, "the connection is usable afterwards"


def test_an_iterator_that_fails_loads_nothing(conn: Conn, orders: Table) -> None:
    def failing() -> Iterator[dict[str, Any]]:
        yield from rows(100)
        raise OSError("the file's disk is gone")

    with pytest.raises(OSError, match="disk is gone"):
        leasequeue.enqueue_many(conn, orders, failing())
    assert count(conn) == 0
    assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


def test_chunks_keep_what_was_committed(conn: Conn, orders: Table) -> None:
    with pytest.raises(BadInput, match="row 251"):
        leasequeue.enqueue_many(conn, orders, rows(400, bad_at=250), chunk=100)
    assert count(conn) == 200
    seen: list[int] = []
    assert leasequeue.enqueue_many(conn, orders, rows(400), chunk=100, progress=seen.append) == Loaded(400, 200)
    assert seen == [100, 200, 300, 400]


@pytest.mark.parametrize("chunk", [0, -1, 1.5, True])
def test_chunk_bounds(conn: Conn, orders: Table, chunk: Any) -> None:
    with pytest.raises(BadInput, match="chunk"):
        leasequeue.enqueue_many(conn, orders, rows(1), chunk=chunk)


def test_nothing_to_load(conn: Conn, orders: Table) -> None:
    assert leasequeue.enqueue_many(conn, orders, []) == Loaded(0, 0)


def test_progress_is_told_on_the_way(conn: Conn, orders: Table) -> None:
    seen: list[int] = []
    leasequeue.enqueue_many(conn, orders, rows(12_000), progress=seen.append)
    assert seen == [5_000, 10_000, 12_000]


def test_in_the_callers_transaction_twice(conn: Conn, orders: Table, dsn: str) -> None:
    with psycopg.connect(dsn) as other:
        leasequeue.enqueue_many(other, orders, rows(10))
        leasequeue.enqueue_many(other, orders, rows(20))
        assert count(conn) == 0
        other.commit()
    assert count(conn) == 20


def test_one_notification_a_load(conn: Conn, orders: Table, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute(f"LISTEN {orders.channel}")
        leasequeue.enqueue_many(conn, orders, rows(500))
        leasequeue.enqueue_many(conn, orders, rows(500))
        assert len(list(listener.notifies(timeout=1.0))) == 1


async def test_async_is_the_same(conn: Conn, orders: Table, dsn: str) -> None:
    async with await leasequeue.aconnect(dsn) as aconn:
        assert await aio.enqueue_many(aconn, orders, rows(500), chunk=200) == Loaded(500, 500)
        with pytest.raises(BadInput, match="row 11"):
            await aio.enqueue_many(aconn, orders, rows(20, bad_at=10))
        async with await psycopg.AsyncConnection.connect(dsn) as other:
            assert (await aio.enqueue_many(other, orders, rows(600))).created == 100
            assert count(conn) == 500
    assert count(conn) == 600


MEMORY = """
import resource, sys
from leasequeue import Table, connect, enqueue_many
conn = connect(sys.argv[1])
table = Table.load(conn, "orders")
pad = "x" * 100
enqueue_many(conn, table, ({"source_hash": pad} for _ in range(1_000)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
enqueue_many(conn, table, ({"source_hash": pad} for _ in range(int(sys.argv[2]))))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_stays_bounded(orders: Table, conn: Conn, dsn: str) -> None:
    """200,000 rows of 100 bytes are 20 MB of payload alone; held in Python they would be 60 MB and more."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, dsn, "200000"], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 16_000, f"{done.stdout.strip()} KiB more at the end than after a small load"
    assert count(conn) == 201_000


def of(n: int, **more: Any) -> list[dict[str, Any]]:
    return [{"idempotency_key": f"k{i}", "amount": i, **more} for i in range(n)]


@pytest.mark.parametrize("there", [[0], [99], [150, 151], list(range(0, 300, 7)), list(range(300))])
def test_keys_that_are_there_cost_no_other_row(
    conn: Conn, orders: Table, monkeypatch: pytest.MonkeyPatch, there: list[int]
) -> None:
    """Whichever part meets them: the one that streams, one of another shape, or the one after."""
    monkeypatch.setattr(load, "PART_ROWS", 50)
    given = [row if i % 3 else {**row, "lane": "x"} for i, row in enumerate(of(300))]
    leasequeue.enqueue(conn, orders, [{"idempotency_key": f"k{i}", "source_hash": "first"} for i in there])
    twice = [*given, {"idempotency_key": "k5", "amount": 77}]
    assert leasequeue.enqueue_many(conn, orders, twice) == Loaded(301, 300 - len(there))
    stored = conn.execute("SELECT idempotency_key, amount FROM orders WHERE source_hash IS NULL ORDER BY created_at").fetchall()
    assert stored == [(f"k{i}", i) for i in range(300) if i not in there]


def test_a_key_under_way_elsewhere_is_waited_for(conn: Conn, orders: Table, dsn: str) -> None:
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        leasequeue.enqueue(other, orders, [{"idempotency_key": "k5"}])
        ours = pool.submit(leasequeue.enqueue_many, conn, orders, rows(10))
        with connect(dsn) as watcher:
            while watcher.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
                assert not ours.done(), "it did not wait for the open transaction"
        other.commit()
        assert ours.result(30) == Loaded(10, 9)
    assert count(conn) == 10


@pytest.mark.parametrize("how", ["ENABLE ROW LEVEL SECURITY", "rule"])
def test_where_copy_may_not_go_into_the_table(conn: Conn, orders: Table, dsn: str, how: str, db: str) -> None:
    """COPY is refused under row security and passes over rules: the rows take the way round."""
    user = f"loader_{db}"
    conn.execute(f"CREATE ROLE {user}")
    try:
        conn.execute(f'GRANT SELECT, INSERT, UPDATE ON orders TO {user}; GRANT TEMPORARY ON DATABASE "{db}" TO {user}')
        if how == "rule":
            conn.execute("CREATE TABLE seen (key text)")
            conn.execute(f"GRANT INSERT ON seen TO {user}")
            conn.execute("CREATE RULE seen AS ON INSERT TO orders DO ALSO INSERT INTO seen VALUES (NEW.idempotency_key)")
        else:
            conn.execute(f"ALTER TABLE orders {how}")
            conn.execute("CREATE POLICY all_rows ON orders USING (true) WITH CHECK (amount < 1000)")
        with connect(dsn) as mine:
            mine.execute(f"SET ROLE {user}")
            assert leasequeue.enqueue_many(mine, orders, of(10), on_duplicate="error") == Loaded(10, 10)
            if how != "rule":  # ON CONFLICT and rules exclude each other in PostgreSQL itself
                assert leasequeue.enqueue_many(mine, orders, of(20)) == Loaded(20, 10)
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    leasequeue.enqueue_many(mine, orders, [{"amount": 1000}])
        if how == "rule":
            assert conn.execute("SELECT count(*) FROM seen").fetchone() == (10,)
    finally:
        conn.execute(f"DROP OWNED BY {user}; DROP ROLE {user}")


@pytest.mark.parametrize(
    ("bad", "note"),
    [
        ({"amount": 10**17}, "row 124, column amount: '100000000000000000'"),
        ({"amount": 10**17, "lane": "x"}, "row 124, column amount: '100000000000000000'"),
        ({"priority": 2**31 - 1, "amount": None}, "row 124"),
    ],
)
def test_the_row_that_the_database_refuses_is_named(conn: Conn, orders: Table, bad: dict[str, Any], note: str) -> None:
    conn.execute("ALTER TABLE orders ADD CHECK (amount IS NOT NULL)")
    given = [row if i % 3 else {**row, "lane": "y"} for i, row in enumerate(of(300))]
    given[123] = {"idempotency_key": "bad", **bad}
    with pytest.raises((psycopg.errors.DataError, psycopg.errors.IntegrityError)) as caught:
        leasequeue.enqueue_many(conn, orders, given)
    assert caught.value.__notes__ == [note]
    assert count(conn) == 0
    assert leasequeue.enqueue_many(conn, orders, of(5)).created == 5, "the connection is usable afterwards"


def test_every_character_arrives(conn: Conn, orders: Table) -> None:
    texts = ["a\tb", "line\nline", "\r", "\\", "\\N", "\\.", "", "ü€😀", 'q"', "\x01\x7f"]
    given = [{"lane": text, "doc": {"text": text}, "source_hash": None} for text in texts]
    leasequeue.enqueue_many(conn, orders, given)
    stored = conn.execute("SELECT lane, doc->>'text', source_hash FROM orders ORDER BY created_at").fetchall()
    assert stored == [(text, text, None) for text in texts]


def test_arrays_run_at_and_rows_without_columns(conn: Conn, dsn: str) -> None:
    schema.create(conn, "50%s", columns=[ColumnSpec("100%", "text[]")])
    table = Table.load(conn, "50%s")
    now = datetime.now(UTC)
    given: list[dict[str, Any]] = [
        {}, {"run_at": now + timedelta(hours=1)}, {"run_at": None, "lane": "x"}, {"100%": ["a", None, 'b"\\']}
    ]  # fmt: skip
    with pytest.raises(psycopg.errors.NotNullViolation, match="run_at") as caught:
        leasequeue.enqueue_many(conn, table, given)
    assert caught.value.__notes__ == ["row 3"]
    del given[2]
    leasequeue.enqueue(conn, table, [{"idempotency_key": "k", **given[-1]}])
    assert leasequeue.enqueue_many(conn, table, [*given, {"idempotency_key": "k"}]) == Loaded(4, 3)
    stored = conn.execute('SELECT state, "100%" FROM "50%s" ORDER BY created_at').fetchall()
    tags = ["a", None, 'b"\\']
    assert stored == [("PENDING", tags), ("PENDING", None), ("SCHEDULED", None), ("PENDING", tags)]


@pytest.mark.slow
def test_a_million_rows_with_keys_in_bounded_memory(orders: Table, conn: Conn, dsn: str) -> None:
    done = subprocess.run([sys.executable, "-c", MILLION, dsn], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    told, grown = done.stdout.split()
    assert told == "200"
    assert int(grown) < 32_000, f"{grown} KiB more at the end than after a small load"
    assert count(conn) == 1_001_000


MILLION = """
import resource, sys
from leasequeue import Table, connect, enqueue_many
conn = connect(sys.argv[1])
table = Table.load(conn, "orders")
enqueue_many(conn, table, ({"idempotency_key": f"first-{n}"} for n in range(1_000)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
told = []
loaded = enqueue_many(conn, table, ({"idempotency_key": f"k{n}"} for n in range(1_000_000)), progress=told.append)
assert loaded.created == 1_000_000
print(len(set(told)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.both_versions
def test_ids_are_the_tables_own(conn: Conn, orders: Table) -> None:
    """Random uuids are made by the client in the form of the column's default; any other default is the server's affair."""
    (default,) = conn.execute(
        "SELECT column_default FROM information_schema.columns WHERE table_name = 'orders' AND column_name = 'id'"
    ).fetchone() or ("",)
    wanted = {"uuidv7()": 7, "gen_random_uuid()": 4}[default]
    given = UUID(int=7)
    leasequeue.enqueue_many(conn, orders, [*({"amount": n} for n in range(300)), {"id": given, "trace_id": given}])
    made = conn.execute("SELECT id, trace_id FROM orders ORDER BY created_at").fetchall()
    assert made[-1] == (given, given)
    assert len({one for row in made[:-1] for one in row}) == 600
    assert {(one.version, trace.version) for one, trace in made[:-1]} == {(wanted, 4)}
    fixed = UUID("0188f0f4-7d9e-7000-8000-000000000001")
    for column in ("id", "trace_id"):
        conn.execute(f"ALTER TABLE orders ALTER {column} SET DEFAULT '{fixed}'")
    leasequeue.enqueue_many(conn, orders, [{"source_hash": "own"}])
    assert conn.execute("SELECT id, trace_id FROM orders WHERE source_hash = 'own'").fetchone() == (fixed, fixed)


def test_a_role_that_may_not_write_the_id_loads_all_the_same(conn: Conn, orders: Table, dsn: str, db: str) -> None:
    user = f"narrow_{db}"
    conn.execute(f"CREATE ROLE {user}")
    try:
        conn.execute(f"GRANT SELECT, INSERT (amount, state, created_at) ON orders TO {user}")
        with connect(dsn) as mine:
            mine.execute(f"SET ROLE {user}")
            assert leasequeue.enqueue_many(mine, orders, [{"amount": 1}]) == Loaded(1, 1)
    finally:
        conn.execute(f"DROP OWNED BY {user}; DROP ROLE {user}")
