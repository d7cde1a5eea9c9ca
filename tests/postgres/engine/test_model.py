"""The whole state machine against a model: random workers, zombies, expiries, neighbours and clock jumps on real PostgreSQL.

The seed is fixed and printed; `LEASEQUEUE_MODEL_SEED` sets another, `LEASEQUEUE_MODEL=long` runs tens of thousands of steps.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from leasequeue import ClaimMark, Completion, Outcome, Settlement, State, Table
from leasequeue.config import LeaseConfig
from leasequeue.item import Lease
from tests.postgres.engine.support import DRIVERS, Client, add, name_of, set_where

SEED = int(os.environ.get("LEASEQUEUE_MODEL_SEED", "20250601"))
LONG = os.environ.get("LEASEQUEUE_MODEL") == "long"
EXAMPLES, STEPS = (2_000, 100) if LONG else (250, 50)
# A failure is shown as it is found; LEASEQUEUE_MODEL=long also shrinks it.
PHASES = tuple(Phase) if LONG else (Phase.generate,)
WORKERS = ("w0", "w1", "w2")
PODS = {"w0": "pod-a", "w1": "pod-a", "w2": "pod-b"}
MAX_ATTEMPTS, MAX_CRASHES = 3, 2
CONFIG = LeaseConfig(lock_timeout_ms=120_000, max_attempts=MAX_ATTEMPTS)
SWEEP = LeaseConfig(lock_timeout_ms=1_000, reclaim_after_s=60, max_crashes=MAX_CRASHES, reclaim_batch=10_000)


@dataclass
class Row:
    """What the model says of one item. `end` of a lease: live, ended (not yet reclaimable), or stale."""

    id: Any
    priority: int
    number: int
    due: bool
    state: str = "PENDING"
    owner: str | None = None
    token: UUID | None = None
    attempt: int = 0
    crashes: int = 0
    end: str = "live"

    def clear(self, state: str) -> None:
        self.state, self.owner, self.token = state, None, None


@dataclass
class Process:
    """A worker process: every lease it ever got, and its keyset mark with a clock of its own."""

    client: Client
    leases: list[Lease] = field(default_factory=list)
    now: float = 0.0
    exact: bool = True  # its mark is at the head: the next claim must find everything

    def __post_init__(self) -> None:
        self.mark = ClaimMark(clock=lambda: self.now)


class LeaseMachine(RuleBasedStateMachine):
    """Rules are what may happen; each is done to the database and to the model, and answers and rows must agree."""

    table: Table
    admin: psycopg.Connection[Any]
    clients: dict[str, Client]
    steps = 0
    met: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.admin.execute(f"DELETE FROM {name_of(self.table)}")
        self.rows: dict[Any, Row] = {}
        self.processes = {name: Process(client) for name, client in self.clients.items()}
        self.cordoned: set[str] = set()
        self.numbers = 0

    # --- helpers of the model -------------------------------------------------------------------------------------------

    def claimable(self) -> list[Row]:
        found = [r for r in self.rows.values() if r.state == "PENDING" and r.due]
        return sorted(found, key=lambda r: (-r.priority, r.number))

    def standing(self, lease: Lease) -> Row | None:
        row = self.rows.get(lease.id)
        held = row and row.state == "ASSIGNED" and (row.owner, row.token) == (lease.worker_id, lease.token)
        return row if held else None

    def not_standing(self, lease: Lease) -> Outcome:
        row = self.rows.get(lease.id)
        own = row and row.state == "RESOLVED" and (row.owner, row.token) == (lease.worker_id, lease.token)
        return Outcome.ALREADY_RESOLVED if own else Outcome.LOST

    def pick(self, worker: str, picks: list[int]) -> list[Lease]:
        """Some of a worker's leases, standing or long lost, each once."""
        leases = self.processes[worker].leases[-12:]
        return list(dict.fromkeys(leases[-1 - pick % len(leases)] for pick in picks)) if leases else []

    # --- rules ----------------------------------------------------------------------------------------------------------

    @initialize(n=st.integers(3, 12))
    def start(self, n: int) -> None:
        for name, process in self.processes.items():
            process.client.call("register", name, pod_uid=PODS[name], pod_name=PODS[name], slots=1)
        self.admin.execute("UPDATE leasequeue.worker SET cordoned_until = NULL")
        for _ in range(n):
            self.enqueue(0, True)

    @rule(
        actions=st.lists(
            st.tuples(
                st.sampled_from(["claim", "claim", "renew", "resolve", "settle", "expire", "reclaim", "theirs", "tear"]),
                st.sampled_from(WORKERS),
                st.integers(0, 11),
            ),
            min_size=4,
            max_size=14,
        )
    )
    def busy_moment(self, actions: list[tuple[str, str, int]]) -> None:
        """Many things at once; hypothesis leaves out some rules in each run, and this one brings them together."""
        for action, worker, pick in actions:
            if action == "claim":
                self.claim(worker, 1 + pick % 4, pick % 3 == 0, pick % 5 == 0)
            elif action in ("renew", "resolve"):
                getattr(self, action)(worker, [pick, pick + 1], *([pick % 2 == 0] if action == "resolve" else []))
            elif action == "settle":
                verbs = ["RETRY", "FAIL", "RELEASE", "REPAIR", "RETRY", "RETRY"]
                self.settle(worker, [pick], verbs[pick % 6 :], pick % 4 == 0)
            elif action == "expire" and any(r.state == "ASSIGNED" for r in self.rows.values()):
                self.time_passes_for_a_lease(pick, pick % 4 != 0)
            elif action == "reclaim":
                self.reclaim()
            elif action == "theirs":
                self.neighbour_claims(1)
            elif action == "tear":
                self.neighbour_reclaims()
            if len(self.claimable()) < 3:
                self.enqueue(pick % 3, True)
            self.database_is_as_the_model_says()

    @rule(priority=st.sampled_from([0, 0, 1, 7, -2]), due=st.sampled_from([True, True, True, False]))
    def enqueue(self, priority: int, due: bool) -> None:
        at = "2024-01-01Z" if due else "2999-01-01Z"
        (item_id,) = add(self.admin, self.table, priority=priority, run_at=at)
        self.numbers += 1
        self.rows[item_id] = Row(item_id, priority, self.numbers, due)

    @rule(worker=st.sampled_from(WORKERS), n=st.integers(1, 6), marked=st.booleans(), registered=st.booleans())
    def claim(self, worker: str, n: int, marked: bool, registered: bool) -> None:
        process = self.processes[worker]
        mark = process.mark if marked else None
        claimed = process.client.claimed(n, mark=mark, registered=registered, config=CONFIG)
        expected = self.claimable()
        if registered and worker in self.cordoned:
            assert (claimed.items, claimed.admission) == ([], "cordoned")
            expected = []
        got = [item.id for item in claimed.items]
        if not marked or process.exact:
            assert got == [r.id for r in expected[:n]]
        else:
            assert len(got) <= n
            assert got == [r.id for r in expected if r.id in got], "not claimable, or out of order"
        if marked:
            process.exact = len(got) < n
        for item in claimed.items:
            row = self.rows[item.id]
            row.state, row.owner, row.token, row.end = "ASSIGNED", worker, item.lease.token, "live"
            row.attempt += 1
            assert item.attempt == row.attempt
            process.leases.append(item.lease)

    @rule(worker=st.sampled_from(WORKERS), picks=st.lists(st.integers(0, 40), min_size=1, max_size=5))
    def renew(self, worker: str, picks: list[int]) -> None:
        leases = self.pick(worker, picks)
        outcomes = self.processes[worker].client.call("renew", leases, config=CONFIG)
        for lease in leases:
            row = self.standing(lease)
            assert outcomes.of(lease) == (Outcome.RENEWED if row else self.not_standing(lease))
            self.met[outcomes.of(lease)] += 1
            if row:
                row.end = "live"

    @rule(worker=st.sampled_from(WORKERS), picks=st.lists(st.integers(0, 40), min_size=1, max_size=5), result=st.booleans())
    def resolve(self, worker: str, picks: list[int], result: bool) -> None:
        leases = self.pick(worker, picks)
        given = [Completion(lease, str(lease.token) if result else None) for lease in leases]
        outcomes = self.processes[worker].client.call("resolve", given)
        expected = {}
        for lease in leases:
            row = self.standing(lease)
            expected[lease] = Outcome.RESOLVED if row else self.not_standing(lease)
            if row:
                row.state = "RESOLVED"
        assert {lease: outcomes.of(lease) for lease in leases} == expected
        self.met.update(expected.values())

    @rule(
        worker=st.sampled_from(WORKERS),
        picks=st.lists(st.integers(0, 40), min_size=1, max_size=4),
        verbs=st.lists(st.sampled_from(["RETRY", "RETRY", "FAIL", "REPAIR", "RELEASE"]), min_size=4, max_size=4),
        later=st.booleans(),
    )
    def settle(self, worker: str, picks: list[int], verbs: list[str], later: bool) -> None:
        leases = self.pick(worker, picks)
        given = [Settlement(le, verb, 3600.0 * later, verb) for le, verb in zip(leases, verbs, strict=False)]
        outcomes = self.processes[worker].client.call("settle", given, config=CONFIG)
        for settlement in given:
            row = self.standing(settlement.lease)
            wanted = self._settled(row, settlement.verb, later) if row else self.not_standing(settlement.lease)
            assert outcomes.of(settlement.lease) == wanted, settlement
            self.met[wanted] += 1

    def _settled(self, row: Row, verb: str, later: bool) -> Outcome:
        if verb == "FAIL" or (verb == "RETRY" and row.attempt >= MAX_ATTEMPTS):
            row.clear("FAILED")
            if verb == "RETRY" and later:
                row.due = False
            return Outcome.FAILED
        if verb == "REPAIR":
            row.clear("REPAIR")
            return Outcome.REPAIR
        row.clear("SCHEDULED" if later else "PENDING")
        if later:
            row.due = False
        if verb == "RELEASE":
            row.attempt -= 1
            return Outcome.RELEASED
        return Outcome.RETRIED

    @rule(worker=st.sampled_from(WORKERS), keep=st.integers(0, 3))
    def lost_claim_reply(self, worker: str, keep: int) -> None:
        """The process knows of its newest leases only; the others of its name are given back."""
        known = [lease.token for lease in self.processes[worker].leases[-keep:]] if keep else []
        released = self.processes[worker].client.call("release_unheld", worker_id=worker, held_tokens=known)
        unknown = [r for r in self.rows.values() if r.state == "ASSIGNED" and r.owner == worker and r.token not in known]
        assert released == len(unknown)
        for row in unknown:
            row.clear("PENDING")
            row.attempt -= 1

    @precondition(lambda self: any(r.state == "ASSIGNED" for r in self.rows.values()))
    @rule(pick=st.integers(0, 40), stale=st.sampled_from([True, True, False]))
    def time_passes_for_a_lease(self, pick: int, stale: bool) -> None:
        leased = [r for r in self.rows.values() if r.state == "ASSIGNED"]
        row = leased[pick % len(leased)]
        ago = "1 hour" if stale else "5 seconds"
        at = "clock_timestamp() - %(ago)s::interval"
        set_where(self.admin, self.table, f"lease_expires_at = {at}", "id = %(id)s", ago=ago, id=row.id)
        row.end = "stale" if stale else "ended"

    @rule()
    def reclaim(self) -> None:
        page = self.processes["w0"].client.call("reclaim", config=SWEEP)
        stale = [r for r in self.rows.values() if r.state == "ASSIGNED" and r.end == "stale"]
        assert {(r.id, r.leased_by) for r in page.items} == {(r.id, r.owner) for r in stale}
        for row in stale:
            row.crashes += 1
            row.clear("REPAIR" if row.crashes >= MAX_CRASHES else "PENDING")
            self.met[f"reclaimed to {row.state}"] += 1

    @rule(pick=st.integers(0, 40))
    def becomes_due(self, pick: int) -> None:
        waiting = [r for r in self.rows.values() if not r.due]
        if waiting:
            row = waiting[pick % len(waiting)]
            set_where(self.admin, self.table, "run_at = '2024-01-01Z'", "id = %(id)s", id=row.id)
            row.due = True

    @rule()
    def promote(self) -> None:
        due = [r for r in self.rows.values() if r.state == "SCHEDULED" and r.due]
        assert self.processes["w1"].client.call("promote") == len(due)
        for row in due:
            row.state = "PENDING"

    @rule()
    def defer(self) -> None:
        future = [r for r in self.rows.values() if r.state == "PENDING" and not r.due]
        assert self.processes["w1"].client.call("defer") == len(future)
        for row in future:
            row.state = "SCHEDULED"

    @rule(n=st.integers(1, 3))
    def neighbour_claims(self, n: int) -> None:
        """Plain SQL, oldest first; writes neither token nor attempt."""
        claimed = self.admin.execute(
            f"UPDATE {name_of(self.table)} SET state = 'ASSIGNED', leased_by = 'legacy', leased_at = now(), "
            f"lease_expires_at = now() + interval '5 minutes' WHERE id IN (SELECT id FROM {name_of(self.table)} "
            f"WHERE state = 'PENDING' ORDER BY created_at LIMIT {n} FOR UPDATE SKIP LOCKED) RETURNING id"
        ).fetchall()
        for (item_id,) in claimed:
            row = self.rows[item_id]
            row.state, row.owner, row.end = "ASSIGNED", "legacy", "live"

    @rule()
    def neighbour_completes(self) -> None:
        self.admin.execute(
            f"UPDATE {name_of(self.table)} SET state = 'RESOLVED' WHERE state = 'ASSIGNED' AND leased_by = 'legacy'"
        )
        for row in self.rows.values():
            if (row.state, row.owner) == ("ASSIGNED", "legacy"):
                row.state = "RESOLVED"

    @rule()
    def neighbour_reclaims(self) -> None:
        self.admin.execute(
            f"UPDATE {name_of(self.table)} SET state = 'PENDING', leased_by = NULL, leased_at = NULL, lease_expires_at = NULL "
            "WHERE state = 'ASSIGNED' AND lease_expires_at < now()"
        )
        for row in self.rows.values():
            if row.state == "ASSIGNED" and row.end != "live":
                self.met[f"torn from {'a neighbour' if row.owner == 'legacy' else 'us'}"] += 1
                row.state, row.owner = "PENDING", None  # the token stays behind

    @rule(worker=st.sampled_from(WORKERS), jump_s=st.sampled_from([0.2, 1.0, 3600.0]))
    def clients_clock_jumps(self, worker: str, jump_s: float) -> None:
        process = self.processes[worker]
        process.now += jump_s
        if jump_s >= 1.0:
            process.exact = True

    @rule(pod=st.sampled_from(["pod-a", "pod-b"]), lift=st.booleans())
    def cordon(self, pod: str, lift: bool) -> None:
        names = {name for name, where in PODS.items() if where == pod}
        assert set(self.processes["w2"].client.call("cordon", [pod], seconds=0 if lift else 60)) == names
        self.cordoned = self.cordoned - names if lift else self.cordoned | names

    @rule(pick=st.integers(0, 40))
    def row_is_deleted(self, pick: int) -> None:
        if len(self.rows) > 3:
            row = list(self.rows.values())[pick % len(self.rows)]
            self.admin.execute(f"DELETE FROM {name_of(self.table)} WHERE id = %s", [row.id])
            del self.rows[row.id]

    @rule()
    def figures(self) -> None:
        stats = self.processes["w2"].client.call("stats")
        counts = {state: sum(r.state == state for r in self.rows.values()) for state in State}
        assert stats.counts == counts
        assert stats.expired == sum(r.state == "ASSIGNED" and r.end != "live" for r in self.rows.values())

    @invariant()
    def database_is_as_the_model_says(self) -> None:
        type(self).steps += 1
        found = self.admin.execute(
            f"SELECT id, state, leased_by, lease_token, attempt, crash_count, result FROM {name_of(self.table)}"
        ).fetchall()
        assert {r[0]: r[1:6] for r in found} == {
            r.id: (r.state, r.owner, r.token, r.attempt, r.crashes) for r in self.rows.values()
        }
        for r in found:  # a result is that of the lease that resolved the row
            assert r[6] is None or r[6] == str(r[3])


