"""enqueue: each key once, in order, exact, in the caller's transaction."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import set_json_loads

import leasequeue
from devtools.samples import review_queue
from leasequeue import BadInput, DuplicateKey, LeaseConfig, Table, aio, connect, jsonio, schema
from leasequeue.schema import ColumnSpec

Conn = psycopg.Connection[Any]


@pytest.fixture
def orders(conn: Conn) -> Table:
    schema.create(conn, "orders", columns=[ColumnSpec("amount", "numeric(18,2)"), ColumnSpec("doc", "jsonb")])
    return Table.load(conn, "orders")


def count(conn: Conn, where: str = "true") -> int:
    row = conn.execute(f"SELECT count(*) FROM orders WHERE {where}").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.both_versions
def test_answers_come_in_the_order_given(conn: Conn, orders: Table) -> None:
    first = leasequeue.enqueue(conn, orders, [{"idempotency_key": "b"}])
    rows: list[dict[str, Any]] = [
        {"idempotency_key": "a"},
        {"amount": 1},
        {"idempotency_key": "b"},
        {"idempotency_key": "a"},
        {"idempotency_key": "c"},
    ]
    answers = leasequeue.enqueue(conn, orders, rows)
    assert [answer.created for answer in answers] == [True, True, False, False, True]
    assert answers[2].id == first[0].id
    assert answers[3].id == answers[0].id
    keys = dict(conn.execute("SELECT id, idempotency_key FROM orders").fetchall())
    assert [keys[answer.id] for answer in answers] == ["a", None, "b", "a", "c"]


@pytest.mark.both_versions
def test_created_at_rises_strictly_in_the_order_given(conn: Conn, orders: Table) -> None:
    rows: list[dict[str, Any]] = [{"amount": n, **({"lane": "x"} if n % 3 == 0 else {})} for n in range(500)]
    leasequeue.enqueue(conn, orders, rows)
    leasequeue.enqueue(conn, orders, [{"amount": 500}])
    stored = conn.execute("SELECT amount::int, created_at FROM orders ORDER BY created_at").fetchall()
    assert [amount for amount, _ in stored] == list(range(501))
    assert len({at for _, at in stored}) == 501
    assert count(conn, "created_at > clock_timestamp()") == 0


def test_claim_order_is_enqueue_order(conn: Conn, orders: Table) -> None:
    ids = [answer.id for answer in leasequeue.enqueue(conn, orders, [{}] * 50)]
    claimed = leasequeue.claim(conn, orders, worker_id="w", n=50, config=LeaseConfig())
    assert [item.id for item in claimed.items] == ids


@pytest.mark.both_versions
def test_one_key_from_many_at_once_is_one_item(conn: Conn, orders: Table, dsn: str) -> None:
    keys = [f"k{n}" for n in range(20)]
    start = threading.Barrier(6)

    def add(_: int) -> list[leasequeue.Enqueued]:
        with connect(dsn) as mine:
            start.wait(20)
            return [leasequeue.enqueue(mine, orders, [{"idempotency_key": key}])[0] for key in keys]

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(add, range(6)))
    for n in range(len(keys)):
        of_key = [answer[n] for answer in answers]
        assert len({answer.id for answer in of_key}) == 1
        assert Counter(answer.created for answer in of_key) == {True: 1, False: 5}
    assert count(conn) == len(keys)


@pytest.mark.parametrize(("commit", "created"), [(True, False), (False, True)])
def test_a_key_whose_transaction_is_open_is_waited_for(
    conn: Conn, orders: Table, dsn: str, commit: bool, created: bool
) -> None:
    with psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        (theirs,) = leasequeue.enqueue(other, orders, [{"idempotency_key": "k"}])
        ours = pool.submit(leasequeue.enqueue, conn, orders, [{"idempotency_key": "k"}])
        with connect(dsn) as watcher:
            while watcher.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
                assert not ours.done(), "it did not wait for the open transaction"
        if commit:
            other.commit()
        else:
            other.rollback()
        (answer,) = ours.result(30)
    assert answer.created is created
    assert (answer.id == theirs.id) is commit


def test_error_on_duplicate_enqueues_nothing(conn: Conn, orders: Table) -> None:
    (first,) = leasequeue.enqueue(conn, orders, [{"idempotency_key": "k"}])
    with pytest.raises(DuplicateKey, match=f"idempotency_key='k' is held by item {first.id}"):
        leasequeue.enqueue(conn, orders, [{"amount": 1}, {"idempotency_key": "k"}], on_duplicate="error")
    with pytest.raises(DuplicateKey, match="'twice' is held already"):
        leasequeue.enqueue(conn, orders, [{"idempotency_key": "twice"}] * 2, on_duplicate="error")
    assert count(conn) == 1
    with pytest.raises(BadInput, match="skip or error"):
        leasequeue.enqueue(conn, orders, [{}], on_duplicate="ignore")  # type: ignore[arg-type]


def test_another_unique_constraint_is_no_duplicate_key(conn: Conn, orders: Table) -> None:
    conn.execute("CREATE UNIQUE INDEX one_amount ON orders (amount)")
    leasequeue.enqueue(conn, orders, [{"amount": 1}])
    with pytest.raises(psycopg.errors.UniqueViolation, match="one_amount"):
        leasequeue.enqueue(conn, orders, [{"amount": 2}, {"amount": 1}])
    assert count(conn) == 1


def test_the_callers_transaction_decides(conn: Conn, orders: Table, dsn: str) -> None:
    with psycopg.connect(dsn) as other:
        leasequeue.enqueue(other, orders, [{"idempotency_key": "outbox"}])
        assert count(conn) == 0
        other.rollback()
        assert count(conn) == 0
        leasequeue.enqueue(other, orders, [{"idempotency_key": "outbox"}])
        other.commit()
    assert count(conn) == 1


@pytest.mark.both_versions
def test_inside_a_pipeline_of_the_callers(conn: Conn, orders: Table) -> None:
    """psycopg's pipeline sends statements before it knows what became of earlier ones: answers, keys met and refusals stay the same."""
    conn.execute("CREATE TABLE effect (n int PRIMARY KEY)")

    def refused(effect: int, key: str) -> None:
        with conn.pipeline(), conn.transaction():
            conn.execute("INSERT INTO effect VALUES (%s)", [effect])
            leasequeue.enqueue(conn, orders, [{"idempotency_key": key}], on_duplicate="error")

    with conn.pipeline(), conn.transaction():
        conn.execute("INSERT INTO effect VALUES (1)")
        (new,) = leasequeue.enqueue(conn, orders, [{"idempotency_key": "a"}])
    with conn.pipeline(), conn.transaction():
        (met,) = leasequeue.enqueue(conn, orders, [{"idempotency_key": "a"}])
        conn.execute("INSERT INTO effect VALUES (2)")
    assert (new.created, met.created, met.id) == (True, False, new.id)
    with pytest.raises(DuplicateKey):
        refused(3, "a")
    with pytest.raises(psycopg.errors.UniqueViolation):
        refused(1, "b")
    assert count(conn) == 1
    assert conn.execute("SELECT array_agg(n ORDER BY n) FROM effect").fetchone() == ([1, 2],)


