"""A row that refuses every change stops nobody but itself: claims, promotion, deferral, reclaim, retention, renewal, release.

Such a row breaks a CHECK that was added NOT VALID, or has a trigger raise for it, or is referred to by another table. A statement about a
page of rows fails as a whole because of it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import leasequeue
from leasequeue import Claimed, ClaimMark, Completion, Refused, Skips, Table
from leasequeue.claim import claim_flow
from leasequeue.config import LeaseConfig
from leasequeue.run import Operation, keep_limits
from leasequeue.spare import MAX_SKIPPED, SKIP_S, WALL_S
from leasequeue.states import Outcome
from tests.postgres.engine.conftest import MakeQueue, OpenClient
from tests.postgres.engine.support import Client, add, expire, name_of, row, rows, set_where, states

Conn = psycopg.Connection[Any]

CLAIMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "enforced": {"max_inflight_policy": "Enforce", "max_inflight": 1000},
    "strict": {"strict_lanes": True},
    "strict, pass": {"strict_lanes": True, "on_blocked_head": "Pass"},
}


def refuse_by_check(admin: Conn, table: Table) -> None:
    """Rows with a negative amount break a CHECK that was never validated."""
    admin.execute(f"ALTER TABLE {name_of(table)} ADD CONSTRAINT amount_positive CHECK (amount > 0) NOT VALID")


def refuse_by_trigger(admin: Conn, table: Table) -> None:
    """A trigger raises, with a code of its own, for rows with a negative amount."""
    admin.execute(
        "CREATE OR REPLACE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = 'LQ001'; END$$"
    )
    admin.execute(
        f"CREATE TRIGGER refuse BEFORE UPDATE ON {name_of(table)} FOR EACH ROW WHEN (OLD.amount < 0) EXECUTE FUNCTION refuse_row()"
    )


def refuse_at_commit(admin: Conn, table: Table) -> None:
    """A deferred trigger raises when the transaction commits."""
    admin.execute(
        "CREATE OR REPLACE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '23514'; END$$"
    )
    admin.execute(
        f"CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON {name_of(table)} DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW WHEN (OLD.amount < 0) EXECUTE FUNCTION refuse_row()"
    )


REFUSALS = {"check": refuse_by_check, "trigger": refuse_by_trigger, "at commit": refuse_at_commit}


@pytest.fixture(params=REFUSALS)
def refuse(request: pytest.FixtureRequest) -> Any:
    """How rows with a negative amount refuse to be changed."""
    return REFUSALS[request.param]


def amounts(bad: set[int]) -> Any:
    """Amount by number: negative for the bad ones."""
    return lambda i: -1 if i in bad else 1


# --- claim ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", CLAIMS)
def test_claim_leases_all_others(admin: Conn, make_queue: MakeQueue, open_client: OpenClient, refuse: Any, form: str) -> None:
    """The head, one in the middle, and two neighbours refuse: every other row of the page is leased, once."""
    settings = CLAIMS[form]
    table = make_queue(strict_lanes="strict_lanes" in settings)
    client = open_client(table, **settings)
    bad = {0, 7, 8}
    ids = add(admin, table, 20, amount=amounts(bad), lane=lambda i: f"lane {i}" if i % 2 else None)
    refuse(admin, table)
    skips = Skips()
    claimed = client.claimed(20, skips=skips)
    good = [item_id for i, item_id in enumerate(ids) if i not in bad]
    assert [item.id for item in claimed.items] == good
    assert {refused.id for refused in claimed.refused} == {ids[i] for i in bad}
    assert client.resolve(*[item.lease for item in claimed.items]) == [Outcome.RESOLVED] * len(good)
    more = add(admin, table, 2, amount=1)
    assert [item.id for item in client.claimed(20, skips=skips).items] == more


def test_claim_on_a_workers_own_connection_leases_all_others(admin: Conn, table: Table, queue_dsn: str, refuse: Any) -> None:
    """There transactions travel in one packet, and a refusal may come with the COMMIT."""
    ids = add(admin, table, 20, amount=amounts({0, 7, 8}))
    refuse(admin, table)
    with leasequeue.connect(queue_dsn) as conn:
        keep_limits(conn, durable=False, one_plan=True)
        claimed = leasequeue.claim(conn, table, worker_id="w", n=20, config=LeaseConfig(), mark=ClaimMark())
        assert [item.id for item in claimed.items] == [item_id for i, item_id in enumerate(ids) if i not in (0, 7, 8)]
        assert {refused.id for refused in claimed.refused} == {ids[0], ids[7], ids[8]}
        assert not conn.closed


def test_claim_of_lanes_leases_all_others(admin: Conn, table: Table, client: Client, refuse: Any) -> None:
    ids = add(admin, table, 6, amount=amounts({0, 3}), lane=lambda i: f"lane {i % 2}")
    refuse(admin, table)
    claimed = client.claimed(10, lanes=["lane 0", "lane 1"])
    assert [item.id for item in claimed.items] == [ids[1], ids[2], ids[4], ids[5]]
    assert {refused.id for refused in claimed.refused} == {ids[0], ids[3]}


@pytest.mark.parametrize(("policy", "leased"), [("Block", []), ("Pass", [1])])
def test_a_lane_whose_head_refuses(
    admin: Conn, make_queue: MakeQueue, open_client: OpenClient, policy: str, leased: list[int]
) -> None:
    """Under Block it waits, as behind any head that cannot run; under Pass its next row runs. Other lanes go on either way."""
    table = make_queue(strict_lanes=True)
    client = open_client(table, strict_lanes=True, on_blocked_head=policy)
    lane = add(admin, table, 3, amount=amounts({0}), lane="a")
    (other,) = add(admin, table, 1, amount=1, lane="b")
    refuse_by_check(admin, table)
    skips = Skips()
    taken = [item.id for _ in range(3) for item in client.claim(10, skips=skips)]
    assert sorted(taken, key=str) == sorted([other, *[lane[i] for i in leased]], key=str)


def test_many_lanes_whose_heads_refuse_do_not_crowd_out_the_rest(admin: Conn, strict: Table, open_client: OpenClient) -> None:
    """More than a page of lanes is blocked in front of the one that could run."""
    client = open_client(strict, strict_lanes=True)
    add(admin, strict, 30, amount=-1, lane=lambda i: f"bad {i}")
    (good,) = add(admin, strict, 1, amount=1, lane="good")
    refuse_by_check(admin, strict)
    skips = Skips()
    taken = [item.id for _ in range(4) for item in client.claim(10, skips=skips)]
    assert taken == [good]
    assert len(skips) == 30


def test_more_refusing_rows_than_a_page(admin: Conn, table: Table, client: Client) -> None:
    """Each claim finds a page of them, and passes over those found before."""
    add(admin, table, 50, amount=-1)
    good = add(admin, table, 3, amount=1)
    refuse_by_check(admin, table)
    skips = Skips()
    taken = [item.id for _ in range(6) for item in client.claim(20, skips=skips)]
    assert taken == good
    assert len(skips) == skips.total == 50


def test_a_wall_of_refusing_rows_is_passed(admin: Conn, table: Table, client: Client) -> None:
    """More rows than are remembered one by one: claims start behind them, priority by priority."""
    count = MAX_SKIPPED + 250
    admin.execute(
        f"INSERT INTO {name_of(table)} (amount, priority, created_at) SELECT -1, 5, now() + i * interval '1 ms' FROM generate_series(1, %s) i",
        [count],
    )
    urgent, later = add(admin, table, 1, amount=1, priority=9), add(admin, table, 2, amount=1, priority=5)
    set_where(admin, table, "created_at = now() + interval '1 day'", "amount > 0")
    refuse_by_check(admin, table)
    skips = Skips()
    taken: list[Any] = []
    claims = 0
    while len(taken) < 3 and claims < 12:
        taken += [item.id for item in client.claim(200, skips=skips)]
        claims += 1
    assert taken == urgent + later
    assert -5 in skips.walls()


def test_what_was_mended_is_claimed_again(admin: Conn, table: Table, client: Client) -> None:
    now = 0.0
    skips = Skips(clock=lambda: now)
    (bad,) = add(admin, table, 1, amount=-1)
    refuse_by_check(admin, table)
    assert client.claim(5, skips=skips) == []
    set_where(admin, table, "amount = 1", "id = %(id)s", id=bad)
    assert client.claim(5, skips=skips) == [], "passed over for a while"
    now = SKIP_S + 1
    assert [item.id for item in client.claim(5, skips=skips)] == [bad]


def test_an_error_of_the_table_is_no_rows_fault(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 3)
    skips = Skips()
    admin.execute(f"ALTER TABLE {name_of(table)} RENAME COLUMN attempt TO attempts")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        client.claim(5, skips=skips)
    assert len(skips) == 0


def test_in_the_callers_transaction_it_raises(admin: Conn, table: Table, client: Client) -> None:
    """There it is the caller's to roll back: nothing is tried in an aborted transaction."""
    add(admin, table, 2, amount=amounts({0}))
    refuse_by_check(admin, table)
    with pytest.raises(psycopg.errors.CheckViolation), client.driver.transaction():
        client.claim(2)
    assert states(admin, table) == {"PENDING": 2}


