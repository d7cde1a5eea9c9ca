"""Values given to enqueue: exact, or refused by row and column."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasequeue import BadInput, Table
from leasequeue.encode import MAX_SHAPES, RowEncoder, encoder_of
from leasequeue.table import LEASE_COLUMNS

TABLE = Table(1, "public", "orders", {**dict.fromkeys(LEASE_COLUMNS, "text"), "id": "uuid", "amount": "numeric(18,2)"})


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("numeric(18,2)", Decimal("1.10"), "1.10"),
        ("numeric(18,2)", "100000000.01", "100000000.01"),
        ("numeric(18,2)", Decimal("1.1000"), "1.1000"),
        ("numeric(18,2)", Decimal("1E+3"), "1000"),
        ("numeric(18,2)", 5.0, "5"),
        ("numeric", "100000000.00000001", "100000000.00000001"),
        ("numeric(5,-2)", 1200, "1200"),
        ("bigint", 9007199254740993, "9007199254740993"),
        ("bigint", "9007199254740993", "9007199254740993"),
        ("smallint", -32768, "-32768"),
        ("text", 'quote " and \\', 'quote " and \\'),
        ("character varying(10)", "Ünï", "Ünï"),
        ("uuid", "{0188f0f4-7d9e-7000-8000-000000000001}", "0188f0f47d9e70008000000000000001"),
        ("uuid", UUID(int=1), "00000000000000000000000000000001"),
        ("boolean", True, "true"),
        ("bytea", b"\x00\xff", "\\x00ff"),
        ("timestamp with time zone", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00"),
        ("jsonb", {"a": [1, None]}, '{"a": [1, null]}'),
        ("jsonb", "a", '"a"'),
        ("text[]", ["a", 'b"\\', None], '{"a","b\\"\\\\",NULL}'),
        ("integer[]", [[1, 2], [3, 4]], '{{"1","2"},{"3","4"}}'),
        ("text[]", "{a,b}", "{a,b}"),
        ("date", "2026-01-31", "2026-01-31"),
        ("date", date(2026, 1, 31), "2026-01-31"),
        ("interval", timedelta(seconds=90), "90.0 s"),
        ("double precision", 0.1, "0.1"),
    ],
)
def test_values_that_fit(kind: str, value: Any, text: str) -> None:
    assert encoder_of(kind)(value) == text


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("numeric(18,2)", 1.1, "float is not exact"),
        ("numeric(18,2)", "1.005", "more than 2 digits"),
        ("numeric", Decimal("NaN"), "NaN and Infinity are refused"),  # B31
        ("numeric", "Infinity", "NaN and Infinity are refused"),
        ("numeric", float("inf"), "not exact"),
        ("numeric", True, "must be a Decimal"),
        ("numeric", "1,5", "plain digits"),
        ("integer", 2**31, "from -2147483648 to 2147483647"),
        ("integer", 1.0, "whole number"),
        ("integer", True, "whole number"),
        ("integer", "٣", "whole number"),
        ("integer", "1e3", "whole number"),
        ("text", 5, "must be text"),
        ("text", "a\0b", "NUL"),
        ("text", "\ud800", "surrogate"),
        ("jsonb", {"a": "\0"}, "NUL"),
        ("jsonb", float("nan"), "JSON"),
        ("uuid", "nope", "must be a uuid"),
        ("timestamp with time zone", "2026-01-31T12:00:00", "offset"),
        ("timestamp with time zone", datetime(2026, 1, 31), "offset"),
        ("timestamp with time zone", "infinity", "ISO 8601"),
        ("timestamp with time zone", "tomorrow", "ISO 8601"),
        ("boolean", 1, "true or false"),
        ("double precision", float("nan"), "NaN"),
        ("bytea", "xyz", "bytes"),
    ],
)
def test_values_that_do_not(kind: str, value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        encoder_of(kind)(value)


def test_the_text_of_a_backslash_is_no_nul() -> None:
    assert json.loads(encoder_of("jsonb")("\\u0000")) == "\\u0000"


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_no_digit_is_lost(value: Decimal) -> None:
    assert Decimal(encoder_of("numeric")(value)) == value
    assert Decimal(encoder_of("jsonb")({"v": value})[5:-1].strip()) == value


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=9)), timezone(timedelta(hours=-5))])))
def test_no_instant_is_moved(value: datetime) -> None:
    assert datetime.fromisoformat(encoder_of("timestamp with time zone")(value)) == value


def test_a_row_names_its_columns_and_keeps_nulls() -> None:
    shape, texts = RowEncoder(TABLE).encode({"lane": None, "amount": "1.10", "id": UUID(int=1)}, 1, "row {}".format)
    assert shape.columns == ("amount", "id", "lane")
    assert texts == ["1.10", "00000000000000000000000000000001", None]
    assert shape.json(texts) == '{"amount":"1.10","id":"00000000000000000000000000000001","lane":null}'


def test_the_order_of_a_rows_keys_is_no_other_shape() -> None:
    encoder = RowEncoder(TABLE)
    first, _ = encoder.encode({"lane": "x", "amount": 1}, 1, "row {}".format)
    second, texts = encoder.encode({"amount": 2, "lane": "y"}, 2, "row {}".format)
    assert second is first
    assert texts == ["2", "y"]


def test_json_stays_json_in_a_row() -> None:
    table = Table(1, "public", "t", {**dict.fromkeys(LEASE_COLUMNS, "text"), "doc": "jsonb", "lane": "text"})
    shape, texts = RowEncoder(table).encode({"doc": {"a": Decimal("1.10")}, "lane": 'b"'}, 1, "row {}".format)
    assert shape.json(texts) == '{"doc":{"a":1.10},"lane":"b\\""}'


def test_ever_new_sets_of_columns_do_not_fill_the_memory() -> None:
    columns = {f"c{n}": "text" for n in range(MAX_SHAPES + 10)}
    encoder = RowEncoder(Table(1, "public", "t", {**dict.fromkeys(LEASE_COLUMNS, "text"), **columns}))
    for name in columns:
        assert encoder.encode({name: "x"}, 1, "row {}".format)[1] == ["x"]
    assert len(encoder._shapes) <= MAX_SHAPES


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"amont": 1}, r"row 7='amont': is no column of public\.orders; a row may give: .*amount"),
        ({"state": "RESOLVED"}, "row 7='state': is a column of the engine's own"),
        ({"lease_token": "x"}, "engine's own"),
        ({"created_at": "2026-01-31T12:00:00Z"}, "engine's own"),
        ({"amount": 1.1}, r"row 7, column amount=1\.1: a float"),
        ({1: 2}, "row 7=1"),
        (["amount"], "row 7='list': must be an object"),
    ],
)
def test_rows_that_are_refused(row: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        RowEncoder(TABLE).encode(row, 7, "row {}".format)
