"""Rows as COPY text: what is escaped, and created_at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasequeue import Table
from leasequeue.copytext import Instants, line
from leasequeue.encode import RowEncoder
from leasequeue.table import LEASE_COLUMNS

TYPES = {**dict.fromkeys(LEASE_COLUMNS, "text"), "run_at": "timestamp with time zone", "note": "text"}
TABLE = Table(1, "public", "orders", TYPES)
START = datetime(2026, 1, 31, 23, 59, 59, 999_998, tzinfo=UTC)


def written(row: dict[str, Any]) -> str:
    shape, texts = RowEncoder(TABLE).encode(row, 1, "row {}".format)
    return line(shape, texts, Instants(START))


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
    assert written(row) == f"{text}\tPENDING\t2026-01-31 23:59:59.999999+00\n"


def test_a_row_may_give_no_column() -> None:
    assert written({}) == "PENDING\t2026-01-31 23:59:59.999999+00\n"


@pytest.mark.parametrize(("after", "state"), [(timedelta(0), "PENDING"), (timedelta(seconds=1), "SCHEDULED")])
def test_a_run_at_of_the_future_is_scheduled(after: timedelta, state: str) -> None:
    assert written({"run_at": START + after}).split("\t")[1] == state
    assert written({"run_at": None}).split("\t")[:2] == ["\\N", "PENDING"]


def test_instants_rise_by_a_microsecond_across_the_second_and_the_day() -> None:
    instants = Instants(START)
    texts = [instants.next() for _ in range(1_000_003)]
    assert texts[:3] == [
        "2026-01-31 23:59:59.999999+00", "2026-02-01 00:00:00.000000+00", "2026-02-01 00:00:00.000001+00"
    ]  # fmt: skip
    assert texts == sorted(set(texts))
    assert datetime.fromisoformat(texts[-1]) == instants.last == START + timedelta(microseconds=len(texts))