def test_a_claim_that_finds_no_refusal_is_one_operation(admin: Conn, table: Table) -> None:
    """Nothing is looked at twice where nothing refuses."""
    flow = claim_flow(table, worker_id="w", n=5, config=LeaseConfig())
    assert isinstance(next(flow), Operation)
    sent = Claimed([], "open", False)
    with pytest.raises(StopIteration) as ended:
        flow.send(sent)
    assert ended.value.value is sent


def test_news_are_told_once_and_walls_end() -> None:
    now = 0.0
    skips = Skips(clock=lambda: now)
    found = [refused(i) for i in range(MAX_SKIPPED + 1)]
    skips.add(found[:10])
    assert [told.id for told in skips.take_news()] == list(range(10))
    assert skips.take_news() == []
    skips.add(found)
    assert skips.ids() == []
    assert list(skips.walls()) == [0]
    now = WALL_S + 1
    assert skips.walls() == {}


def refused(i: int) -> Any:
    return Refused(i, 0, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=i), "claim", "23514")


# --- upkeep --------------------------------------------------------------------------------------------------------------


def test_promotion_moves_all_others(admin: Conn, table: Table, client: Client, refuse: Any) -> None:
    ids = add(admin, table, 12, amount=amounts({0, 5}), state="SCHEDULED", run_at="2024-01-01Z")
    refuse(admin, table)
    skips = Skips()
    assert client.call("promote", limit=500, skips=skips) == 10
    assert states(admin, table) == {"PENDING": 10, "SCHEDULED": 2}
    assert set(skips.ids()) == {ids[0], ids[5]}
    assert client.call("promote", limit=500, skips=skips) == 0


