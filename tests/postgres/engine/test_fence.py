"""Guarantee 2: a write about a lease matches id, state, owner and token. A zombie changes nothing and is told LOST; a repeat of
one's own completion is told ALREADY_RESOLVED."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from leasequeue import BadInput, Completion, LeaseNotHeld, Outcome, Settlement, Table
from leasequeue.item import Lease
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import (
    Client,
    add,
    background,
    blocked_or_done,
    expire,
    lost,
    name_of,
    row,
    rows,
    set_where,
)

Conn = psycopg.Connection[Any]
Write = Callable[[Client, Lease], Outcome]


def _settle(verb: str) -> Write:
    def write(client: Client, lease: Lease) -> Outcome:
        return client.call("settle", [Settlement(lease, verb, error="zombie")])[lease.id]

    return write


WRITES: dict[str, Write] = {
    "renew": lambda client, lease: client.renew(lease)[0],
    "resolve": lambda client, lease: client.resolve(lease)[0],
    "resolve_result": lambda client, lease: client.resolve(lease, result={"zombie": True})[0],
    "resolve_columns": lambda client, lease: client.call("resolve", Completion(lease, columns={"decision": "zombie"}))[
        lease.id
    ],
    **{verb.lower(): _settle(verb) for verb in ("RETRY", "FAIL", "REPAIR", "RELEASE")},
}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def leased(admin: Conn, table: Table, client: Client) -> Lease:
    """A lease on a new row."""
    add(admin, table)
    return client.claim()[0].lease


def assert_told_lost_and_unchanged(admin: Conn, client: Client, lease: Lease, write: Write) -> None:
    before = row(admin, client.table, lease.id)
    assert write(client, lease) == Outcome.LOST
    assert row(admin, client.table, lease.id) == before


@every_write
def test_after_another_worker_leased_it(
    admin: Conn, table: Table, open_client: OpenClient, write: Write, settled_server: None
) -> None:
    one, two = open_client(table), open_client(table)
    lease = leased(admin, table, one)
    expire(admin, table)
    one.reclaim()
    assert len(two.claim()) == 1
    assert_told_lost_and_unchanged(admin, one, lease, write)


@every_write
def test_after_the_same_worker_leased_it_again(
    admin: Conn, table: Table, client: Client, write: Write, settled_server: None
) -> None:
    """Same owner, another token: the token alone tells the old handler from the new one."""
    lease = leased(admin, table, client)
    expire(admin, table)
    client.reclaim()
    assert len(client.claim()) == 1
    assert_told_lost_and_unchanged(admin, client, lease, write)


@every_write
def test_after_a_neighbour_took_it_with_our_token_still_on_it(admin: Conn, table: Table, client: Client, write: Write) -> None:
    """A plain-SQL client's reclaim and claim leave our token in the row: the owner alone tells that the lease is gone."""
    lease = leased(admin, table, client)
    set_where(admin, table, "state = 'PENDING', leased_by = NULL, lease_expires_at = NULL")
    set_where(admin, table, "state = 'ASSIGNED', leased_by = 'neighbour', lease_expires_at = now() + interval '1 minute'")
    assert row(admin, table, lease.id)["lease_token"] == lease.token
    assert_told_lost_and_unchanged(admin, client, lease, write)


@every_write
def test_after_a_neighbour_completed_it_with_our_token_still_on_it(
    admin: Conn, table: Table, client: Client, write: Write
) -> None:
    lease = leased(admin, table, client)
    set_where(admin, table, "state = 'RESOLVED', leased_by = 'neighbour'")
    assert_told_lost_and_unchanged(admin, client, lease, write)


@every_write
def test_after_a_reclaim(admin: Conn, table: Table, client: Client, write: Write, settled_server: None) -> None:
    lease = leased(admin, table, client)
    expire(admin, table)
    client.reclaim()
    assert_told_lost_and_unchanged(admin, client, lease, write)


@every_write
@pytest.mark.parametrize("state", ["PENDING", "SCHEDULED", "FAILED", "REPAIR"])
def test_when_the_state_alone_says_so(admin: Conn, table: Table, client: Client, write: Write, state: str) -> None:
    """Somebody changed the state by hand and left owner and token."""
    lease = leased(admin, table, client)
    set_where(admin, table, "state = %(state)s", state=state)
    assert_told_lost_and_unchanged(admin, client, lease, write)


