"""Transactions in one packet: the same answers and errors as psycopg's, and a connection that is either clean or closed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors

import leasequeue
from leasequeue.dsn import connect
from leasequeue.fence import Completion, Settlement
from leasequeue.item import text_leases
from leasequeue.run import Batch, Operation, Query, keep_limits, one, run
from leasequeue.schema import create
from leasequeue.states import Outcome
from leasequeue.table import Table
from leasequeue.wire import MOST_PREPARED, Wire, numbered_text

Conn = psycopg.Connection[Any]
VALUES = (
    "SELECT 1.50::numeric AS amount, 'a5a5a5a5-0000-4000-8000-000000000001'::uuid AS id, '{\"n\": 0.1}'::jsonb AS body, true AS yes, \
'2026-01-31T12:00:00+02'::timestamptz AS at, 'infinity'::timestamptz AS never, NULL::int AS nothing, 'text'::text AS word"
)
EXPECTED = {
    "amount": Decimal("1.50"),
    "id": UUID("a5a5a5a5-0000-4000-8000-000000000001"),
    "body": {"n": Decimal("0.1")},
    "yes": True,
    "at": datetime(2026, 1, 31, 10, tzinfo=UTC),
    "never": datetime.max.replace(tzinfo=UTC),
    "nothing": None,
    "word": "text",
}


@pytest.fixture
def conn(dsn: str) -> Iterator[Conn]:
    with connect(dsn) as conn:
        yield conn


@pytest.fixture
def wire(conn: Conn) -> Wire:
    return Wire(conn)


def test_placeholders_become_numbers() -> None:
    text = "SELECT %(b)s::int, %(a)s::text LIKE '%%', %(b)s::int"
    assert numbered_text(text) == ("SELECT $1::int, $2::text LIKE '%', $1::int", ("b", "a"))


def test_parameters_arrive_as_they_were_given(wire: Wire) -> None:
    query = Query(
        "SELECT %(n)s::bigint, %(none)s::int, %(text)s::text, %(yes)s::boolean, %(list)s::text[]",
        {"n": 2**40, "none": None, "text": "ä \\ \" '", "yes": True, "list": ["a,b", None, '"', "\\"]},
    )
    (found,) = wire.ask([query])
    assert found.rows == [(2**40, None, "ä \\ \" '", True, ["a,b", None, '"', "\\"])]


def test_text_with_a_nul_is_refused_before_anything_is_sent(wire: Wire, conn: Conn) -> None:
    with pytest.raises(psycopg.DataError):
        wire.ask([Query("SELECT %(a)s::text", {"a": "x\0y"})], before="BEGIN")
    assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize("raw", [False, True])
def test_values_are_psycopgs_own(wire: Wire, raw: bool) -> None:
    (found,) = wire.ask([Query(VALUES, None, raw)])
    (row,) = found.rows
    if raw:
        assert found.codec is not None
        assert row[0] == "1.50", "left as the server sent it"
        row = tuple(found.codec.value(position, cell) for position, cell in enumerate(row))
    assert dict(zip(found.names, row, strict=True)) == EXPECTED


def test_a_refused_statement_raises_its_error_and_the_rest_is_not_run(wire: Wire, conn: Conn) -> None:
    with pytest.raises(errors.DivisionByZero):
        wire.ask(
            [Query("SELECT 1 / %(n)s::int", {"n": 0}), Query("SELECT pg_notify('never', '')", None)],
            before="BEGIN",
            after="COMMIT",
        )
    assert conn.info.transaction_status is psycopg.pq.TransactionStatus.INERROR
    conn.execute("ROLLBACK")
    wire.forget()
    assert wire.ask([Query("SELECT 1 / %(n)s::int", {"n": 1})])[0].scalar == 1


def test_statements_that_somebody_deallocated_are_prepared_again(dsn: str) -> None:
    with connect(dsn) as conn:
        keep_limits(conn)

        def flow() -> Any:
            return (yield Operation(lambda: one(Query("SELECT 7", None))))

        assert run(conn, flow()).scalar == 7
        conn.execute("DEALLOCATE ALL")
        assert run(conn, flow()).scalar == 7


def test_an_unknown_column_is_told_and_costs_nothing(wire: Wire, conn: Conn) -> None:
    with pytest.raises(errors.UndefinedColumn):
        wire.ask([Query("SELECT nowhere", None)])
    assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_connection_that_ends_is_closed_and_says_why(wire: Wire, conn: Conn, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [conn.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        wire.ask([Query("SELECT 1", None)])
    assert conn.closed


def test_a_commit_that_is_refused_leaves_the_connection_usable(wire: Wire, conn: Conn) -> None:
    conn.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    conn.execute("CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    insert = Query("INSERT INTO child VALUES (1) RETURNING id", None)
    with pytest.raises(errors.ForeignKeyViolation):
        wire.ask([insert], before="BEGIN", after="COMMIT")
    with pytest.raises(errors.ForeignKeyViolation):
        wire.ask([insert])
    assert wire.ask([Query("SELECT count(*) FROM child", None)])[0].scalar == 0


def test_statements_of_many_forms_do_not_pile_up(wire: Wire, conn: Conn) -> None:
    for n in range(MOST_PREPARED + 5):
        assert wire.ask([Query(f"SELECT {n}", None)])[0].scalar == n
    (count,) = conn.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'lq%'").fetchone() or (0,)
    assert 0 < count <= MOST_PREPARED


def test_a_transaction_of_two_batches_is_one_transaction(dsn: str) -> None:
    with connect(dsn) as conn:
        keep_limits(conn)

        def steps() -> Any:
            (first,) = yield Batch((Query("SELECT pg_current_xact_id()::text", None),))
            (second,) = yield Batch((Query("SELECT pg_current_xact_id()::text", None),), last=True)
            return first.scalar, second.scalar

        def flow() -> Any:
            return (yield Operation(steps))

        first, second = run(conn, flow())
        assert first == second
        assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


def test_a_claim_on_it_is_committed_and_its_items_read_like_any_others(conn: Conn, dsn: str) -> None:
    create(
        conn,
        "work",
        columns=[leasequeue.schema.ColumnSpec.parse("amount:numeric(18,2)"), leasequeue.schema.ColumnSpec.parse("body:jsonb")],
    )
    conn.execute("""INSERT INTO work (idempotency_key, amount, body, priority) SELECT 'k' || n, n + 0.10, '{"a": 0.1}', n % 3
                      FROM generate_series(1, 9) AS n""")
    table, config = Table.load(conn, "work"), leasequeue.LeaseConfig()
    with connect(dsn) as kept:
        keep_limits(kept, durable=False, one_plan=True)
        leasequeue.register(conn, table, "w")
        ours = leasequeue.claim(kept, table, worker_id="w", n=9, config=config, registered=True).items
    stored = {
        row[0]: row
        for row in conn.execute("SELECT id, amount, body, priority, leased_at, lease_token FROM work WHERE leased_by = 'w'")
    }
    assert set(stored) == {item.id for item in ours}, "committed"
    assert [(item.id, item["amount"], item["body"], item.priority, item.leased_at, item.lease_token) for item in ours] == [
        stored[item.id] for item in ours
    ]
    assert [item.priority for item in ours] == [2, 2, 2, 1, 1, 1, 0, 0, 0]
    assert [item.created_at for item in ours[:3]] == sorted(item.created_at for item in ours[:3])
    assert ours[0].as_dict()["body"] is ours[0]["body"], "decoded once: a handler may change it in place"


def test_a_connection_in_another_encoding_goes_the_long_way(conn: Conn, dsn: str) -> None:
    create(conn, "work")
    conn.execute("INSERT INTO work (idempotency_key) VALUES ('ä')")
    table = Table.load(conn, "work")
    with connect(dsn + " client_encoding=latin1") as other:
        keep_limits(other, durable=False, one_plan=True)
        (item,) = leasequeue.claim(other, table, worker_id="w", n=1, config=leasequeue.LeaseConfig()).items
    assert item.idempotency_key == "ä"


@pytest.mark.parametrize("id_type", ["uuid", "bigint", "text"])
@pytest.mark.parametrize("keep", [True, False])
def test_leases_in_text_are_told_by_the_text_of_their_id(conn: Conn, dsn: str, id_type: str, keep: bool) -> None:
    create(conn, "work", id_type=id_type)
    key = {"uuid": "gen_random_uuid()", "bigint": "n * 7", "text": "'id, \"' || n"}[id_type]
    conn.execute(
        f"INSERT INTO work (id, idempotency_key) OVERRIDING SYSTEM VALUE SELECT {key}, 'k' || n FROM generate_series(1, 12) AS n"
    )
    table, config = Table.load(conn, "work"), leasequeue.LeaseConfig()
    with connect(dsn) as ours:
        if keep:
            keep_limits(ours)
        items = leasequeue.claim(ours, table, worker_id="w", n=12, config=config).items
        leases = text_leases(items)
        assert [lease.id for lease in leases] == [str(item.id) for item in items]
        assert [item.idempotency_key for item in items] == [f"k{n}" for n in range(1, 13)]
        conn.execute("UPDATE work SET lease_token = gen_random_uuid() WHERE id = %s", [items[0].id])
        renewed = leasequeue.renew(ours, table, leases, config=config)
        assert [renewed[lease.id] for lease in leases] == [Outcome.LOST] + 11 * [Outcome.RENEWED]
        settled = leasequeue.settle(ours, table, [Settlement(leases[1], "RELEASE"), Settlement(leases[0], "RELEASE")])
        assert settled == {leases[1].id: Outcome.RELEASED, leases[0].id: Outcome.LOST}
        for expected in (Outcome.RESOLVED, Outcome.ALREADY_RESOLVED):
            resolved = leasequeue.resolve(ours, table, [Completion(lease) for lease in (leases[0], *leases[2:])])
            assert resolved == {leases[0].id: Outcome.LOST, **{lease.id: expected for lease in leases[2:]}}
        assert leasequeue.release_unheld(ours, table, worker_id="w", held_tokens=[leases[0].token]) == 1


@pytest.mark.parametrize("in_text", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_ids_of_any_text_are_told_apart_when_a_batch_is_partly_lost(conn: Conn, dsn: str, keep: bool, in_text: bool) -> None:
    """They come as one array: what its text form quotes and escapes is theirs again."""
    ids = ["", "NULL", "null", "a,b", '"', "\\", "{}", '{a,"b\\', "ä", " x ", "'", "line\nend"]
    create(conn, "work", id_type="text")
    for item_id in ids:
        conn.execute("INSERT INTO work (id, idempotency_key) VALUES (%s, %s)", [item_id, f"key {item_id}"])
    table, config = Table.load(conn, "work"), leasequeue.LeaseConfig()
    with connect(dsn) as ours:
        if keep:
            keep_limits(ours)
        items = leasequeue.claim(ours, table, worker_id="w", n=len(ids), config=config).items
        leases = list(text_leases(items)) if in_text else [item.lease for item in items]
        conn.execute("UPDATE work SET lease_token = gen_random_uuid() WHERE id = ANY (%s)", [["", "a,b"]])
        resolved = leasequeue.resolve(ours, table, [Completion(lease) for lease in leases])
    assert resolved == {item_id: Outcome.LOST if item_id in ("", "a,b") else Outcome.RESOLVED for item_id in ids}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata"])
def test_order_is_that_of_instants_whatever_the_sessions_zone(conn: Conn, dsn: str, zone: str) -> None:
    """Left as text, times of the hour that Berlin has twice would sort by their wall clocks."""
    create(conn, "work")
    conn.execute("""INSERT INTO work (idempotency_key, created_at)
                    SELECT 'k' || n, '2025-10-26 00:10:00+00'::timestamptz + n * interval '7 minutes 500 milliseconds' FROM generate_series(1, 20) AS n""")
    table = Table.load(conn, "work")
    with connect(dsn) as ours:
        ours.execute("SELECT set_config('TimeZone', %s, false)", [zone])
        keep_limits(ours, durable=False, one_plan=True)
        items = leasequeue.claim(ours, table, worker_id="w", n=20, config=leasequeue.LeaseConfig()).items
    assert [item.idempotency_key for item in items] == [f"k{n}" for n in range(1, 21)]