def test_promotion_page_of_refusing_rows_does_not_hide_the_next(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 5, amount=-1, state="SCHEDULED", run_at="2024-01-01Z")
    add(admin, table, 2, amount=1, state="SCHEDULED", run_at="2024-02-01Z")
    refuse_by_check(admin, table)
    skips = Skips()
    assert [client.call("promote", limit=5, skips=skips) for _ in range(2)] == [0, 2]


@pytest.mark.parametrize("strict_lanes", [False, True])
def test_deferral_moves_all_others(
    admin: Conn, make_queue: MakeQueue, open_client: OpenClient, refuse: Any, strict_lanes: bool
) -> None:
    table = make_queue(strict_lanes=strict_lanes)
    client = open_client(table, strict_lanes=strict_lanes)
    add(admin, table, 6, amount=amounts({1}), run_at="2999-01-01Z")
    refuse(admin, table)
    assert client.call("defer", limit=100) == 5
    assert states(admin, table) == {"SCHEDULED": 5, "PENDING": 1}


@pytest.mark.usefixtures("settled_server")
def test_reclaim_takes_all_others(admin: Conn, table: Table, client: Client, refuse: Any) -> None:
    ids = add(admin, table, 10, amount=amounts({2, 9}))
    client.claim(10)
    expire(admin, table)
    refuse(admin, table)
    skips = Skips()
    page = client.call("reclaim", config=LeaseConfig(lock_timeout_ms=1_000, reclaim_after_s=10), skips=skips)
    assert {item.id for item in page.items} == {item_id for i, item_id in enumerate(ids) if i not in (2, 9)}
    assert {refused.id for refused in page.refused} == {ids[2], ids[9]}
    assert {refused.verb for refused in skips.take_news()} == {"reclaim"}
    assert states(admin, table) == {"PENDING": 8, "ASSIGNED": 2}


