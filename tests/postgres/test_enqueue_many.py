"""enqueue_many: any number of rows through COPY, in bounded memory, all or nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

import leasequeue
from leasequeue import BadInput, DuplicateKey, Table, aio, schema
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
