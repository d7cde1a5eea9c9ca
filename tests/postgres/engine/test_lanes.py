"""Guarantee 8: rows of a lane run one at a time, in the order created_at, id, across all workers."""

from __future__ import annotations

import contextlib
import random
import threading
from typing import Any

import psycopg
import pytest
from psycopg import errors

from leasequeue import ClaimMark, Outcome, Table
from leasequeue.item import Item, Lease
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import Client, add, expire, in_threads, name_of, row, set_where, states

Conn = psycopg.Connection[Any]
STRICT = {"strict_lanes": True}


@pytest.fixture
def worker(strict: Table, open_client: OpenClient) -> Client:
    return open_client(strict, **STRICT)


@pytest.mark.both_versions
def test_one_row_of_a_lane_at_a_time_and_in_order(admin: Conn, strict: Table, worker: Client) -> None:
    ids = add(admin, strict, 6, lane=lambda i: "ab"[i % 2])
    seen = []
    while items := worker.claim(10):
        assert len(items) == len({item.lane for item in items})
        seen += [item.id for item in items]
        worker.resolve(*[item.lease for item in items])
    assert [i for i in seen if i in ids[0::2]] == ids[0::2]
    assert [i for i in seen if i in ids[1::2]] == ids[1::2]


def test_priority_orders_lanes_never_rows_within_one(admin: Conn, strict: Table, worker: Client) -> None:
    low = add(admin, strict, 1, lane="a", priority=0)
    high = add(admin, strict, 1, lane="a", priority=9)
    other = add(admin, strict, 1, lane="b", priority=5)
    assert [item.id for item in worker.claim(1)] == other
    assert [item.id for item in worker.claim(5)] == low
    worker.resolve(worker_lease(admin, strict, low[0], worker))
    assert [item.id for item in worker.claim(5)] == high


def worker_lease(admin: Conn, table: Table, item_id: Any, client: Client) -> Lease:
    """The lease that stands on an item now."""
    return Lease(item_id, row(admin, table, item_id)["lease_token"], client.worker_id)


def test_rows_without_a_lane_are_free(admin: Conn, strict: Table, worker: Client) -> None:
    laned = add(admin, strict, 3, lane="a")
    free = add(admin, strict, 3)
    assert {item.id for item in worker.claim(10)} == {laned[0], *free}
    assert worker.claim(10) == []


def test_only_the_lanes_asked_for(admin: Conn, strict: Table, worker: Client) -> None:
    add(admin, strict, 2)
    wanted = add(admin, strict, 1, lane="b")
    add(admin, strict, 1, lane="c")
    assert [item.id for item in worker.claim(10, lanes=["b", "b", "nowhere"])] == wanted


@pytest.mark.parametrize("state", ["SCHEDULED", "FAILED", "REPAIR"])
@pytest.mark.parametrize("policy", ["Block", "Pass"])
def test_head_that_cannot_run(admin: Conn, strict: Table, open_client: OpenClient, state: str, policy: str) -> None:
    _head, second = add(admin, strict, 2, lane="a", state=lambda i: (state, "PENDING")[i])
    client = open_client(strict, on_blocked_head=policy, **STRICT)
    assert [item.id for item in client.claim(5)] == ([] if policy == "Block" else [second])


@pytest.mark.parametrize("policy", ["Block", "Pass"])
def test_leased_head_always_blocks(admin: Conn, strict: Table, open_client: OpenClient, policy: str) -> None:
    add(admin, strict, 2, lane="a")
    one, two = (open_client(strict, on_blocked_head=policy, **STRICT) for _ in range(2))
    assert len(one.claim(5)) == 1
    assert two.claim(5) == []
    expire(admin, strict)  # expired is not reclaimed: its handler may still run
    assert two.claim(5) == []


def test_second_row_leased_before_the_head_came_back_blocks_it(admin: Conn, strict: Table, open_client: OpenClient) -> None:
    """Pass: the head was passed over, its successor is leased, and the head becomes due again: two of a lane at a time."""
    head, second = add(admin, strict, 2, lane="a", state=lambda i: ("SCHEDULED", "PENDING")[i])
    client = open_client(strict, on_blocked_head="Pass", **STRICT)
    (item,) = client.claim(5)
    assert item.id == second
    set_where(admin, strict, "state = 'PENDING'", "id = %(id)s", id=head)
    assert client.claim(5) == []
    client.resolve(item.lease)
    assert [i.id for i in client.claim(5)] == [head]