def test_retention_deletes_all_others(admin: Conn, table: Table, client: Client) -> None:
    """Another table refers to one of the rows."""
    ids = add(admin, table, 10, state="RESOLVED", resolved_at="2024-01-01Z")
    admin.execute(f"CREATE TABLE refers (item {table.id_type} REFERENCES {name_of(table)} (id))")
    try:
        admin.execute("INSERT INTO refers VALUES (%s)", [ids[4]])
        skips = Skips()
        assert client.call("prune", older_than_s=60.0, skips=skips) == 9
        assert list(rows(admin, table)) == [ids[4]] == skips.ids()
    finally:
        admin.execute("DROP TABLE refers")


# --- leases --------------------------------------------------------------------------------------------------------------


def test_renewal_extends_all_others(admin: Conn, table: Table, client: Client, refuse: Any) -> None:
    """The refusing one is BUSY: neither renewed nor lost."""
    ids = add(admin, table, 8, amount=amounts({3}))
    leases = [item.lease for item in client.claim(8)]
    expire(admin, table, ago="1 second")
    refuse(admin, table)
    assert client.renew(*leases) == [Outcome.BUSY if i == 3 else Outcome.RENEWED for i in range(8)]
    assert row(admin, table, ids[3])["lease_expires_at"] < row(admin, table, ids[4])["lease_expires_at"]


def test_release_after_a_lost_reply_gives_back_all_others(admin: Conn, table: Table, client: Client, refuse: Any) -> None:
    ids = add(admin, table, 6, amount=amounts({0}))
    client.claim(6)
    refuse(admin, table)
    assert client.call("release_unheld", worker_id=client.worker_id, held_tokens=[]) == 5
    assert [item_id for item_id, found in rows(admin, table).items() if found["state"] == "ASSIGNED"] == [ids[0]]


def test_completion_of_all_others(admin: Conn, table: Table, client: Client, refuse: Any) -> None:
    """It cannot even be set aside: told as REFUSED, the rest is completed."""
    ids = add(admin, table, 8, amount=amounts({3}))
    leases = [item.lease for item in client.claim(8)]
    refuse(admin, table)
    assert client.resolve(*leases) == [Outcome.REFUSED if i == 3 else Outcome.RESOLVED for i in range(8)]
    assert row(admin, table, ids[3])["state"] == "ASSIGNED"


@pytest.mark.parametrize(
    ("sqlstate", "what"),
    [("54000", "a limit"), ("45000", "the code of a trigger"), ("LQ001", "a code of our own"), ("P0001", "raise")],
)
def test_completion_refused_by_any_class_of_data_errors_goes_to_repair(
    admin: Conn, table: Table, client: Client, sqlstate: str, what: str
) -> None:
    """The list is that of the worker: not classes 22 and 23 alone."""
    ids = add(admin, table, 5)
    leases = [item.lease for item in client.claim(5)]
    admin.execute(
        "CREATE OR REPLACE FUNCTION refuse_result() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$BEGIN RAISE EXCEPTION '{what}' USING ERRCODE = '{sqlstate}'; END$$"
    )
    admin.execute(
        f"CREATE TRIGGER refuse BEFORE UPDATE ON {name_of(table)} FOR EACH ROW WHEN (NEW.result = '13') EXECUTE FUNCTION refuse_result()"
    )
    outcomes = client.call("resolve", [Completion(lease, 13 if i == 2 else i) for i, lease in enumerate(leases)])
    assert [outcomes[lease.id] for lease in leases] == [Outcome.REPAIR if i == 2 else Outcome.RESOLVED for i in range(5)]
    assert what in row(admin, table, ids[2])["last_error"]