@every_write
def test_with_a_token_that_was_never_given(admin: Conn, table: Table, client: Client, write: Write) -> None:
    assert_told_lost_and_unchanged(admin, client, lost(leased(admin, table, client), token=uuid4()), write)


@every_write
def test_under_another_workers_name(admin: Conn, table: Table, client: Client, write: Write) -> None:
    assert_told_lost_and_unchanged(admin, client, lost(leased(admin, table, client), worker_id="impostor"), write)


@every_write
def test_after_the_row_was_deleted(admin: Conn, table: Table, client: Client, write: Write) -> None:
    """B52: cancelled by deletion: a clean LOST, no error."""
    lease = leased(admin, table, client)
    admin.execute(f"DELETE FROM {name_of(table)}")
    assert write(client, lease) == Outcome.LOST
    assert rows(admin, table) == {}


@every_write
def test_after_the_table_was_truncated(admin: Conn, table: Table, client: Client, write: Write) -> None:
    lease = leased(admin, table, client)
    admin.execute(f"TRUNCATE {name_of(table)}")
    assert write(client, lease) == Outcome.LOST


@every_write
def test_repeat_of_ones_own_completion_is_recognised(admin: Conn, table: Table, client: Client, write: Write) -> None:
    lease = leased(admin, table, client)
    assert client.resolve(lease, result={"first": 1}) == [Outcome.RESOLVED]
    before = row(admin, table, lease.id)
    assert write(client, lease) == Outcome.ALREADY_RESOLVED
    assert row(admin, table, lease.id) == before


def test_a_completion_that_waits_for_the_reclaimer_loses(
    admin: Conn, table: Table, open_client: OpenClient, settled_server: None
) -> None:
    """The row changes while the completion waits for its lock: the fence is checked against the new version."""
    one, two = open_client(table), open_client(table)
    lease = leased(admin, table, one)
    expire(admin, table)
    with two.driver.transaction():
        assert [item.id for item in two.reclaim()] == [lease.id]
        with background(lambda: one.resolve(lease, result="zombie")) as resolving:
            assert blocked_or_done(admin, resolving, one.driver.pid)
            two.driver.execute("SELECT 1")
            assert not resolving.done()
            two.driver.execute("COMMIT")
    assert resolving.result() == [Outcome.LOST]
    assert (row(admin, table, lease.id)["state"], row(admin, table, lease.id)["result"]) == ("PENDING", None)


class TestTwoLeasesOnOneItem:
    """A process that was frozen: its item was reclaimed and leased again by the same process, and the old handler still runs.
    Both handlers end at once and their writes travel in one call."""

    @pytest.fixture
    def pair(self, admin: Conn, table: Table, client: Client, settled_server: None) -> tuple[Lease, Lease]:
        old = leased(admin, table, client)
        expire(admin, table)
        client.reclaim()
        return old, client.claim()[0].lease

    @pytest.mark.parametrize("order", [1, -1], ids=["old first", "new first"])
    @pytest.mark.parametrize("column", [False, True], ids=["result", "column"])
    def test_the_zombies_result_is_not_stored(
        self, admin: Conn, table: Table, client: Client, pair: tuple[Lease, Lease], order: int, column: bool
    ) -> None:
        old, new = pair
        texts = ("zombie", "rightful")
        completions = [
            Completion(lease, text, {"decision": text} if column else {}) for lease, text in zip((old, new), texts, strict=True)
        ][::order]
        outcomes = client.call("resolve", completions)
        stored = row(admin, table, new.id)
        assert (stored["result"], stored["decision"]) == ("rightful", "rightful" if column else None)
        assert (outcomes.of(old), outcomes.of(new)) == (Outcome.LOST, Outcome.RESOLVED)
        assert outcomes[new.id] == Outcome.RESOLVED

    @pytest.mark.parametrize("order", [1, -1], ids=["old first", "new first"])
    def test_the_zombies_verdict_is_not_taken(
        self, admin: Conn, table: Table, client: Client, pair: tuple[Lease, Lease], order: int
    ) -> None:
        old, new = pair
        settlements = [Settlement(old, "FAIL", error="zombie"), Settlement(new, "RETRY", error="rightful")][::order]
        outcomes = client.call("settle", settlements)
        stored = row(admin, table, new.id)
        assert (stored["state"], stored["last_error"]) == ("PENDING", "rightful")
        assert (outcomes.of(old), outcomes.of(new)) == (Outcome.LOST, Outcome.RETRIED)

    def test_the_zombie_is_told_that_its_renewal_failed(self, client: Client, pair: tuple[Lease, Lease]) -> None:
        old, new = pair
        outcomes = client.call("renew", [new, old], config=client.config)
        assert (outcomes.of(old), outcomes.of(new)) == (Outcome.LOST, Outcome.RENEWED)

    def test_in_the_callers_transaction_the_zombie_is_not_overlooked(self, client: Client, pair: tuple[Lease, Lease]) -> None:
        old, new = pair
        with pytest.raises(LeaseNotHeld), client.driver.transaction():
            client.resolve(new, old)


