"""Guarantee 7: retries back off, attempts end in FAILED, due rows are promoted by anybody, rows of the future are set aside."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from leasequeue import BadInput, Outcome, Table
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import Client, add, bulk, in_threads, name_of, row, rows, set_where, states

Conn = psycopg.Connection[Any]


@pytest.mark.both_versions
def test_retry_later_is_scheduled_and_comes_back_when_due(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table)
    (item,) = client.claim()
    assert client.retry(item.lease, after_s=60, error="no answer") == Outcome.RETRIED
    stored = row(admin, table, item.id)
    assert (stored["state"], stored["last_error"], stored["attempt"]) == ("SCHEDULED", "no answer", 1)
    (due_in,) = admin.execute(f"SELECT extract(epoch FROM run_at - clock_timestamp())::float8 FROM {name_of(table)}").fetchone()
    assert 0 < due_in <= 60
    assert (client.call("promote"), client.claim()) == (0, [])
    set_where(admin, table, "run_at = clock_timestamp()")
    assert client.call("promote") == 1
    (again,) = client.claim()
    assert (again.id, again.attempt) == (item.id, 2)


def test_retry_at_once(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table)
    client.retry(client.claim()[0].lease, after_s=0)
    assert client.claim()[0].attempt == 2


def test_back_off_when_no_delay_is_given(admin: Conn, table: Table, client: Client) -> None:
    """A failing row must not run hot ahead of the others."""
    add(admin, table)
    (item,) = client.claim()
    client.retry(item.lease, after_s=None)
    assert row(admin, table, item.id)["state"] == "SCHEDULED"
    assert client.claim() == []


def test_attempts_end_in_failed(admin: Conn, table: Table, open_client: OpenClient) -> None:
    client = open_client(table, max_attempts=3)
    (item_id,) = add(admin, table)
    outcomes = []
    while items := client.claim():
        outcomes.append(client.retry(items[0].lease, error=f"attempt {items[0].attempt}"))
    assert outcomes == [Outcome.RETRIED, Outcome.RETRIED, Outcome.FAILED]
    stored = row(admin, table, item_id)
    assert (stored["state"], stored["attempt"], stored["last_error"], stored["leased_by"]) == ("FAILED", 3, "attempt 3", None)


def test_failed_at_the_last_attempt_even_with_a_delay(admin: Conn, table: Table, open_client: OpenClient) -> None:
    client = open_client(table, max_attempts=1)
    add(admin, table)
    assert client.retry(client.claim()[0].lease, after_s=30) == Outcome.FAILED


def test_release_does_not_count_the_attempt(admin: Conn, table: Table, client: Client) -> None:
    (item_id,) = add(admin, table)
    for after_s, state in ((0.0, "PENDING"), (30.0, "SCHEDULED")):
        (item,) = client.claim()
        assert item.attempt == 1
        assert client.release(item.lease, after_s=after_s) == [Outcome.RELEASED]
        stored = row(admin, table, item_id)
        assert (stored["state"], stored["attempt"], stored["lease_token"]) == (state, 0, None)


@pytest.mark.parametrize("verb", ["fail", "repair"])
def test_fail_and_repair_end_it(admin: Conn, table: Table, client: Client, verb: str) -> None:
    add(admin, table)
    (item,) = client.claim()
    assert client.call(verb, item.lease, error="why") == {"fail": Outcome.FAILED, "repair": Outcome.REPAIR}[verb]
    assert client.claim() == []
    assert row(admin, table, item.id)["last_error"] == "why"


@pytest.mark.parametrize("after_s", [-1, 366 * 86_400 + 1, float("nan"), float("inf")])
def test_delay_out_of_bounds_is_refused(admin: Conn, table: Table, client: Client, after_s: float) -> None:
    add(admin, table)
    (item,) = client.claim()
    with pytest.raises(BadInput, match="after_s"):
        client.retry(item.lease, after_s=after_s)
    assert row(admin, table, item.id)["state"] == "ASSIGNED"


def test_promotion_by_many_at_once(admin: Conn, table: Table, open_client: OpenClient) -> None:
    bulk(admin, table, 240, state="SCHEDULED")
    set_where(admin, table, "run_at = now()", f"id IN (SELECT id FROM {name_of(table)} LIMIT 200)")
    clients = [open_client(table) for _ in range(8)]
    promoted = in_threads([lambda c=c: sum(c.call("promote", limit=20) for _ in range(12)) for c in clients])
    assert sum(promoted) == 200
    assert states(admin, table) == {"PENDING": 200, "SCHEDULED": 40}


def test_promotion_skips_locked_rows_and_keeps_due_order(admin: Conn, table: Table, client: Client) -> None:
    ids = add(admin, table, 4, state="SCHEDULED", run_at=lambda i: f"2024-01-0{i + 1}Z")
    with admin.transaction():
        admin.execute(f"SELECT 1 FROM {name_of(table)} WHERE id = %s FOR UPDATE", [ids[0]])
        assert client.call("promote", limit=2) == 2
    stored = rows(admin, table)
    assert [stored[i]["state"] for i in ids] == ["SCHEDULED", "PENDING", "PENDING", "SCHEDULED"]


@pytest.mark.parametrize("strict_lanes", [False, True])
def test_pending_rows_of_the_future_are_set_aside(
    admin: Conn, make_queue: Any, open_client: OpenClient, strict_lanes: bool
) -> None:
    """Plain-SQL clients know no SCHEDULED."""
    table = make_queue(strict_lanes=strict_lanes)
    future = add(admin, table, 3, run_at="2999-01-01Z")
    laned = add(admin, table, 1, run_at="2999-01-01Z", lane="a")
    due = add(admin, table, 2)
    client = open_client(table)
    assert client.call("defer", limit=100) == 4
    stored = rows(admin, table)
    assert {stored[i]["state"] for i in (*future, *laned)} == {"SCHEDULED"}
    assert {stored[i]["state"] for i in due} == {"PENDING"}
    assert (client.call("defer"), client.call("promote")) == (0, 0)


def test_prune_forgets_only_old_completions(admin: Conn, table: Table, client: Client) -> None:
    bulk(admin, table, 60, state="RESOLVED")
    set_where(admin, table, "resolved_at = now() - interval '2 days'", f"id IN (SELECT id FROM {name_of(table)} LIMIT 25)")
    for state in ("PENDING", "FAILED", "REPAIR", "SCHEDULED"):
        add(admin, table, 2, state=state, resolved_at="2020-01-01Z")
    assert [client.call("prune", older_than_s=86_400, limit=10) for _ in range(4)] == [10, 10, 5, 0]
    assert states(admin, table) == {"RESOLVED": 35, "PENDING": 2, "FAILED": 2, "REPAIR": 2, "SCHEDULED": 2}