@pytest.fixture
def machine(table: Table, admin: psycopg.Connection[Any], kind: str, queue_dsn: str) -> Iterator[type[LeaseMachine]]:
    clients = {name: Client(DRIVERS[kind](queue_dsn), table, name, CONFIG) for name in WORKERS}
    yield type(
        f"Machine_{kind}", (LeaseMachine,), {"table": table, "admin": admin, "clients": clients, "steps": 0, "met": Counter()}
    )
    for client in clients.values():
        client.driver.close()


@pytest.mark.timeout(3600 if LONG else 300)
@pytest.mark.usefixtures("settled_server")
def test_the_engine_behaves_like_its_model(machine: type[LeaseMachine], capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nmodel: seed {SEED}, {EXAMPLES} runs of up to {STEPS} steps ", end="")
    checked = settings(
        max_examples=EXAMPLES,
        phases=PHASES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    seed(SEED)(machine)
    run_state_machine_as_test(machine, settings=checked)
    with capsys.disabled():
        print(f"{machine.steps} steps: {dict(machine.met)} ", end="")
    assert machine.steps > EXAMPLES * STEPS / 4
    wanted = {*Outcome, "reclaimed to PENDING", "reclaimed to REPAIR", "torn from us", "torn from a neighbour"} - {
        Outcome.BUSY,
        Outcome.REFUSED,
    }
    assert not wanted - set(machine.met), "the runs were too tame to prove anything"