def test_same_completion_twice_in_one_call_counts_once(admin: Conn, table: Table, client: Client) -> None:
    lease = leased(admin, table, client)
    assert client.resolve(lease, lease) == [Outcome.RESOLVED, Outcome.RESOLVED]
    assert client.resolve(lease) == [Outcome.ALREADY_RESOLVED]


def test_leases_of_two_workers_in_one_call_are_refused(admin: Conn, table: Table, open_client: OpenClient) -> None:
    one, two = open_client(table), open_client(table)
    leases = [leased(admin, table, one), leased(admin, table, two)]
    with pytest.raises(BadInput, match="one worker"):
        one.resolve(*leases)


def test_a_zombie_in_a_batch_does_not_hold_up_the_others(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 5)
    leases = [item.lease for item in client.claim(5)]
    zombie = lost(leases[2], token=uuid4())
    outcomes = client.resolve(*leases[:2], zombie, *leases[3:])
    assert outcomes == [Outcome.RESOLVED, Outcome.RESOLVED, Outcome.LOST, Outcome.RESOLVED, Outcome.RESOLVED]
    assert row(admin, table, zombie.id)["state"] == "ASSIGNED"


class TestInTheCallersTransaction:
    """There anything but the wanted outcome raises, so that the caller's effects roll back with the refused write."""

    @pytest.mark.parametrize("write", [w for name, w in WRITES.items() if name != "renew"])
    def test_lost_lease_raises_and_the_effect_rolls_back(self, admin: Conn, table: Table, client: Client, write: Write) -> None:
        lease = leased(admin, table, client)
        admin.execute("CREATE TABLE IF NOT EXISTS effect (item text)")
        set_where(admin, table, "leased_by = 'somebody else'")

        def effect_then_write() -> None:
            with client.driver.transaction():
                client.driver.execute("INSERT INTO effect VALUES (%s)", [str(lease.id)])
                write(client, lease)

        with pytest.raises(LeaseNotHeld) as caught:
            effect_then_write()
        assert caught.value.outcomes == {lease.id: Outcome.LOST}
        assert admin.execute("SELECT count(*) FROM effect WHERE item = %s", [str(lease.id)]).fetchone() == (0,)

    def test_a_repeat_raises_too(self, admin: Conn, table: Table, client: Client) -> None:
        lease = leased(admin, table, client)
        client.resolve(lease)
        with pytest.raises(LeaseNotHeld, match="ALREADY_RESOLVED"), client.driver.transaction():
            client.resolve(lease)

    def test_effect_and_completion_commit_together(self, admin: Conn, table: Table, client: Client) -> None:
        lease = leased(admin, table, client)
        with client.driver.transaction():
            client.resolve(lease)
            assert row(admin, table, lease.id)["state"] == "ASSIGNED"  # not yet seen by others
            client.call("set_result", lease, {"sum": 3})
        assert (row(admin, table, lease.id)["state"], row(admin, table, lease.id)["result"]) == ("RESOLVED", {"sum": 3})

    def test_his_settings_are_left_alone(self, admin: Conn, table: Table, client: Client) -> None:
        lease = leased(admin, table, client)
        with client.driver.transaction():
            client.driver.execute("SET LOCAL statement_timeout = '77s'")
            client.resolve(lease)
            (shown,) = client.driver.execute("SHOW statement_timeout")
        assert shown == {"statement_timeout": "77s"}


