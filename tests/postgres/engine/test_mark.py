"""Guarantee 11, the mark: a process resumes where its last claim ended, and still finds everything before it within a second."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from leasequeue import ClaimMark, Table
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import Client, add, rows, set_where

Conn = psycopg.Connection[Any]


class Monotonic:
    """A process's monotonic clock, set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def monotonic() -> Monotonic:
    return Monotonic()


@pytest.fixture
def mark(monotonic: Monotonic) -> ClaimMark:
    return ClaimMark(clock=monotonic)


def ids(items: list[Any]) -> list[Any]:
    return [item.id for item in items]


def test_same_rows_in_the_same_order_as_without(admin: Conn, table: Table, client: Client, mark: ClaimMark) -> None:
    add(admin, table, 60, priority=lambda i: (0, 7, -2, 7)[i % 4], created_at=lambda i: f"2025-01-01 00:00:{i // 3:02}Z")
    expected = [r["id"] for r in sorted(rows(admin, table).values(), key=lambda r: (-r["priority"], r["created_at"], r["id"]))]
    taken: list[Any] = []
    for n in (1, 7, 20, 5, 19, 10):
        taken += ids(client.claim(n, mark=mark))
    assert taken == expected


def test_row_given_back_is_found_within_a_second(
    admin: Conn, table: Table, client: Client, mark: ClaimMark, monotonic: Monotonic
) -> None:
    add(admin, table, 10)
    first, *_ = client.claim(3, mark=mark)
    client.release(first.lease)
    assert first.id not in ids(client.claim(2, mark=mark))  # the mark is what keeps claims flat: it is past that row
    monotonic.now += 0.999
    assert first.id not in ids(client.claim(1, mark=mark))
    monotonic.now += 0.001
    assert ids(client.claim(1, mark=mark)) == [first.id]


def test_short_page_looks_from_the_head_again(admin: Conn, table: Table, client: Client, mark: ClaimMark) -> None:
    add(admin, table, 4)
    first, *_ = client.claim(3, mark=mark)
    client.release(first.lease)
    assert len(client.claim(3, mark=mark)) == 1
    assert ids(client.claim(3, mark=mark)) == [first.id]


def test_row_committed_late_with_an_older_time_is_found(
    admin: Conn, table: Table, client: Client, mark: ClaimMark, monotonic: Monotonic
) -> None:
    add(admin, table, 6)
    client.claim(3, mark=mark)
    (late,) = add(admin, table, created_at="2020-01-01Z")
    monotonic.now += 1
    assert ids(client.claim(1, mark=mark)) == [late]


def test_new_priorities_are_seen_at_once(admin: Conn, table: Table, client: Client, mark: ClaimMark) -> None:
    """Above, between and below the priorities that the mark knows."""
    add(admin, table, 8, priority=lambda i: (0, 10)[i % 2])
    client.claim(6, mark=mark)
    (low,) = add(admin, table, priority=-5)
    (between,) = add(admin, table, priority=5)
    (high,) = add(admin, table, priority=2**31 - 1)
    (lowest,) = add(admin, table, priority=-(2**31) + 1)
    taken = ids(client.claim(6, mark=mark))
    assert (taken[0], taken[1], taken[-2], taken[-1]) == (high, between, low, lowest)
    assert len(taken) == 6


def test_many_priorities_do_not_grow_it_for_ever(admin: Conn, table: Table, client: Client, mark: ClaimMark) -> None:
    add(admin, table, 120, priority=lambda i: i)
    taken = [item_id for _ in range(12) for item_id in ids(client.claim(10, mark=mark))]
    assert len(set(taken)) == 120
    assert len(mark.segments().after_neg) <= 2 * 32 + 1


def test_rows_of_infinite_age(admin: Conn, table: Table, client: Client, mark: ClaimMark) -> None:
    add(admin, table, 4, created_at=lambda i: ("-infinity", "infinity", "2024-01-01Z", "2025-01-01Z")[i])
    add(admin, table, 2, priority=3, created_at="infinity")
    taken: list[Any] = []
    for _ in range(12):
        taken += ids(client.claim(1, mark=mark))
    assert len(taken) == len(set(taken)) == 6


def test_segments_are_disjoint_and_whole(mark: ClaimMark) -> None:
    """Every (priority, time) lies in exactly one segment or at/before a mark."""
    from datetime import UTC, datetime, timedelta
    from types import SimpleNamespace

    base = datetime(2025, 1, 1, tzinfo=UTC)
    items = [SimpleNamespace(priority=p, created_at=base, id=5) for p in (9, 4, 3, -7)]
    mark.segments()
    mark.advance(items, len(items))  # type: ignore[arg-type]
    segments = mark.segments()
    parts = list(zip(segments.after_neg, segments.after_at, segments.after_id, segments.upto_neg, strict=True))
    for priority in range(-12, 13):
        for at in (base - timedelta(days=1), base, base + timedelta(days=1)):
            inside = [
                p for p in parts
                if (-priority, at, 6) > (p[0], p[1], p[2] if p[2] is not None else 0) and -priority <= p[3]
            ]  # fmt: skip
            before_mark = priority in (9, 4, 3, -7) and at < base
            assert len(inside) == (0 if before_mark else 1), (priority, at, inside)


def test_ceiling_does_not_leave_rows_behind(admin: Conn, table: Table, open_client: OpenClient, mark: ClaimMark) -> None:
    """A page cut short by the ceiling is a short page."""
    client = open_client(table, max_inflight_policy="Enforce", max_inflight=100)
    add(admin, table, 130)
    held = client.claim(95, mark=mark)
    assert len(client.claim(10, mark=mark)) == 5
    client.release(held[0].lease)
    assert ids(client.claim(10, mark=mark)) == [held[0].id]


def test_locked_rows_are_come_back_to(admin: Conn, table: Table, client: Client, mark: ClaimMark, monotonic: Monotonic) -> None:
    first, *_ = add(admin, table, 6)
    with admin.transaction():
        set_where(admin, table, "decision = 'edited'", "id = %(id)s", id=first)
        assert first not in ids(client.claim(2, mark=mark))
    monotonic.now += 1
    assert ids(client.claim(1, mark=mark)) == [first]
