"""Any key type, any name, any stored value: none makes a claim fail, and none changes on its way through."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from leasequeue import BadInput, Completion, NotAdopted, Outcome, Settlement, Table, TableMissing, schema
from tests.postgres.engine.conftest import MakeQueue, OpenClient
from tests.postgres.engine.support import Client, add, expire, name_of, row, states

Conn = psycopg.Connection[Any]


def whole_life(admin: Conn, client: Client) -> None:
    """Every statement of the engine once, on a queue with four rows."""
    one, two, three, four = client.claim(4)
    assert client.renew(one.lease, two.lease) == [Outcome.RENEWED] * 2
    assert client.resolve(one.lease, result={"a": 1}) == [Outcome.RESOLVED]
    assert client.resolve(one.lease) == [Outcome.ALREADY_RESOLVED]
    assert client.call("lease_outcome", one.lease) == Outcome.RESOLVED
    client.call("settle", [Settlement(two.lease, "RETRY", 60.0, "later")])
    assert client.call("release_unheld", worker_id=client.worker_id, held_tokens=[three.lease.token]) == 1
    expire(admin, client.table)
    assert [r.id for r in client.reclaim()] == [three.id]
    assert {item.id for item in client.claim(4)} == {three.id, four.id}
    client.call("register", client.worker_id, pod_uid="p", pod_name="p", slots=1)
    assert client.call("held_by_pods", ["p"]) == {"p": 2}
    assert client.call("stats").assigned == 2
    assert (client.call("promote"), client.call("defer"), client.call("prune", older_than_s=1)) == (0, 0, 0)
    assert states(admin, client.table) == {"ASSIGNED": 2, "RESOLVED": 1, "SCHEDULED": 1}


@pytest.mark.both_versions
@pytest.mark.parametrize("id_type", ["uuid", "bigint", "text"])
@pytest.mark.parametrize("strict_lanes", [False, True])
def test_key_types(
    admin: Conn, make_queue: MakeQueue, open_client: OpenClient, settled_server: None, id_type: str, strict_lanes: bool
) -> None:
    table = make_queue(id_type=id_type, strict_lanes=strict_lanes)
    columns = {"id": lambda i: f"item {i} 'quoted' \\ {{}} %s"} if id_type == "text" else {}
    ids = add(admin, table, 4, **columns)
    assert isinstance(ids[0], {"uuid": UUID, "bigint": int, "text": str}[id_type])
    whole_life(admin, open_client(table, strict_lanes=strict_lanes))


@pytest.mark.parametrize("id_type", ["integer", "smallint"])
def test_key_types_of_adopted_tables(
    admin: Conn, open_client: OpenClient, settled_server: None, id_type: str, request: pytest.FixtureRequest
) -> None:
    name = f"adopted_{id_type}_{uuid4().hex[:6]}"
    admin.execute(f"CREATE TABLE {name} (id {id_type} GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text, leased_by text)")
    request.addfinalizer(lambda: admin.closed or admin.execute(f"DROP TABLE {name}"))
    schema.adopt(admin, name)
    table = Table.load(admin, name)
    add(admin, table, 4)
    whole_life(admin, open_client(table))


NAMES = [
    'Quo"ted',
    "select",
    "ünïcödé ☃",
    "percent % %s %(n)s %%",
    "braces {table} {id_type} {n} {targets}",
    "semi; DROP TABLE x; --",
    "back\\slash 'quote'",
    "x" * 63,
    "trailing space ",
    "new\nline",
]


@pytest.mark.parametrize("name", NAMES)
def test_odd_table_names(admin: Conn, make_queue: MakeQueue, open_client: OpenClient, settled_server: None, name: str) -> None:
    table = make_queue(name)
    add(admin, table, 4)
    try:
        whole_life(admin, open_client(table))
    except psycopg.Error as ex:
        pytest.fail(f"the name was mangled: {ex}")


@pytest.mark.parametrize("name", NAMES)
def test_odd_column_names(admin: Conn, make_queue: MakeQueue, open_client: OpenClient, name: str) -> None:
    table = make_queue(columns=[schema.ColumnSpec(name, "text"), schema.ColumnSpec("braces {sources} {table}", "text")])
    add(admin, table)
    client = open_client(table)
    (item,) = client.claim()
    columns = {name: "stored", "braces {sources} {table}": "too"}
    assert client.call("resolve", Completion(item.lease, columns=columns)) == {item.id: Outcome.RESOLVED}
    assert row(admin, table, item.id)[name] == "stored"


def test_schema_and_case_are_exact(admin: Conn, open_client: OpenClient, settled_server: None) -> None:
    """B01, B02: no search_path, no case folding."""
    odd = f'Sche"ma {uuid4().hex[:6]}'
    admin.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(odd)))
    schema.create(admin, "Orders", odd)
    table = Table.load(admin, "Orders", odd)
    add(admin, table, 4)
    client = open_client(table)
    client.driver.execute("SET search_path = nowhere")
    whole_life(admin, client)
    for wrong in ("orders", "ORDERS", f"{odd}.Orders"):
        with pytest.raises(TableMissing):
            Table.load(admin, wrong, odd)
    admin.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(odd)))


@pytest.mark.parametrize("name", ["x" * 64, "ü" * 32, "", "a\0b"])
def test_names_that_postgresql_would_cut_are_refused(kind: str, client: Client, name: str) -> None:
    with pytest.raises(BadInput):
        client.driver.load(name, "public")


@pytest.mark.parametrize("kind_of", ["VIEW", "MATERIALIZED VIEW"])
def test_views_are_refused(admin: Conn, table: Table, client: Client, kind_of: str) -> None:
    admin.execute(f"CREATE {kind_of} seen AS SELECT * FROM {name_of(table)}")
    with pytest.raises(NotAdopted, match="view"):
        client.driver.load("seen", "public")
    admin.execute(f"DROP {kind_of} seen")


class TestStoredValues:
    """A value that cannot be decoded would fail the claim after its commit, and so lease the whole batch for nothing, for ever."""

    @pytest.fixture
    def wide(self, admin: Conn, make_queue: MakeQueue) -> Table:
        types = {
            "n": "numeric", "span": "interval", "days": "date", "naive": "timestamp", "times": "timestamptz[]",
            "period": "tstzrange", "bytes": "bytea", "time_tz": "timetz", "doc": "json", "docb": "jsonb", "address": "inet",
            "bits": "varbit", "point": "point", "name": "text",
        }  # fmt: skip
        return make_queue(columns=[schema.ColumnSpec(name, kind) for name, kind in types.items()])

    ODD = {
        "n": ["NaN", "Infinity", "-Infinity", "1e1000", "0." + "0" * 1000 + "1", "9" * 5000],
        "span": ["1000000 years", "-178000000 years", "1 mon -1 day 00:00:00.000001"],
        "days": ["infinity", "-infinity", "4714-11-24 BC", "5874897-12-31"],
        "naive": ["infinity", "-infinity", "294276-12-31 23:59:59"],
        "times": ["{infinity,-infinity,2025-01-01Z}", "{NULL}", "{}", "{0044-03-15 BC}"],
        "period": ["[-infinity,infinity]", "empty", "[2025-01-01Z,)", "[0044-03-15 BC,2025-01-01Z)"],
        "bytes": ["\\x00ff", ""],
        "time_tz": ["24:00:00+00", "23:59:59.999999-15:59"],
        "doc": ['{"a": 1, "a": 2}', '"\\u0000"', '{"n": ' + "9" * 5000 + "}", "[" * 3000 + "]" * 3000, "1e400"],
        "docb": ['{"n": ' + "9" * 5000 + "}", "[" * 3000 + "]" * 3000, "1e400", '"\\ud83d\\ude00"', "null"],
        "address": ["::1/128", "10.0.0.0/8", "10.1.2.3/8"],
        "bits": ["", "1010"],
        "point": ["(NaN,Infinity)"],
        "name": ["", " ", "\u0001", "a" * 100_000],
    }  # fmt: skip

    @pytest.mark.both_versions
    @pytest.mark.parametrize("column", ODD)
    def test_no_value_fails_a_claim(self, admin: Conn, wide: Table, open_client: OpenClient, column: str) -> None:
        values = self.ODD[column]
        odd = add(admin, wide, len(values), **{column: lambda i: values[i]})
        plain = add(admin, wide, 2)
        client = open_client(wide)
        try:
            items = client.claim(50)
        except Exception as ex:
            items = [ex]  # type: ignore[list-item]
        assert [getattr(item, "id", item) for item in items] == odd + plain
        assert set(client.resolve(*[item.lease for item in items])) == {Outcome.RESOLVED}

    def test_money_is_decimal_from_column_to_column(self, admin: Conn, table: Table, client: Client) -> None:
        """B32: the digits that come are the digits that go, in numeric columns and in JSON."""
        payload = '{"id": 9007199254740993, "amount": 100000000.00000001, "list": [0.10, 1e-20]}'
        add(admin, table, amount=Decimal("100000000.01"), payload=payload)
        (item,) = client.claim()
        assert item["amount"] == Decimal("100000000.01")
        assert item["payload"]["amount"] == Decimal("100000000.00000001")
        assert isinstance(item["payload"]["amount"], Decimal)
        client.call("resolve", Completion(item.lease, item["payload"], {"payload": item["payload"], "amount": item["amount"]}))
        stored = admin.execute(f"SELECT payload::text, result::text, amount::text FROM {name_of(table)}").fetchone()
        assert (
            json.loads(stored[0], parse_float=Decimal)
            == json.loads(payload, parse_float=Decimal)
            == json.loads(stored[1], parse_float=Decimal)
        )
        assert stored[2] == "100000000.01"

    def test_columns_by_name_in_any_order(self, admin: Conn, table: Table, client: Client) -> None:
        add(admin, table, decision="d", idempotency_key="k", source_hash="h")
        (item,) = client.claim()
        assert (item["decision"], item.idempotency_key, item.source_hash) == ("d", "k", "h")
        assert item.trace_id == row(admin, table, item.id)["trace_id"]
        with pytest.raises(KeyError, match="no column 'nowhere'"):
            item["nowhere"]