def test_lane_held_by_a_claim_under_way_is_passed_over(admin: Conn, strict: Table, open_client: OpenClient) -> None:
    """An uncommitted claim has the second row of lane a; the head comes back meanwhile: without the lane's lock it would be leased."""
    one, two = (open_client(strict, on_blocked_head="Pass", **STRICT) for _ in range(2))
    head, _second = add(admin, strict, 2, lane="a", state=lambda i: ("SCHEDULED", "PENDING")[i])
    (other,) = add(admin, strict, 1, lane="b")
    with one.driver.transaction():
        assert len(one.claim(1, lanes=["a"])) == 1
        set_where(admin, strict, "state = 'PENDING'", "id = %(id)s", id=head)
        assert [item.id for item in two.claim(5)] == [other]
    assert states(admin, strict) == {"ASSIGNED": 2, "PENDING": 1}


def test_heads_are_looked_up_after_the_lock(admin: Conn, strict: Table, open_client: OpenClient) -> None:
    """A claim in REPEATABLE READ would see the head of before; own transactions are READ COMMITTED, and locks come first."""
    one = open_client(strict, **STRICT)
    first, second = add(admin, strict, 2, lane="a")
    one.driver.execute("SET default_transaction_isolation = 'repeatable read'")
    (item,) = one.claim(1)
    assert item.id == first
    one.resolve(item.lease)
    assert [i.id for i in one.claim(1)] == [second]


