"""Plain-SQL clients that claim, complete and reclaim by state, leased_by and lease_expires_at alone keep working beside our workers."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasequeue import Outcome, Table, schema
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import Client, expire, in_threads, row, rows, set_where, states

Conn = psycopg.Connection[Any]
TABLE_SQL = Path(__file__).parents[3] / "examples" / "review_queue" / "table.sql"

# As the review queue's users have it.
CLAIM = """
UPDATE review_queue_item SET state = 'ASSIGNED', leased_by = %(me)s, leased_at = now(), lease_expires_at = now() + interval '30 seconds'
 WHERE id IN (SELECT id FROM review_queue_item WHERE state = 'PENDING' ORDER BY created_at LIMIT %(n)s FOR UPDATE SKIP LOCKED)
RETURNING id"""
COMPLETE = "UPDATE review_queue_item SET state = 'RESOLVED' WHERE id = %(id)s AND state = 'ASSIGNED' AND leased_by = %(me)s"
RECLAIM = """
UPDATE review_queue_item SET state = 'PENDING', leased_by = NULL, leased_at = NULL, lease_expires_at = NULL
 WHERE state = 'ASSIGNED' AND lease_expires_at < now()"""


@pytest.fixture
def adopted(conn: Conn) -> Table:
    """The review queue, adopted with rows in it and one lease without an end."""
    conn.execute(TABLE_SQL.read_text())
    conn.execute(
        "INSERT INTO review_queue_item (idempotency_key, ledger_entity, variance_amount, match_decision, source_hash, created_at) "
        "SELECT 'k' || i, 'entity ' || i, i * 1.01, 'PARTIAL', 'h' || i, now() - interval '1 day' + i * interval '1 second' "
        "FROM generate_series(1, 60) AS i"
    )
    schema.adopt(conn, "review_queue_item")
    return Table.load(conn, "review_queue_item")


@pytest.fixture
def ours(adopted: Table, dsn: str, open_client: OpenClient) -> Client:
    return open_client(adopted, dsn=dsn)


class Neighbour:
    """A client that knows nothing of LeaseQueue."""

    def __init__(self, conn: Conn, name: str) -> None:
        self.conn, self.me = conn, name

    def claim(self, n: int) -> list[Any]:
        return [item_id for (item_id,) in self.conn.execute(CLAIM, {"me": self.me, "n": n})]

    def complete(self, item_id: Any) -> bool:
        return self.conn.execute(COMPLETE, {"id": item_id, "me": self.me}).rowcount == 1

    def reclaim(self) -> int:
        return self.conn.execute(RECLAIM).rowcount


@pytest.fixture
def neighbour(conn: Conn) -> Neighbour:
    return Neighbour(conn, "legacy-1")


@pytest.mark.both_versions
def test_claims_are_disjoint(adopted: Table, ours: Client, neighbour: Neighbour) -> None:
    theirs = set(neighbour.claim(10))
    mine = {item.id for item in ours.claim(10)}
    assert (len(theirs), len(mine), theirs & mine) == (10, 10, set())


@pytest.mark.both_versions
def test_their_dead_lease_without_a_token_is_reclaimed(
    conn: Conn, adopted: Table, ours: Client, neighbour: Neighbour, settled_server: None
) -> None:
    """With `=` between tokens that are NULL it never would be."""
    (item_id,) = neighbour.claim(1)
    assert row(conn, adopted, item_id)["lease_token"] is None
    expire(conn, adopted)
    assert [(r.id, r.leased_by) for r in ours.reclaim()] == [(item_id, "legacy-1")]
    assert ours.claim(1)[0].id == item_id


def test_their_live_lease_is_left_alone(
    conn: Conn, adopted: Table, ours: Client, neighbour: Neighbour, settled_server: None
) -> None:
    (item_id,) = neighbour.claim(1)
    assert ours.reclaim() == []
    assert neighbour.complete(item_id)
    assert row(conn, adopted, item_id)["state"] == "RESOLVED"


@pytest.mark.both_versions
def test_ours_torn_by_their_reclaim_is_lost(conn: Conn, adopted: Table, ours: Client, neighbour: Neighbour) -> None:
    """Their reclaim leaves our token in the row, also when they lease and complete it."""
    (item,) = ours.claim(1)
    expire(conn, adopted)
    assert neighbour.reclaim() == 1
    assert ours.renew(item.lease) == [Outcome.LOST]
    assert neighbour.claim(1) == [item.id]
    assert row(conn, adopted, item.id)["lease_token"] == item.lease.token
    assert ours.renew(item.lease) == ours.resolve(item.lease) == [Outcome.LOST]
    assert neighbour.complete(item.id)
    assert ours.resolve(item.lease) == [Outcome.LOST]


def test_leftover_token_does_not_shield_their_dead_lease(
    conn: Conn, adopted: Table, ours: Client, neighbour: Neighbour, settled_server: None
) -> None:
    (item,) = ours.claim(1)
    expire(conn, adopted)
    neighbour.reclaim()
    neighbour.claim(1)
    expire(conn, adopted)
    assert [r.id for r in ours.reclaim()] == [item.id]
    (again,) = ours.claim(1)
    assert (again.id, again.lease.token != item.lease.token) == (item.id, True)
    assert ours.resolve(item.lease) == [Outcome.LOST]
    assert ours.resolve(again.lease) == [Outcome.RESOLVED]


def test_their_completion_of_our_item_is_refused_by_their_own_rule(adopted: Table, ours: Client, neighbour: Neighbour) -> None:
    (item,) = ours.claim(1)
    assert not neighbour.complete(item.id)
    assert ours.resolve(item.lease) == [Outcome.RESOLVED]


def test_their_plain_insert_is_claimed_in_its_place(conn: Conn, adopted: Table, ours: Client) -> None:
    conn.execute(
        "INSERT INTO review_queue_item (idempotency_key, ledger_entity, variance_amount, match_decision, source_hash, created_at) "
        "VALUES ('first', 'e', 5, 'MATCHED', 'h', now() - interval '3 days')"
    )
    (item,) = ours.claim(1)
    assert (item["idempotency_key"], item.attempt, item.priority) == ("first", 1, 0)


@pytest.mark.both_versions
def test_both_fleets_at_once(conn: Conn, adopted: Table, dsn: str, open_client: OpenClient, settled_server: None) -> None:
    """Five of ours, five of theirs, their reclaim and ours, crashes on both sides: every item is completed once, none is stuck."""
    workers = [open_client(adopted, dsn=dsn, max_crashes=1000) for _ in range(5)]
    completed: list[Any] = []
    finished = threading.Event()
    deadline = time.monotonic() + 60

    def over(probe: Conn) -> bool:
        if states(probe, adopted) == {"RESOLVED": 60}:
            finished.set()
        assert time.monotonic() < deadline, states(probe, adopted)
        return finished.is_set()

    def our_work(client: Client) -> None:
        with psycopg.connect(dsn, autocommit=True) as probe:
            turn = 0
            while not over(probe):
                for item in client.claim(3):
                    turn += 1
                    if turn % 4 == 0:
                        expire_one(probe, item.id)  # we crash
                    elif client.resolve(item.lease) == [Outcome.RESOLVED]:
                        completed.append(item.id)
                client.reclaim(max_crashes=1000)

    def their_work(number: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            neighbour, turn = Neighbour(own, f"legacy-{number}"), 0
            while not over(own):
                for item_id in neighbour.claim(3):
                    turn += 1
                    if turn % 4 == 0:
                        expire_one(own, item_id)  # they crash
                    elif neighbour.complete(item_id):
                        completed.append(item_id)
                if number == 0:
                    neighbour.reclaim()

    def expire_one(probe: Conn, item_id: Any) -> None:
        set_where(
            probe, adopted, "lease_expires_at = now() - interval '1 hour'", "id = %(id)s AND state = 'ASSIGNED'", id=item_id
        )

    in_threads([*(lambda c=c: our_work(c) for c in workers), *(lambda n=n: their_work(n) for n in range(5))])
    assert sorted(map(str, completed)) == sorted(str(item_id) for item_id in rows(conn, adopted))


def test_lease_without_an_end_is_impossible_for_anybody(conn: Conn, adopted: Table) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("UPDATE review_queue_item SET state = 'ASSIGNED', leased_by = 'x'")
