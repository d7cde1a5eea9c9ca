"""Guarantee 3: the result is stored in the statement that completes the item; one bad row does not hold up its batch."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from leasequeue import BadInput, Completion, Outcome, Settlement, Table, fence
from tests.postgres.engine.support import Client, add, background, blocked_or_done, name_of, row, rows, states

Conn = psycopg.Connection[Any]


def leases(admin: Conn, table: Table, client: Client, n: int) -> list[Any]:
    add(admin, table, n)
    return [item.lease for item in client.claim(n)]


@pytest.mark.both_versions
def test_result_and_state_arrive_together(admin: Conn, table: Table, client: Client) -> None:
    one, two, three = leases(admin, table, client, 3)
    outcomes = client.call("resolve", [Completion(one, {"sum": 1}), Completion(two, [1, None, "ü"]), Completion(three)])
    assert outcomes == dict.fromkeys((one.id, two.id, three.id), Outcome.RESOLVED)
    stored = rows(admin, table)
    assert [stored[lease.id]["result"] for lease in (one, two, three)] == [{"sum": 1}, [1, None, "ü"], None]
    for lease in (one, two, three):
        kept = stored[lease.id]
        assert (kept["state"], kept["leased_by"], kept["lease_token"]) == ("RESOLVED", client.worker_id, lease.token)
        assert kept["resolved_at"] >= kept["leased_at"]


@pytest.mark.both_versions
def test_each_result_goes_to_its_own_item(admin: Conn, table: Table, client: Client) -> None:
    given = leases(admin, table, client, 60)
    results = {lease.id: {"of": str(lease.id)} for lease in given}
    client.call("resolve", [Completion(lease, results[lease.id], {"decision": f"d {lease.id}"}) for lease in given[::-1]])
    stored = rows(admin, table)
    assert {i: r["result"] for i, r in stored.items()} == results
    assert {i: r["decision"] for i, r in stored.items()} == {i: f"d {i}" for i in stored}


@pytest.mark.both_versions
def test_users_columns_are_set_in_the_same_statement(admin: Conn, table: Table, client: Client) -> None:
    one, two, three = leases(admin, table, client, 3)
    at = datetime(2025, 10, 26, 2, 30, tzinfo=UTC)
    columns = {"amount": Decimal("100000000.01"), "decision": "MATCHED", "seen_at": at, "payload": {"deep": [Decimal("0.10")]}}
    client.call("resolve", [Completion(one, columns=columns), Completion(two, {"r": 1}, {"amount": None}), Completion(three)])
    stored = row(admin, table, one.id)
    assert {name: stored[name] for name in ("amount", "decision", "seen_at")} == {
        "amount": Decimal("100000000.01"), "decision": "MATCHED", "seen_at": at,
    }  # fmt: skip
    assert admin.execute(f"SELECT payload::text FROM {name_of(table)} WHERE id = %s", [one.id]).fetchone() == (
        '{"deep": [0.10]}',
    )
    assert (row(admin, table, two.id)["result"], row(admin, table, two.id)["amount"]) == ({"r": 1}, None)
    assert states(admin, table) == {"RESOLVED": 3}


def test_exact_numbers_stay_exact(admin: Conn, table: Table, client: Client) -> None:
    """B32: a float would give …992 and 100000000.00000001 a different end."""
    (lease,) = leases(admin, table, client, 1)
    client.resolve(lease, result={"id": 9007199254740993, "amount": Decimal("100000000.00000001"), "tiny": Decimal("1E-20")})
    (text,) = admin.execute(f"SELECT result::text FROM {name_of(table)}").fetchone()
    assert json.loads(text, parse_float=Decimal) == {
        "id": 9007199254740993, "amount": Decimal("100000000.00000001"), "tiny": Decimal("0.00000000000000000001"),
    }  # fmt: skip


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), Decimal("NaN"), {1: "key"}, object()])
def test_what_json_cannot_hold_is_refused_before_anything_is_written(
    admin: Conn, table: Table, client: Client, bad: Any
) -> None:
    (lease,) = leases(admin, table, client, 1)
    with pytest.raises(BadInput, match="result"):
        client.resolve(lease, result=bad)
    assert states(admin, table) == {"ASSIGNED": 1}


@pytest.mark.parametrize("column", ["state", "lease_token", "id", "nowhere"])
def test_lease_columns_and_unknown_columns_are_refused(admin: Conn, table: Table, client: Client, column: str) -> None:
    (lease,) = leases(admin, table, client, 1)
    with pytest.raises(BadInput, match=column):
        client.call("resolve", Completion(lease, columns={column: "x"}))
    assert states(admin, table) == {"ASSIGNED": 1}


BAD_ROWS = {
    "NUL in the result (22P05)": Completion(None, "a\0b"),  # type: ignore[arg-type]
    "half a surrogate pair (22P02)": Completion(None, "\ud800"),  # type: ignore[arg-type]
    "too many digits (22003)": Completion(None, None, {"amount": Decimal("1e30")}),  # type: ignore[arg-type]
    "not a number (22P02)": Completion(None, None, {"amount": "twelve"}),  # type: ignore[arg-type]
    "the user's CHECK (23514)": Completion(None, None, {"decision": "forbidden"}),  # type: ignore[arg-type]
}


@pytest.mark.both_versions
@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
def test_refused_row_goes_to_repair_and_the_others_are_completed(
    admin: Conn, table: Table, client: Client, bad: Completion
) -> None:
    admin.execute(f"ALTER TABLE {name_of(table)} ADD CHECK (decision <> 'forbidden')")
    given = leases(admin, table, client, 9)
    completions = [Completion(lease, {"fine": 1}, {"decision": "fine", "amount": 1} if bad.columns else {}) for lease in given]
    completions[4] = Completion(given[4], bad.result, {"decision": "fine", "amount": 1, **bad.columns} if bad.columns else {})
    outcomes = client.call("resolve", completions)
    assert outcomes.pop(given[4].id, None) == Outcome.REPAIR
    assert set(outcomes.values()) == {Outcome.RESOLVED}
    assert states(admin, table) == {"RESOLVED": 8, "REPAIR": 1}
    stored = row(admin, table, given[4].id)
    assert "refused by the database" in stored["last_error"]
    assert (stored["leased_by"], stored["lease_token"], stored["result"]) == (None, None, None)


def test_refused_row_in_the_callers_transaction_raises(admin: Conn, table: Table, client: Client) -> None:
    (lease,) = leases(admin, table, client, 1)
    with pytest.raises(psycopg.DataError), client.driver.transaction():
        client.resolve(lease, result="a\0b")
    assert states(admin, table) == {"ASSIGNED": 1}


@pytest.mark.parametrize("error", ["plain", "NUL \0 inside", "lone surrogate \udcff", "x" * 10_000, ""])
@pytest.mark.parametrize("verb", ["RETRY", "FAIL", "REPAIR"])
def test_any_error_text_can_be_stored(admin: Conn, table: Table, client: Client, error: str, verb: str) -> None:
    (lease,) = leases(admin, table, client, 1)
    outcomes = client.call("settle", [Settlement(lease, verb, error=error)])
    assert outcomes[lease.id] in (Outcome.RETRIED, Outcome.FAILED, Outcome.REPAIR)
    stored = row(admin, table, lease.id)["last_error"]
    assert stored[:4] == error[:4]
    assert len(stored) <= 2000


def test_completion_does_not_wait_for_a_claim(admin: Conn, table: Table, client: Client, open_client: Any) -> None:
    """A claim under the ceiling's lock (and its own rows' locks) is under way; the completion passes by."""
    add(admin, table, 4)
    lease = client.claim()[0].lease
    other = open_client(table, max_inflight_policy="Enforce", max_inflight=100)
    with other.driver.transaction():
        assert len(other.claim(2)) == 2
        with background(lambda: client.resolve(lease)) as resolving:
            assert not blocked_or_done(admin, resolving, client.driver.pid), "the completion waited for a claim"
        assert resolving.result() == [Outcome.RESOLVED]


def test_batch_of_other_mixtures(admin: Conn, table: Table, client: Client) -> None:
    """Settlements of all kinds in one statement, each with its own delay and error."""
    given = leases(admin, table, client, 6)
    verbs = [("RETRY", 0.0), ("RETRY", 60.0), ("FAIL", 0.0), ("REPAIR", 0.0), ("RELEASE", 0.0), ("RELEASE", 60.0)]
    settlements = [
        Settlement(lease, verb, delay, f"e{i}") for i, (lease, (verb, delay)) in enumerate(zip(given, verbs, strict=True))
    ]
    outcomes = client.call("settle", settlements)
    assert [outcomes[lease.id] for lease in given] == ["RETRIED", "RETRIED", "FAILED", "REPAIR", "RELEASED", "RELEASED"]
    stored = [row(admin, table, lease.id) for lease in given]
    assert [r["state"] for r in stored] == ["PENDING", "SCHEDULED", "FAILED", "REPAIR", "PENDING", "SCHEDULED"]
    assert [r["last_error"] for r in stored] == [f"e{i}" for i in range(6)]
    assert [r["attempt"] for r in stored] == [1, 1, 1, 1, 0, 0]
    assert (
        {r["leased_by"] for r in stored}
        == {r["lease_token"] for r in stored}
        == {r["lease_expires_at"] for r in stored}
        == {None}
    )


def test_results_too_large_for_one_statement_travel_in_several(
    admin: Conn, table: Table, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of many large results never becomes one message of gigabytes; each statement is sent and answered by itself."""
    monkeypatch.setattr("leasequeue.fence.MAX_BATCH_BYTES", 100_000)
    given = leases(admin, table, client, 12)
    sizes = [60_000, 60_000, 10, 10, 200_000, 10, 10, 50_000, 60_000, 10, 10, 10]
    statements: list[int] = []
    real = fence._part

    def counted(*args: Any) -> Any:
        statements.append(len(args[2]))
        return real(*args)

    monkeypatch.setattr("leasequeue.fence._part", counted)
    completions = [Completion(lease, "x" * size, {"decision": str(size)}) for lease, size in zip(given, sizes, strict=True)]
    assert client.call("resolve", completions) == dict.fromkeys([lease.id for lease in given], Outcome.RESOLVED)
    assert statements == [1, 3, 1, 3, 4]
    stored = rows(admin, table)
    assert [len(stored[lease.id]["result"]) for lease in given] == sizes