# B35
def test_under_a_serializable_default(conn: Conn, orders: Table, dsn: str, db: str) -> None:
    conn.execute(f'ALTER DATABASE "{db}" SET default_transaction_isolation = serializable')

    def add(worker: int) -> int:
        with connect(dsn) as mine:
            rows = [{"idempotency_key": f"{worker if n % 2 else 'shared'}-{n}"} for n in range(40)]
            return sum(leasequeue.enqueue(mine, orders, [row])[0].created for row in rows)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(add, range(4))) == count(conn) == 4 * 20 + 20


# B32
@pytest.mark.both_versions
def test_every_digit_arrives(conn: Conn, orders: Table) -> None:
    set_json_loads(jsonio.loads, conn)
    exact = Decimal("100000000.00000000000000000001")
    at = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
    token = uuid4()
    row = {
        "amount": Decimal("9999999999999999.99"),
        "doc": {"exact": exact, "big": 9007199254740993, "at": at, "list": [Decimal("0.10"), None, "ü"]},
        "trace_id": token,
        "source_hash": "h",
        "priority": -5,
    }
    (answer,) = leasequeue.enqueue(conn, orders, [row])
    stored = conn.execute("SELECT amount, doc, trace_id, priority FROM orders WHERE id = %s", [answer.id]).fetchone()
    assert stored == (
        Decimal("9999999999999999.99"),
        {"exact": exact, "big": 9007199254740993, "at": at.isoformat(), "list": [Decimal("0.10"), None, "ü"]},
        token,
        -5,
    )


def test_keys_beyond_floats(conn: Conn) -> None:
    conn.execute("CREATE TABLE jobs (id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'PENDING', leased_by text)")
    schema.adopt(conn, "jobs")
    (answer,) = leasequeue.enqueue(conn, Table.load(conn, "jobs"), [{"id": 9007199254740993}])
    assert answer.id == 9007199254740993