def test_result_without_a_completed_lease_is_refused(admin: Conn, table: Table, client: Client) -> None:
    lease = leased(admin, table, client)
    with pytest.raises(LeaseNotHeld):
        client.call("set_result", lease, {"too": "early"})
    assert row(admin, table, lease.id)["result"] is None


class TestUnknownCommit:
    """`lease_outcome` says what a COMMIT did whose reply was lost."""

    def test_it_happened(self, admin: Conn, table: Table, client: Client) -> None:
        lease = leased(admin, table, client)
        client.resolve(lease)
        assert client.call("lease_outcome", lease) == Outcome.RESOLVED

    def test_it_did_not(self, admin: Conn, table: Table, client: Client) -> None:
        assert client.call("lease_outcome", leased(admin, table, client)) is None

    def test_the_lease_is_somebody_elses(self, admin: Conn, table: Table, client: Client) -> None:
        lease = leased(admin, table, client)
        set_where(admin, table, "leased_by = 'neighbour'")
        assert client.call("lease_outcome", lease) == Outcome.LOST

    @pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
    def test_it_is_still_under_way(self, admin: Conn, table: Table, open_client: OpenClient, end: str) -> None:
        """The old connection's transaction still holds the row: the answer waits for its end."""
        one, two = open_client(table), open_client(table)
        lease = leased(admin, table, one)
        one.driver.execute("BEGIN")
        one.resolve(lease)
        with background(lambda: two.call("lease_outcome", lease)) as asking:
            assert blocked_or_done(admin, asking, two.driver.pid), "the answer did not wait for the transaction that decides it"
            one.driver.execute(end)
        assert asking.result() == (Outcome.RESOLVED if end == "COMMIT" else None)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_after_a_lost_claim_reply_the_release_waits_for_the_claim_under_way(
    admin: Conn, table: Table, open_client: OpenClient, end: str
) -> None:
    """Its COMMIT is on the way (a slow disk, a synchronous standby): looked for too early, its leases would stay unknown."""
    (item_id,) = add(admin, table)
    one = open_client(table)
    two = open_client(table, worker_id=one.worker_id)
    one.call("register", one.worker_id)
    one.driver.execute("BEGIN")
    assert len(one.claim(registered=True)) == 1
    with background(lambda: two.call("release_unheld", worker_id=one.worker_id, held_tokens=[])) as releasing:
        assert blocked_or_done(admin, releasing, two.driver.pid), "the release did not wait for the claim under way"
        one.driver.execute(end)
    assert releasing.result() == (1 if end == "COMMIT" else 0)
    assert row(admin, table, item_id)["state"] == "PENDING"


def test_after_a_lost_claim_reply_only_what_is_not_held_is_released(admin: Conn, table: Table, open_client: OpenClient) -> None:
    add(admin, table, 6)
    one, two = open_client(table), open_client(table)
    held, unknown, others = one.claim(2), one.claim(2), two.claim(2)
    assert one.call("release_unheld", worker_id=one.worker_id, held_tokens=[item.lease.token for item in held]) == 2
    stored = rows(admin, table)
    for item in unknown:
        assert (stored[item.id]["state"], stored[item.id]["attempt"], stored[item.id]["lease_token"]) == ("PENDING", 0, None)
    for item in (*held, *others):
        assert (stored[item.id]["state"], stored[item.id]["lease_token"]) == ("ASSIGNED", item.lease.token)
    assert one.call("release_unheld", worker_id=two.worker_id, held_tokens=[]) == 2


@every_write
def test_an_id_of_another_type_is_refused_before_anything_is_written(
    admin: Conn, table: Table, client: Client, write: Write
) -> None:
    add(admin, table)
    (item,) = client.claim()
    with pytest.raises(BadInput, match="is text"):
        write(client, item.lease._replace(id=str(item.id)))
    assert row(admin, table, item.id)["lease_token"] == item.lease_token


def test_an_unknown_verb_ends_no_lease(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table)
    (item,) = client.claim()
    with pytest.raises(BadInput, match="must be one of RETRY"):
        client.call("settle", [Settlement(item.lease, "DONE")])
    assert row(admin, table, item.id)["state"] == "ASSIGNED"