@pytest.mark.both_versions
@pytest.mark.parametrize(("policy", "marked"), [("Block", False), ("Pass", False), ("Block", True)])
def test_many_workers_with_releases_retries_failures_and_crashes(
    admin: Conn, strict: Table, open_client: OpenClient, policy: str, marked: bool, settled_server: None
) -> None:
    """12 workers, 12 lanes × 20 rows. Every event is logged under one lock while the lease is held, and checked lane by lane."""
    lanes, length, rng = 12, 20, random.Random(7)
    order = add(admin, strict, lanes * length, lane=lambda i: f"lane {i % lanes}")
    place = {item_id: number // lanes for number, item_id in enumerate(order)}
    clients = [open_client(strict, on_blocked_head=policy, max_attempts=1000, max_crashes=1000, **STRICT) for _ in range(12)]
    log_lock, log = threading.Lock(), []  # type: ignore[var-annotated]
    stop = threading.Event()
    seeds = [rng.random() for _ in clients]

    def note(event: str, item: Item) -> None:
        with log_lock:
            log.append((event, item.lane, item.id))

    def work(client: Client, seed: float) -> None:
        mine, mark = random.Random(seed), ClaimMark() if marked else None
        while not stop.is_set():
            with contextlib.suppress(errors.LockNotAvailable):
                for item in client.claim(mine.choice([1, 4]), mark=mark):
                    finish(client, item, mine.random())
            with log_lock:
                if sum(event == "done" for event, *_ in log) >= lanes * length:
                    stop.set()

    def finish(client: Client, item: Item, dice: float) -> None:
        note("start", item)
        if dice < 0.70:
            note("done", item)  # while it is held: who starts next in this lane logs after us
            assert client.resolve(item.lease) == [Outcome.RESOLVED]
        elif dice < 0.80:
            note("stop", item)
            client.release(item.lease)
        elif dice < 0.90:
            note("stop", item)
            client.retry(item.lease, after_s=0)
        elif dice < 0.95:
            note("stop", item)
            client.retry(item.lease, after_s=0.01)
            # By its state, not by the number promoted: that may be another client's row.
            while row_state(client, item.id) == "SCHEDULED" and not stop.is_set():
                client.call("promote", limit=50)
        else:
            note("stop", item)
            client.driver.execute(
                f"UPDATE {name_of(client.table)} SET lease_expires_at = clock_timestamp() - interval '1 hour' WHERE id = %s",
                [item.id],
            )
            client.reclaim(max_crashes=1000)

    def row_state(client: Client, item_id: Any) -> str:
        (found,) = client.driver.execute(f"SELECT state FROM {name_of(client.table)} WHERE id = %s", [item_id])
        return found["state"]

    in_threads([lambda c=c, s=s: work(c, s) for c, s in zip(clients, seeds, strict=True)])
    assert states(admin, strict) == {"RESOLVED": lanes * length}
    for lane in {f"lane {i}" for i in range(lanes)}:
        check_lane([(event, place[item_id]) for event, where, item_id in log if where == lane], in_order=policy == "Block")


def check_lane(events: list[tuple[str, int]], *, in_order: bool) -> None:
    """One at a time; under Block no row starts before all earlier ones are done."""
    running: int | None = None
    done: set[int] = set()
    for event, number in events:
        if event == "start":
            assert running is None, f"row {number} started while row {running} of its lane was running"
            assert not in_order or done == set(range(number)), f"row {number} started before its predecessors: {sorted(done)}"
            running = number
        else:
            assert running == number
            running = None
            if event == "done":
                done.add(number)


def test_skipped_lanes_cost_no_rows(admin: Conn, strict: Table, open_client: OpenClient) -> None:
    """n lanes are locked at most, so one claim leaves the others to the next worker."""
    add(admin, strict, 20, lane=lambda i: f"l{i:02}")
    one, two = (open_client(strict, **STRICT) for _ in range(2))
    with one.driver.transaction():
        assert [item.lane for item in one.claim(5)] == [f"l{i:02}" for i in range(5)]
        assert [item.lane for item in two.claim(5)] == [f"l{i:02}" for i in range(5, 10)]


class TestLanesAhead:
    """A process that claims again at once tries the lanes that its last walk over all of them saw, instead of walking again."""

    def test_they_are_claimed_in_order_and_none_is_missed(self, admin: Conn, strict: Table, worker: Client) -> None:
        ids = add(admin, strict, 12, lane=lambda i: f"lane {i}")
        mark = ClaimMark(clock=lambda: 0.0)
        assert [item.id for _ in range(12) for item in worker.claim(1, mark=mark)] == ids
        assert worker.claim(1, mark=mark) == []

    def test_taken_ones_are_made_up_for_in_the_same_claim(self, admin: Conn, strict: Table, open_client: OpenClient) -> None:
        """Somebody else leased what was remembered: the walk is made at once, not at the next poll."""
        one, two = (open_client(strict, **STRICT) for _ in range(2))
        ids = add(admin, strict, 12, lane=lambda i: f"lane {i:02}")
        mark = ClaimMark(clock=lambda: 0.0)
        assert [item.id for item in one.claim(1, mark=mark)] == ids[:1]
        assert len(two.claim(10)) == 10
        assert [item.id for item in one.claim(1, mark=mark)] == ids[11:]

    def test_the_next_row_of_a_lane_runs_when_no_other_lane_is_left(self, admin: Conn, strict: Table, worker: Client) -> None:
        add(admin, strict, 4, lane=lambda i: "ab"[i % 2])
        mark = ClaimMark(clock=lambda: 0.0)
        for _ in range(4):
            (item,) = worker.claim(1, mark=mark)
            worker.resolve(item.lease)
        assert states(admin, strict) == {"RESOLVED": 4}

    def test_a_more_urgent_lane_is_seen_within_a_second(self, admin: Conn, strict: Table, worker: Client) -> None:
        now = 0.0
        mark = ClaimMark(clock=lambda: now)
        add(admin, strict, 20, lane=lambda i: f"lane {i}")
        worker.claim(1, mark=mark)
        (urgent,) = add(admin, strict, 1, lane="urgent", priority=9)
        now = 1.0
        assert [item.id for item in worker.claim(1, mark=mark)] == [urgent]

    def test_a_head_that_can_no_longer_run_is_passed_over(self, admin: Conn, strict: Table, worker: Client) -> None:
        """What is remembered says where to look; whether the head may run is decided under its lane's lock."""
        ids = add(admin, strict, 6, lane=lambda i: f"lane {i // 2}")
        mark = ClaimMark(clock=lambda: 0.0)
        worker.claim(1, mark=mark)
        set_where(admin, strict, "state = 'REPAIR'", "id = %(id)s", id=ids[2])
        assert [item.id for item in worker.claim(2, mark=mark)] == [ids[4]]