def test_a_run_at_of_the_future_is_scheduled(conn: Conn, orders: Table) -> None:
    now = datetime.now(UTC)
    rows: list[dict[str, Any]] = [{"run_at": now + timedelta(hours=1)}, {"run_at": now - timedelta(hours=1)}, {}]
    answers = leasequeue.enqueue(conn, orders, rows)
    states: dict[UUID, str] = dict(conn.execute("SELECT id, state FROM orders").fetchall())
    assert [states[answer.id] for answer in answers] == ["SCHEDULED", "PENDING", "PENDING"]


# B31, and everything else a row may not be: nothing of the call is stored
@pytest.mark.parametrize(
    "bad",
    [
        {"amount": Decimal("NaN")},
        {"amount": 0.1},
        {"amount": "1.001"},
        {"state": "RESOLVED"},
        {"nope": 1},
        {"run_at": "2026-01-01T00:00:00"},
        {"doc": "\0"},
    ],
)
def test_one_bad_row_refuses_the_call(conn: Conn, orders: Table, bad: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="row 2"):
        leasequeue.enqueue(conn, orders, [{"amount": 1}, bad])
    assert count(conn) == 0


def test_data_that_the_database_refuses(conn: Conn, orders: Table) -> None:
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        leasequeue.enqueue(conn, orders, [{"amount": 1}, {"amount": 10**17}])
    assert count(conn) == 0
    assert leasequeue.enqueue(conn, orders, [{}])[0].created, "the connection is usable afterwards"


def test_at_most_ten_thousand(conn: Conn, orders: Table) -> None:
    with pytest.raises(BadInput, match="enqueue_many"):
        leasequeue.enqueue(conn, orders, [{}] * 10_001)
    assert leasequeue.enqueue(conn, orders, []) == []


def test_one_notification_a_call(conn: Conn, orders: Table, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as listener:
        listener.execute(f"LISTEN {orders.channel}")
        leasequeue.enqueue(conn, orders, [{"idempotency_key": "a"}, {}, {"lane": "x"}])
        leasequeue.enqueue(conn, orders, [{"idempotency_key": "a"}])  # nothing new
        leasequeue.enqueue(conn, orders, [{}], notify=False)
        heard = list(listener.notifies(timeout=1.0))
    assert [notify.channel for notify in heard] == [orders.channel]


def test_a_trigger_that_swallows_rows_is_told(conn: Conn, orders: Table) -> None:
    conn.execute("CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    conn.execute("CREATE TRIGGER swallow BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION swallow()")
    with pytest.raises(leasequeue.LeaseQueueError, match="trigger"):
        leasequeue.enqueue(conn, orders, [{}])


@pytest.mark.both_versions
def test_into_the_published_review_queue(conn: Conn) -> None:
    review_queue(conn)
    schema.adopt(conn, "review_queue_item")
    table = Table.load(conn, "review_queue_item")
    row = {
        "idempotency_key": "k",
        "ledger_entity": "e",
        "variance_amount": "10.10",
        "match_decision": "PARTIAL",
        "source_hash": "h",
    }
    assert leasequeue.enqueue(conn, table, [row])[0].created
    with pytest.raises(psycopg.errors.NotNullViolation, match="ledger_entity"):
        leasequeue.enqueue(
            conn, table, [{"idempotency_key": "k2", "variance_amount": 1, "match_decision": "x", "source_hash": "h"}]
        )


async def test_async_is_the_same(conn: Conn, orders: Table, dsn: str) -> None:
    async with await leasequeue.aconnect(dsn) as aconn:
        answers = await aio.enqueue(aconn, orders, [{"idempotency_key": "a"}, {"idempotency_key": "a"}])
        assert [answer.created for answer in answers] == [True, False]
        with pytest.raises(DuplicateKey):
            await aio.enqueue(aconn, orders, [{"idempotency_key": "a"}], on_duplicate="error")
    assert count(conn) == 1


def test_an_acknowledged_enqueue_survives_kill9(durable_server: Any) -> None:
    durable_server.create_database("durable_enqueue")
    try:
        with connect(durable_server.dsn("durable_enqueue")) as conn:
            schema.create(conn, "orders")
            orders = Table.load(conn, "orders")
            acknowledged = [leasequeue.enqueue(conn, orders, [{"idempotency_key": f"k{n}"}])[0].id for n in range(25)]
            durable_server.kill9()
        durable_server.start()
        with connect(durable_server.dsn("durable_enqueue")) as conn:
            assert {row[0] for row in conn.execute("SELECT id FROM orders")} == set(acknowledged)
    finally:
        durable_server.start()
        durable_server.drop_database("durable_enqueue")
