"""Rows as COPY text: what is escaped, and created_at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from leasequeue import Table
from leasequeue.copytext import Instants, ordered_uuids, random_uuids, written
from leasequeue.encode import RowEncoder
from leasequeue.table import LEASE_COLUMNS

TYPES = {**dict.fromkeys(LEASE_COLUMNS, "text"), "run_at": "timestamp with time zone", "note": "text"}
START = datetime(2026, 1, 31, 23, 59, 59, 999_998, tzinfo=UTC)


def text_of(*rows: dict[str, Any], types: dict[str, str] = TYPES) -> str:
    """COPY text of rows that give the same columns."""
    encoder = RowEncoder(Table(1, "public", "orders", types))
    shape = encoder.shape(tuple(rows[0]), 1, "row {}".format)
    columns = [[row[name] for row in rows] for name in shape.columns]
    return written(shape, columns, range(1, len(rows) + 1), Instants(START))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"lane": "a", "note": "b"}, "a\tb"),
        ({"lane": None, "note": "b"}, "\\N\tb"),
        ({"note": "\\N"}, "\\\\N"),
        ({"lane": "a\tb", "note": "c"}, "a\\tb\tc"),
        ({"note": "a\tb"}, "a\\tb"),
        ({"note": "line\nline\r"}, "line\\nline\\r"),
        ({"note": "\\."}, "\\\\."),
        ({"note": ""}, ""),
    ],
)
def test_what_copy_would_misread_is_escaped(row: dict[str, Any], text: str) -> None:
    assert text_of(row) == f"{text}\tPENDING\t2026-01-31 23:59:59.999999+00\n"


def test_a_row_may_give_no_column() -> None:
    assert text_of({}) == "PENDING\t2026-01-31 23:59:59.999999+00\n"


@pytest.mark.parametrize(("after", "state"), [(timedelta(0), "PENDING"), (timedelta(seconds=1), "SCHEDULED")])
def test_a_run_at_of_the_future_is_scheduled(after: timedelta, state: str) -> None:
    assert text_of({"run_at": START + after}).split("\t")[1] == state
    assert text_of({"run_at": None}).split("\t")[:2] == ["\\N", "PENDING"]


def test_a_block_is_written_as_its_rows_are_singly() -> None:
    """Whichever of the values leave the fast form of their column."""
    odd: dict[str, list[Any]] = {
        "amount": [1, 10**20, 5, Decimal("1.10"), Decimal("1.1000"), "2.5", None],
        "note": ["a", None, "b\n", "ü", "\\", ""],
        "count": [1, "9007199254740993", None],
        "token": [UUID(int=1), str(UUID(int=2)), None],
        "doc": [{"a": [1]}, "text", None],
    }
    types = {**TYPES, "amount": "numeric(30,2)", "count": "bigint", "token": "uuid", "doc": "jsonb"}
    plain = {"amount": Decimal("1.10"), "note": "x", "count": 1, "token": UUID(int=3), "doc": {}}
    for name, values in odd.items():
        for value in values:
            rows = [plain, {**plain, name: value}, plain]
            singly = [text_of(row, types=types).rpartition("\t")[0] for row in rows]
            assert [line.rpartition("\t")[0] for line in text_of(*rows, types=types).splitlines()] == singly


@pytest.mark.parametrize("value", ["a\0", "\ud800", 5])
def test_a_block_refuses_what_a_row_refuses(value: Any) -> None:
    with pytest.raises(ValueError, match=r"must be text|NUL|surrogate"):
        text_of({"note": "x"}, {"note": value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [("numeric(18,2)", Decimal("1.005")), ("numeric(18,2)", Decimal("NaN")), ("integer", 2**31), ("smallint", -(2**15) - 1)],
)
def test_a_block_refuses_numbers_that_do_not_fit(kind: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"digits after|NaN|whole number"):
        text_of({"amount": type(value)(1)}, {"amount": value}, types={**TYPES, "amount": kind})


def test_instants_rise_by_a_microsecond_across_the_second_and_the_day() -> None:
    instants = Instants(START, first=1)
    numbers = range(1, 1_000_003)
    texts = [text for low in range(0, len(numbers), 7) for text in instants.texts(numbers[low : low + 7])]
    assert texts[7] == "2026-02-01 00:00:00.000006+00"
    times = [datetime.fromisoformat(text) for text in texts]
    assert times == [START + timedelta(microseconds=number) for number in numbers]
    assert instants.at(5) == times[4]


def test_instants_of_rows_with_gaps() -> None:
    assert Instants(START, first=11).texts([11, 13]) == ["2026-01-31T23:59:59.999999+00:00", "2026-02-01T00:00:00.000001+00:00"]


def test_ids_are_of_version_7_rise_with_the_rows_and_tell_their_time() -> None:
    instants = Instants(START, first=1)
    made = [UUID(text) for text in ordered_uuids(instants, range(1, 2_001))]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {(one.version, one.variant) for one in made} == {(7, RFC_4122)}
    assert [one.int >> 80 for one in made] == [instants.micros(number) // 1000 for number in range(1, 2_001)]
    # 12 bits tell the place within the millisecond, as in PostgreSQL.
    assert [(one.int >> 64) & 0xFFF for one in made[:3]] == [micro * 4096 // 1000 for micro in (999, 0, 1)]


def test_random_uuids_are_of_version_4_and_all_of_their_bits_move() -> None:
    made = [UUID(text) for text in random_uuids(Instants(START), range(2_000))]
    assert len(set(made)) == len(made)
    assert {(one.version, one.variant) for one in made} == {(4, RFC_4122)}
    moved = 0
    for one in made:
        moved |= one.int ^ made[0].int
    assert moved == (1 << 128) - 1 - (0xF << 76) - (0b11 << 62)
