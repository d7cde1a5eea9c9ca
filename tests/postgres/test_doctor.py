"""The doctor on a real PostgreSQL: a clean queue without a finding, and each finding made to happen."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from uuid import uuid4

import click
import psycopg
import pytest
from click.testing import CliRunner

import leasequeue
from devtools.pgserver import PgServer
from leasequeue import LeaseConfig, Table, WorkerCounters
from leasequeue.cli.app import cli
from leasequeue.cli.doctor import doctor_command
from leasequeue.doctor import Code, Diagnosis, Finding, Limits, Severity, diagnose
from leasequeue.enqueue import enqueue
from leasequeue.errors import BadInput
from leasequeue.schema import ColumnSpec, adopt, create

Conn = psycopg.Connection
CONFIG = LeaseConfig(lock_timeout_ms=30_000)
STRICT = LeaseConfig(lock_timeout_ms=30_000, strict_lanes=True)
SECRET = "payload-nobody-may-see"
ONCE = Limits(watch_s=0)
UP = "UPDATE jobs SET "


@pytest.fixture
def queue(conn: Conn) -> Table:
    """An empty queue with an amount and a payload."""
    return made(conn)


def made(conn: Conn, name: str = "jobs", *, strict: bool = False) -> Table:
    columns = [ColumnSpec("amount", "numeric(18,2)"), ColumnSpec("payload", "text")]
    create(conn, name, columns=columns, id_type="bigint", strict_lanes=strict)
    return Table.load(conn, name)


def add(conn: Conn, queue: Table, n: int = 1, **columns: object) -> list[int]:
    rows = [{"payload": SECRET, "amount": "1.50", **columns} for _ in range(n)]
    return [done.id for done in enqueue(conn, queue, rows)]


def lease(conn: Conn, queue: Table, n: int = 1, worker: str = "w1", config: LeaseConfig = CONFIG) -> list[leasequeue.Item]:
    items = leasequeue.claim(conn, queue, worker_id=worker, n=n, config=config).items
    assert len(items) == n
    return items


def only(diagnosis: Diagnosis, code: Code, sign: str) -> Finding:
    """The one finding of this kind; nothing else of its code may be there."""
    found = [f for f in diagnosis.findings if f.code is code]
    assert [f.sign for f in found] == [sign], diagnosis.findings
    assert SECRET not in json.dumps(diagnosis.as_dict())
    assert found[0].cause
    assert found[0].fix
    assert_commands_exist(found[0].fix)
    return found[0]


def assert_commands_exist(fix: str) -> None:
    """Every `leasequeue …` in a fix names a command that exists, with options that it has."""
    for text in re.findall(r"(?:^|[ :])leasequeue ((?:[a-z]+ )+--.*?)(?= -- |;|, | and |$)", fix):
        words = shlex.split(text)
        command: click.Command = cli
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        known = {option for param in command.params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= known, fix


@contextmanager
def meanwhile(action: Callable[[], None], after_s: float = 0.4) -> Iterator[None]:
    """Run `action` while the body runs; its error is the test's."""
    failed: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            failed.append(error)

    timer = threading.Timer(after_s, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()
    assert not failed, failed


# --- nothing to find -------------------------------------------------------------------------------------------------


@pytest.mark.both_versions
@pytest.mark.parametrize("strict", [False, True])
def test_a_queue_in_good_order_has_no_finding(conn: Conn, strict: bool) -> None:
    queue, config = made(conn, strict=strict), STRICT if strict else CONFIG
    add(conn, queue, 6, priority=3)
    for n in range(6):
        add(conn, queue, 2, lane=f"lane-{n}")
    add(conn, queue, run_at="2999-01-01T00:00:00Z")
    leasequeue.register(conn, queue, "w1", slots=4)
    leases = lease(conn, queue, 4, "w1", config)
    leasequeue.resolve(conn, queue, [leasequeue.Completion(item.lease) for item in leases[:2]])
    leasequeue.retry(conn, queue, leases[2].lease, after_s=60, error=SECRET, config=config)
    leasequeue.heartbeat(conn, queue, "w1", WorkerCounters(held=1, running=1, claimed_total=4, finished_total=2))
    leasequeue.swept(conn, queue, reclaimed=0, repaired=0)
    diagnosis = diagnose(conn, "jobs", limits=Limits(watch_s=0.3))
    assert diagnosis.findings == ()
    assert diagnosis.healthy


def test_an_adopted_queue_with_a_past_has_no_finding(conn: Conn) -> None:
    """Rows finished before adoption have neither resolved_at nor a token; that is history, not a bypass."""
    conn.execute(
        "CREATE TABLE old (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'PENDING', "
        "leased_by text, leased_at timestamptz, lease_expires_at timestamptz, created_at timestamptz NOT NULL DEFAULT now())"
    )
    conn.execute("INSERT INTO old (state, leased_by, leased_at) SELECT 'RESOLVED', 'w', now() FROM generate_series(1, 50)")
    conn.execute("INSERT INTO old (state) SELECT 'PENDING' FROM generate_series(1, 50)")
    adopt(conn, "old")
    assert diagnose(conn, "old", limits=ONCE).findings == ()


def test_it_writes_nothing_and_needs_a_connection_of_its_own(conn: Conn, queue: Table) -> None:
    conn.execute("ALTER DATABASE " + conn.info.dbname + " SET default_transaction_read_only = on")
    with psycopg.connect(conn.info.dsn, autocommit=True) as readonly:
        assert diagnose(readonly, "jobs", limits=ONCE).findings == ()
    with conn.transaction(), pytest.raises(BadInput, match="autocommit connection outside a transaction"):
        diagnose(conn, "jobs")


# --- DOUBLE_LEASE ----------------------------------------------------------------------------------------------------


def test_a_writer_that_takes_over_live_leases_is_seen(conn: Conn, queue: Table, dsn: str) -> None:
    add(conn, queue, 3)
    taken = lease(conn, queue, 3)[1].id

    def steal() -> None:
        with psycopg.connect(dsn, autocommit=True) as thief:
            thief.execute(UP + "state = 'ASSIGNED', leased_by = 'script', leased_at = now() WHERE id = %s", (taken,))

    with meanwhile(steal):
        found = only(diagnose(conn, "jobs", limits=Limits(watch_s=1.2)), Code.DOUBLE_LEASE, "stolen")
    assert found.severity is Severity.CRITICAL
    assert found.ids == (str(taken),)
    assert found.evidence["changes"] == [{"id": str(taken), "from": "w1", "to": "script"}]


def test_renewals_and_ordinary_hand_overs_are_no_double_lease(conn: Conn, queue: Table, dsn: str) -> None:
    add(conn, queue, 2)
    renewed, released = lease(conn, queue, 2)

    def go_on() -> None:
        with psycopg.connect(dsn, autocommit=True) as worker:
            leasequeue.renew(worker, queue, [renewed.lease], config=CONFIG)
            leasequeue.release(worker, queue, released.lease)
            lease(worker, queue, 1, "w2")

    with meanwhile(go_on):
        assert diagnose(conn, "jobs", limits=Limits(watch_s=1.2)).findings == ()


def test_a_live_lease_replaced_by_one_without_a_token_is_seen(conn: Conn, queue: Table, dsn: str) -> None:
    add(conn, queue)
    item = lease(conn, queue)[0].id

    def replace() -> None:
        with psycopg.connect(dsn, autocommit=True) as writer:
            writer.execute(UP + "leased_by = 'script', lease_token = NULL, lease_expires_at = now() + interval '1 minute' "
                                "WHERE id = %s", (item,))  # fmt: skip

    with meanwhile(replace):
        found = only(diagnose(conn, "jobs", limits=Limits(watch_s=1.2)), Code.DOUBLE_LEASE, "overwritten")
    assert found.ids == (str(item),)


def test_one_token_on_two_rows_is_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue, 3)
    first, second, _ = lease(conn, queue, 3)
    conn.execute(UP + "lease_token = %s WHERE id = %s", (first.lease_token, second.id))
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.DOUBLE_LEASE, "shared_token")
    assert found.ids == (str(first.id), str(second.id))


def test_a_finished_item_that_is_leased_again_is_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue)
    done = lease(conn, queue)[0]
    leasequeue.resolve(conn, queue, leasequeue.Completion(done.lease))
    conn.execute(UP + "state = 'PENDING', lease_token = NULL")
    diagnosis = diagnose(conn, "jobs", limits=ONCE)
    assert only(diagnosis, Code.BYPASS, "reopened").ids == (str(done.id),)
    lease(conn, queue, 1, "w2")
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.DOUBLE_LEASE, "leased_after_completion")
    assert found.ids == (str(done.id),)


def test_the_same_work_leased_twice_is_seen_where_the_unique_index_is_missing(conn: Conn, queue: Table) -> None:
    conn.execute("DROP INDEX jobs_lq_idempotency_key")
    for _ in range(2):
        conn.execute("INSERT INTO jobs (idempotency_key) VALUES (%s)", (SECRET,))
    twice = lease(conn, queue, 2)
    diagnosis = diagnose(conn, "jobs", limits=ONCE)
    found = only(diagnosis, Code.DOUBLE_LEASE, "same_key")
    assert found.ids == tuple(str(item.id) for item in twice)
    assert found.evidence["leased_more_than_once"] == 1
    assert only(diagnosis, Code.MISSING_INDEX, "missing").evidence["indexes"] == ["jobs_lq_idempotency_key"]


def test_two_leases_in_a_strict_lane_are_seen(conn: Conn) -> None:
    queue = made(conn, strict=True)
    add(conn, queue, 2, lane="site")
    lease(conn, queue, 1, "w1", STRICT)
    lease(conn, queue, 1, "w2", CONFIG)  # a worker that was started without strict lanes
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.DOUBLE_LEASE, "shared_lane")
    assert found.evidence["lanes"] == ["site"]
    assert not [f for f in diagnose(conn, "jobs", limits=Limits(watch_s=0, strict_lanes=False)).findings
                if f.code is Code.DOUBLE_LEASE]  # fmt: skip


def test_a_worker_that_works_on_what_it_no_longer_holds_is_seen(conn: Conn, queue: Table, dsn: str) -> None:
    add(conn, queue)
    leasequeue.register(conn, queue, "w1")
    lease(conn, queue)
    says = WorkerCounters(held=1, running=1, claimed_total=1)
    leasequeue.heartbeat(conn, queue, "w1", says)
    conn.execute(UP + "leased_by = 'w2', lease_token = %s", (uuid4(),))

    def beat() -> None:
        with psycopg.connect(dsn, autocommit=True) as worker:
            leasequeue.heartbeat(worker, queue, "w1", says)

    with meanwhile(beat):
        found = only(diagnose(conn, "jobs", limits=Limits(watch_s=1.2)), Code.DOUBLE_LEASE, "unleased_work")
    assert found.evidence["worker_id"] == "w1"
    assert (found.evidence["held"], found.evidence["leased_in_table"]) == (1, 0)


def test_two_processes_under_one_name_are_seen(conn: Conn, queue: Table, dsn: str) -> None:
    leasequeue.register(conn, queue, "w1")
    leasequeue.heartbeat(conn, queue, "w1", WorkerCounters(claimed_total=500))

    def other() -> None:
        with psycopg.connect(dsn, autocommit=True) as worker:
            leasequeue.heartbeat(worker, queue, "w1", WorkerCounters(claimed_total=7))

    with meanwhile(other):
        found = only(diagnose(conn, "jobs", limits=Limits(watch_s=1.2)), Code.DOUBLE_LEASE, "shared_identity")
    assert found.evidence["claimed_total"] == [500, 7]


# --- LEASE_LEAK, STUCK, INFLIGHT_EXCEEDED ----------------------------------------------------------------------------

NO_GRACE = Limits(watch_s=0, lease_s=0, reclaimer_s=0, reclaim_after_s=45)


def long_up(conn: Conn) -> None:
    """The reclaimer leaves every lease alone for 15 s after the server started, and so does the doctor."""
    deadline = time.monotonic() + 30
    while not conn.execute("SELECT clock_timestamp() > pg_postmaster_start_time() + interval '16 s'").fetchone()[0]:  # type: ignore[index]
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_leases_that_nobody_reclaims_are_seen(conn: Conn, queue: Table) -> None:
    long_up(conn)
    add(conn, queue, 3)
    lease(conn, queue, 3)
    conn.execute(UP + "lease_expires_at = now() - interval '10 minutes', leased_at = now() - interval '11 minutes', crash_count = 1 "
                      "WHERE id <= 2")  # fmt: skip
    found = only(diagnose(conn, "jobs", limits=NO_GRACE), Code.LEASE_LEAK, "not_reclaimed")
    assert found.ids == ("1", "2")
    assert found.evidence["max_crash_count"] == 1
    assert found.evidence["last_sweep"] is None
    assert "No reclaimer has ever run" in found.cause
    leasequeue.swept(conn, queue, reclaimed=0, repaired=0)
    again = only(diagnose(conn, "jobs", limits=Limits(watch_s=0, lease_s=0, reclaimer_s=1)), Code.LEASE_LEAK, "not_reclaimed")
    assert "passes these rows over" in again.cause


@pytest.mark.parametrize("end", ["'infinity'", "now() + interval '40 days'"])
def test_a_lease_that_never_ends_is_seen(conn: Conn, queue: Table, end: str) -> None:
    add(conn, queue)
    lease(conn, queue)
    conn.execute(UP + f"lease_expires_at = {end}")
    assert only(diagnose(conn, "jobs", limits=ONCE), Code.LEASE_LEAK, "endless").ids == ("1",)


def test_a_lease_without_an_end_is_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue)
    lease(conn, queue)
    conn.execute("ALTER TABLE jobs DROP CONSTRAINT jobs_lq_leased")
    conn.execute(UP + "lease_expires_at = NULL")
    diagnosis = diagnose(conn, "jobs", limits=ONCE)
    assert only(diagnosis, Code.LEASE_LEAK, "endless").ids == ("1",)
    assert only(diagnosis, Code.CHECK_NOT_VALID, "missing").fix.startswith("leasequeue schema adopt")


def test_a_reclaimer_that_stopped_is_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue)
    lease(conn, queue)
    leasequeue.swept(conn, queue, reclaimed=0, repaired=0)
    conn.execute("UPDATE leasequeue.queue_stat SET swept_at = now() - interval '2 hours'")
    assert only(diagnose(conn, "jobs", limits=ONCE), Code.LEASE_LEAK, "reclaimer_overdue").evidence["last_sweep_s"] >= 7200


def test_leases_of_a_dead_worker_are_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue, 2)
    leasequeue.register(conn, queue, "w1")
    lease(conn, queue, 2)
    conn.execute("UPDATE leasequeue.worker SET seen_at = now() - interval '5 minutes'")
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.STUCK, "dead_worker")
    assert found.evidence["owners"] == {"w1": 2}
    assert 60 <= found.evidence["reclaimable_in_s"] <= 76


def test_leases_that_a_live_worker_does_not_renew_are_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue)
    leasequeue.register(conn, queue, "w1")
    lease(conn, queue)
    conn.execute(UP + "lease_expires_at = now() - interval '3 s'")
    only(diagnose(conn, "jobs", limits=ONCE), Code.STUCK, "not_renewed")


def test_an_old_lease_of_an_unregistered_client_is_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue)
    lease(conn, queue)
    conn.execute(UP + "leased_at = now() - interval '20 minutes', lease_expires_at = now() + interval '1 hour'")
    only(diagnose(conn, "jobs", limits=ONCE), Code.STUCK, "unregistered")


def test_more_leases_than_the_ceiling_are_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue, 130)
    lease(conn, queue, 130)
    found = only(diagnose(conn, "jobs", limits=Limits(watch_s=0, max_inflight=100)), Code.INFLIGHT_EXCEEDED, "over")
    assert (found.evidence["assigned"], found.evidence["max_inflight"]) == (130, 100)
    leasequeue.start_run(conn, queue, runner="test", max_inflight=120)  # without a limit given, the reclaimer's is taken
    assert only(diagnose(conn, "jobs", limits=ONCE), Code.INFLIGHT_EXCEEDED, "over").evidence["max_inflight"] == 120


# --- STARVATION, POISON ----------------------------------------------------------------------------------------------


def test_a_low_priority_that_starves_is_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue, priority=-5)
    conn.execute(UP + "created_at = now() - interval '1 hour', run_at = now() - interval '1 hour'")
    add(conn, queue, 4, priority=9)
    leasequeue.register(conn, queue, "w1")
    lease(conn, queue, 2)
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.STARVATION, "priority")
    assert found.ids == ("1",)
    assert found.evidence["leased_above"] == 2
    assert found.evidence["oldest_due_s"] >= 3600


@pytest.mark.parametrize(("situation", "sign"), [("empty", "no_workers"), ("cordoned", "cordoned"), ("busy", "capacity"),
                                                 ("full", "ceiling")])  # fmt: skip
def test_why_the_oldest_item_waits(conn: Conn, queue: Table, situation: str, sign: str) -> None:
    add(conn, queue, 101)
    if situation != "empty":
        leasequeue.register(conn, queue, "w1", pod_uid="pod")
    if situation == "cordoned":
        leasequeue.cordon(conn, queue, ["pod"])
    lease(conn, queue, {"full": 100, "busy": 1}.get(situation, 1)) if situation in ("full", "busy") else None
    conn.execute(UP + "created_at = now() - interval '1 hour', run_at = created_at - interval '1 hour' WHERE state = 'PENDING'")
    only(diagnose(conn, "jobs", limits=Limits(watch_s=0, max_inflight=100)), Code.STARVATION, sign)


def test_due_items_that_nobody_promotes_are_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue, 2, run_at="2999-01-01T00:00:00Z")
    conn.execute(UP + "run_at = now() - interval '20 minutes' WHERE id = 2")
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.STARVATION, "not_promoted")
    assert found.ids == ("2",)
    assert found.evidence["items"] == 1


def test_a_lane_behind_an_item_in_repair_is_seen(conn: Conn) -> None:
    queue = made(conn, strict=True)
    add(conn, queue, 3, lane="site")
    add(conn, queue, 1, lane="other")
    bad = lease(conn, queue, 2, "w1", STRICT)
    for item in bad:
        leasequeue.repair(conn, queue, item.lease, error=SECRET)
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.STARVATION, "lane_blocked")
    assert found.evidence == {"lanes": ["site"], "blocked": 1, "waiting": 2}  # the other lane has nobody waiting
    assert found.fix == "leasequeue requeue --id 1 --reason mended --schema public --table jobs -- once it is mended"
    assert diagnose(conn, "jobs", limits=Limits(watch_s=0, on_blocked_head="Pass")).healthy


def test_a_lane_behind_an_item_of_the_far_future_is_seen(conn: Conn) -> None:
    queue = made(conn, strict=True)
    add(conn, queue, 1, lane="site", run_at="2999-01-01T00:00:00Z")
    add(conn, queue, 1, lane="site")
    assert diagnose(conn, "jobs", limits=ONCE).healthy
    only(diagnose(conn, "jobs", limits=Limits(watch_s=0, oldest_due_s=0.001)), Code.STARVATION, "lane_scheduled")


def test_items_that_kill_their_workers_are_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue, 3)
    conn.execute(UP + "crash_count = id - 1, attempt = id - 1")
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.POISON, "crashes")
    assert found.ids == ("3",)
    assert found.evidence["max_crash_count"] == 2


def test_an_item_that_fails_at_once_again_and_again_is_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue)
    for _ in range(3):
        leasequeue.retry(conn, queue, lease(conn, queue)[0].lease, after_s=0, error=SECRET)
    assert only(diagnose(conn, "jobs", limits=ONCE), Code.POISON, "quick_failures").ids == ("1",)


def test_a_hot_loop_is_seen_between_the_looks(conn: Conn, queue: Table, dsn: str) -> None:
    add(conn, queue)
    conn.execute(UP + "created_at = now() - interval '1 day', run_at = now() - interval '1 hour'")  # old: its average is slow
    held = [lease(conn, queue)[0]]

    def loop() -> None:
        with psycopg.connect(dsn, autocommit=True) as worker:
            for _ in range(3):
                leasequeue.retry(worker, queue, held.pop().lease, after_s=0, error="no")
                held.append(lease(worker, queue)[0])

    with meanwhile(loop):
        diagnosis = diagnose(conn, "jobs", limits=Limits(watch_s=1.2))
    assert only(diagnosis, Code.POISON, "quick_failures").ids == ("1",)


def test_items_beyond_their_attempts_are_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue)
    conn.execute(UP + "attempt = 9, created_at = now() - interval '1 day', run_at = now()")
    limits = Limits(watch_s=0, oldest_due_s=1e9)
    assert only(diagnose(conn, "jobs", limits=limits), Code.POISON, "attempts").evidence["max_attempt"] == 9


@pytest.mark.both_versions
def test_items_that_refuse_every_change_are_seen_and_the_fix_mends_it(conn: Conn, queue: Table) -> None:
    bad = add(conn, queue, 3, amount="-1.00")
    add(conn, queue, 2)
    conn.execute("UPDATE jobs SET state = 'RESOLVED', resolved_at = now() WHERE id = %s", [bad[0]])
    conn.execute("ALTER TABLE jobs ADD CONSTRAINT \"50% off\" CHECK (amount > 0 AND payload NOT LIKE 'x%') NOT VALID")
    finding = only(diagnose(conn, "jobs", limits=ONCE), Code.POISON, "refuses_change")
    assert finding.ids == tuple(str(item) for item in bad[1:])
    assert finding.evidence == {"check": "50% off", "items": 2}
    conn.execute(finding.fix.partition("; or ")[2])
    assert diagnose(conn, "jobs", limits=ONCE).findings == ()


# --- BYPASS ----------------------------------------------------------------------------------------------------------


def test_a_writer_without_tokens_is_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue, 2)
    lease(conn, queue)
    conn.execute(UP + "state = 'ASSIGNED', leased_by = 'script', leased_at = now(), lease_expires_at = now() + interval '30 s' "
                      "WHERE state = 'PENDING'")  # fmt: skip
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.BYPASS, "no_token")
    assert found.evidence == {"leases": 1, "ours": 1, "owners": {"script": 1}}


def test_a_home_made_reclaimer_is_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue)
    lease(conn, queue)
    conn.execute(UP + "state = 'PENDING'")
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.BYPASS, "torn")
    assert found.severity is Severity.CRITICAL
    assert found.evidence == {"items": 1, "leases_that_last": 1}
    conn.execute(found.fix.partition("Then clear the marks: ")[2])  # the SQL it proposes can be run as it stands
    assert diagnose(conn, "jobs", limits=ONCE).healthy


def test_completions_past_the_fence_are_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue, 2)
    conn.execute(UP + "state = 'RESOLVED' WHERE id = 1")
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.BYPASS, "no_resolved_at")
    assert found.ids == ("1",)
    conn.execute(found.fix.partition("for the items there are: ")[2])
    assert diagnose(conn, "jobs", limits=ONCE).healthy


def test_leases_of_a_writer_that_forgets_the_expiry_or_has_its_own_clock_are_seen(conn: Conn, queue: Table) -> None:
    add(conn, queue, 2)
    lease(conn, queue, 2)
    conn.execute(UP + "lease_expires_at = leased_at - interval '1 s' WHERE id = 1")
    conn.execute(
        UP + "leased_at = now() + interval '10 minutes', lease_expires_at = now() + interval '11 minutes' WHERE id = 2"
    )
    signs = {f.sign: f.ids for f in diagnose(conn, "jobs", limits=ONCE).findings if f.code is Code.BYPASS}
    assert signs == {"ended_at_birth": ("1",), "clock_ahead": ("2",)}


def test_states_that_nobody_serves_are_seen(conn: Conn, queue: Table) -> None:
    conn.execute("ALTER TABLE jobs DROP CONSTRAINT jobs_lq_state")
    conn.execute("INSERT INTO jobs (state) VALUES ('pending'), ('PENDING '), ('PENDING')")
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.BYPASS, "unknown_state")
    assert found.evidence == {"states": {"pending": 1, "PENDING ": 1}}
    conn.execute(found.fix.partition("; then")[0])
    adopt(conn, "jobs")
    assert diagnose(conn, "jobs", limits=ONCE).healthy


# --- LOCK_CONTENTION, PINNED_XMIN, BLOAT -----------------------------------------------------------------------------


@contextmanager
def waiting(dsn: str, statement: str) -> Iterator[None]:
    """A session that waits for a lock until the block ends."""
    with psycopg.connect(dsn, autocommit=True, application_name="waiter") as blocked:
        pid = blocked.info.backend_pid
        thread = threading.Thread(target=lambda: _ignore(blocked, statement))
        thread.start()
        with psycopg.connect(dsn, autocommit=True) as watch:
            deadline = time.monotonic() + 20
            while not watch.execute("SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted", (pid,)).fetchone()[0]:  # type: ignore[index]
                assert time.monotonic() < deadline
                time.sleep(0.05)
            try:
                yield
            finally:
                watch.execute("SELECT pg_cancel_backend(%s)", (pid,))
                thread.join()


def _ignore(conn: Conn, statement: str) -> None:
    try:
        conn.execute(statement)
    except psycopg.errors.QueryCanceled:
        return


@pytest.mark.both_versions
def test_who_waits_for_a_row_and_who_holds_it_is_seen(conn: Conn, dsn: str) -> None:
    add(conn, made(conn))
    with psycopg.connect(dsn, application_name="holder") as holder:
        holder.execute("SELECT * FROM jobs FOR UPDATE")
        with waiting(dsn, "UPDATE jobs SET priority = 1"):
            found = only(diagnose(conn, "jobs", limits=Limits(watch_s=1.2)), Code.LOCK_CONTENTION, "waits")
        assert found.evidence["blocker"] == holder.info.backend_pid
        assert found.evidence["blocker_name"] == "holder"
        assert found.evidence["waiters"] == ["waiter"]
        assert found.evidence["blocker_state"] == "idle in transaction"


def test_a_locked_table_is_seen_and_what_could_not_be_seen_is_said(conn: Conn, queue: Table, dsn: str) -> None:
    with psycopg.connect(dsn, application_name="ddl") as ddl:
        ddl.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        with waiting(dsn, "SELECT count(*) FROM jobs"):
            diagnosis = diagnose(conn, "jobs", limits=Limits(watch_s=1.2))
    found = only(diagnosis, Code.LOCK_CONTENTION, "waits")
    assert found.evidence["blocker_name"] == "ddl"
    dark = only(diagnosis, Code.COULD_NOT_LOOK, "refused")
    assert "leases" in dark.evidence["looks"]
    assert "the table is locked" in dark.summary


def test_rows_that_a_long_transaction_holds_are_seen_though_nobody_waits(conn: Conn, queue: Table, dsn: str) -> None:
    add(conn, queue)
    with closing(psycopg.connect(dsn, application_name="slow")) as slow:
        slow.execute("SELECT * FROM jobs FOR UPDATE")
        found = only(diagnose(conn, "jobs", limits=Limits(watch_s=0, lock_held_s=0)), Code.LOCK_CONTENTION, "held")
        assert found.evidence["pid"] == slow.info.backend_pid
        assert found.severity is Severity.WARNING
        conn.execute(found.fix.partition("by force: ")[2])
        with pytest.raises(psycopg.OperationalError):
            slow.execute("SELECT 1")


def test_an_old_transaction_that_pins_dead_rows_is_seen(conn: Conn, queue: Table, dsn: str) -> None:
    with psycopg.connect(dsn, application_name="report") as report:
        report.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        report.execute("SELECT count(*) FROM jobs")
        found = only(diagnose(conn, "jobs", limits=Limits(watch_s=0, xmin_s=0)), Code.PINNED_XMIN, "transaction")
        assert found.evidence["pid"] == report.info.backend_pid
        assert "report" in found.evidence["name"]


@pytest.mark.slow
@pytest.mark.both_versions
def test_prepared_transactions_slots_and_standbys_that_pin_are_seen(pg: PgServer) -> None:
    server = PgServer(pg.version, settings={"max_prepared_transactions": "2", "autovacuum": "off"})
    with server, psycopg.connect(server.dsn(), autocommit=True) as conn:
        add(conn, made(conn), 2)
        conn.execute("BEGIN")
        conn.execute("UPDATE jobs SET priority = 1 WHERE id = 1")
        conn.execute("PREPARE TRANSACTION 'forgotten'")
        conn.execute("SELECT pg_create_physical_replication_slot('replica')")
        with standby(server, "replica") as replica:
            until(conn, "SELECT count(*) FROM pg_replication_slots WHERE xmin IS NOT NULL")
            diagnosis = diagnose(conn, "jobs", limits=Limits(watch_s=0, xmin_s=0, xmin_xids=0))
            pins = {(f.sign, f.evidence["name"]) for f in diagnosis.findings if f.code is Code.PINNED_XMIN}
            assert {("prepared", "forgotten"), ("slot", "replica")} <= pins
            only(diagnosis, Code.BLOAT, "autovacuum_off")
            only(diagnosis, Code.LOCK_CONTENTION, "prepared")
            replica.stop()
        with standby(server, None):
            until(conn, "SELECT count(*) FROM pg_stat_replication WHERE backend_xmin IS NOT NULL")
            diagnosis = diagnose(conn, "jobs", limits=Limits(watch_s=0, xmin_s=1e9, xmin_xids=0))
            standbys = [f for f in diagnosis.findings if f.sign == "standby"]
            assert [f.evidence["name"].split()[0] for f in standbys] == ["walreceiver"]
        conn.execute("ROLLBACK PREPARED 'forgotten'")


def until(conn: Conn, question: str) -> None:
    deadline = time.monotonic() + 60
    while not conn.execute(question).fetchone()[0]:  # type: ignore[index]
        assert time.monotonic() < deadline, question
        time.sleep(0.1)


@contextmanager
def standby(primary: PgServer, slot: str | None) -> Iterator[PgServer]:
    """A hot standby of `primary` that reports its queries."""
    replica = PgServer(primary.version, settings={"hot_standby_feedback": "on", "max_prepared_transactions": "2"})
    command = [
        str(primary.bin / "pg_basebackup"),
        "-D",
        str(replica.data),
        "-d",
        primary.dsn(),
        "-R",
        "-c",
        "fast",
        "-X",
        "stream",
    ]
    user = primary._as_user()
    replica.directory.chmod(0o700)
    if user:
        os.chown(replica.directory, user["user"], user["group"])
    subprocess.run(command + (["-S", slot] if slot else []), check=True, capture_output=True, timeout=120, cwd="/tmp", **user)
    with replica:
        yield replica


def test_dead_rows_and_a_vacuum_that_is_off_are_seen(conn: Conn, queue: Table) -> None:
    conn.execute("ALTER TABLE jobs SET (autovacuum_enabled = off)")
    add(conn, queue, 50)
    for _ in range(5):
        conn.execute(UP + "priority = priority + 1")
    conn.execute("SELECT pg_stat_force_next_flush()")
    conn.execute("SELECT 1")
    diagnosis = diagnose(conn, "jobs", limits=Limits(watch_s=0, dead_rows=100))
    assert [f.sign for f in diagnosis.findings if f.code is Code.BLOAT] == ["autovacuum_off", "dead_rows"]
    assert next(f for f in diagnosis.findings if f.sign == "dead_rows").evidence["dead_rows"] == 250


# --- the table itself ------------------------------------------------------------------------------------------------


def test_money_in_floating_point_and_amounts_that_are_no_numbers_are_seen(conn: Conn, queue: Table) -> None:
    conn.execute('ALTER TABLE jobs ADD "unitPrice" double precision, ADD score real, ADD tip money, ADD rate numeric')
    add(conn, queue, 3)
    conn.execute(UP + "rate = 'NaN' WHERE id = 2")
    conn.execute(UP + "amount = 'NaN', rate = 'Infinity' WHERE id = 3")
    found = [f for f in diagnose(conn, "jobs", limits=ONCE).findings if f.code is Code.PRECISION_FAULT]
    assert {(f.sign, f.evidence["column"]): f.ids for f in found} == {
        ("float_money", "unitPrice"): (),
        ("money_type", "tip"): (),
        ("not_a_number", "amount"): ("3",),
        ("not_a_number", "rate"): ("2", "3"),
    }
    for finding in found:
        if finding.sign != "not_a_number":
            conn.execute(finding.fix)
    assert {f.sign for f in diagnose(conn, "jobs", limits=ONCE).findings} == {"not_a_number"}


def test_a_large_table_is_sampled(conn: Conn, queue: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasequeue.doctor.look.WHOLE_BYTES", 1)
    conn.execute("INSERT INTO jobs (amount) SELECT 'NaN' FROM generate_series(1, 200)")
    conn.execute("VACUUM jobs")
    monkeypatch.setattr("leasequeue.doctor.look.WHOLE_BYTES", 10**9)
    assert len(only(diagnose(conn, "jobs", limits=ONCE), Code.PRECISION_FAULT, "not_a_number").ids) == 10
    monkeypatch.setattr("leasequeue.doctor.look.WHOLE_BYTES", 8192)
    found = [f for f in diagnose(conn, "jobs", limits=ONCE).findings if f.code is Code.PRECISION_FAULT]
    assert all(f.evidence["sampled"] for f in found)


def test_missing_changed_and_invalid_indexes_are_seen_and_the_fix_mends_them(conn: Conn, queue: Table) -> None:
    conn.execute("DROP INDEX jobs_lq_claim")
    conn.execute("DROP INDEX jobs_lq_scheduled")
    conn.execute("CREATE INDEX jobs_lq_scheduled ON jobs (run_at) WHERE state = 'SCHEDULED'")
    add(conn, queue, 2)
    with pytest.raises(psycopg.errors.UniqueViolation):
        conn.execute("CREATE UNIQUE INDEX CONCURRENTLY half_built ON jobs (amount)")
    diagnosis = diagnose(conn, "jobs", limits=ONCE)
    missing = only(diagnosis, Code.MISSING_INDEX, "missing")
    assert missing.severity is Severity.CRITICAL
    assert set(missing.evidence["indexes"]) == {"jobs_lq_claim", "jobs_lq_scheduled"}
    assert missing.evidence["other_form"] == ["jobs_lq_scheduled"]
    invalid = only(diagnosis, Code.INVALID_INDEX, "invalid")
    conn.execute(invalid.fix)
    assert missing.fix == "leasequeue schema adopt --schema public --table jobs"
    adopt(conn, "jobs")
    assert diagnose(conn, "jobs", limits=ONCE).healthy


def test_claims_that_read_the_whole_table_are_seen(conn: Conn, queue: Table, dsn: str) -> None:
    add(conn, queue, 20)

    def claim_by_hand() -> None:
        with psycopg.connect(dsn, autocommit=True) as client:
            client.execute("SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off")
            for _ in range(4):
                client.execute(
                    UP
                    + "state = 'ASSIGNED', leased_by = 'script', leased_at = clock_timestamp(), lease_token = gen_random_uuid(), "
                    "lease_expires_at = clock_timestamp() + interval '30 s' WHERE id = (SELECT id FROM jobs WHERE state = 'PENDING' "
                    "ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED)"
                )
            client.execute("SELECT pg_stat_force_next_flush()")

    with meanwhile(claim_by_hand):
        found = only(diagnose(conn, "jobs", limits=Limits(watch_s=2)), Code.UNUSED_INDEX, "claim_unused")
    assert found.evidence["leased_while_watching"] == 4


def test_claims_of_our_own_use_the_claim_index(conn: Conn, queue: Table, dsn: str) -> None:
    add(conn, queue, 20)

    def claim_well() -> None:
        with psycopg.connect(dsn, autocommit=True) as client:
            for _ in range(4):
                lease(client, queue)
                client.execute("SELECT count(*) FROM jobs")  # a dashboard beside it reads the table whole
            client.execute("SELECT pg_stat_force_next_flush()")

    with meanwhile(claim_well):
        assert diagnose(conn, "jobs", limits=Limits(watch_s=2)).findings == ()


def test_indexes_that_only_cost_are_seen(conn: Conn, queue: Table) -> None:
    conn.execute("CREATE INDEX by_expiry ON jobs (lease_expires_at)")
    conn.execute("CREATE INDEX by_state ON jobs (state)")
    add(conn, queue, 300)
    for _ in range(4):
        conn.execute(UP + "amount = amount + 1")
    conn.execute("SELECT pg_stat_force_next_flush()")
    conn.execute("SELECT 1")
    found = {f.sign: f for f in diagnose(conn, "jobs", limits=ONCE).findings if f.code is Code.UNUSED_INDEX}
    assert {sign: f.evidence["index"] for sign, f in found.items()} == {"renewal_not_hot": "by_expiry", "unread": "by_state"}
    for finding in found.values():
        conn.execute(finding.fix)
    assert not [f for f in diagnose(conn, "jobs", limits=ONCE).findings if f.code is Code.UNUSED_INDEX]


def test_a_check_that_was_never_validated_is_seen(conn: Conn, queue: Table) -> None:
    conn.execute("ALTER TABLE jobs DROP CONSTRAINT jobs_lq_priority")
    conn.execute("ALTER TABLE jobs ADD CONSTRAINT jobs_lq_priority CHECK (priority > -2147483648) NOT VALID")
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.CHECK_NOT_VALID, "not_validated")
    assert found.severity is Severity.WARNING


def test_times_without_a_zone_are_seen_and_the_fix_mends_them(conn: Conn, queue: Table) -> None:
    conn.execute("ALTER TABLE jobs ALTER leased_at TYPE timestamp USING leased_at AT TIME ZONE 'UTC'")
    found = only(diagnose(conn, "jobs", limits=ONCE), Code.CLOCK_TYPE, "naive")
    assert found.evidence == {"columns": ["leased_at"]}
    conn.execute(found.fix.partition(" -- ")[0])
    assert diagnose(conn, "jobs", limits=ONCE).healthy


@pytest.mark.parametrize("ddl", ["CREATE TABLE jobs (id int PRIMARY KEY, state text)", "CREATE VIEW jobs AS SELECT 1 AS id"])
def test_a_table_that_is_no_queue_is_told_so(conn: Conn, ddl: str) -> None:
    conn.execute(ddl)
    assert diagnose(conn, "jobs", limits=ONCE).findings[0].code is Code.NOT_ADOPTED


# --- rights, and the command -----------------------------------------------------------------------------------------


@pytest.fixture
def role(conn: Conn) -> Iterator[str]:
    """A login role without any right."""
    name = f"doctor_{uuid4().hex[:8]}"
    conn.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    conn.execute(f"DROP OWNED BY {name}")
    conn.execute(f"DROP ROLE {name}")


def test_what_a_role_may_not_see_is_said_and_the_rest_still_judged(
    pg: PgServer, db: str, conn: Conn, queue: Table, role: str
) -> None:
    conn.execute(f"GRANT SELECT ON jobs TO {role}")
    conn.execute("ALTER TABLE jobs ADD price real")
    with psycopg.connect(pg.dsn(db, role), autocommit=True) as limited:
        diagnosis = diagnose(limited, "jobs", limits=ONCE)
    found = only(diagnosis, Code.COULD_NOT_LOOK, "refused")
    assert found.severity is Severity.UNKNOWN
    assert "permission denied for schema leasequeue" in found.summary
    assert "workers" in found.evidence["looks"]
    only(diagnosis, Code.PRECISION_FAULT, "float_money")


def test_sessions_that_a_role_may_not_see_are_counted(
    pg: PgServer, db: str, conn: Conn, queue: Table, role: str, dsn: str
) -> None:
    conn.execute(f"GRANT SELECT ON jobs TO {role}; GRANT USAGE ON SCHEMA leasequeue TO {role}")
    conn.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA leasequeue TO {role}")
    with psycopg.connect(dsn) as holder:
        holder.execute("LOCK TABLE jobs IN ROW EXCLUSIVE MODE")
        with psycopg.connect(pg.dsn(db, role), autocommit=True) as limited:
            found = only(diagnose(limited, "jobs", limits=ONCE), Code.COULD_NOT_LOOK, "sessions")
            assert found.evidence["sessions"] >= 1
            conn.execute(f"GRANT pg_monitor TO {role}")
        with psycopg.connect(pg.dsn(db, role), autocommit=True) as allowed:
            assert diagnose(allowed, "jobs", limits=ONCE).findings == ()


def test_a_look_that_takes_too_long_is_given_up(conn: Conn, queue: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Table(queue.oid, queue.schema, queue.name, queue.columns)
    object.__setattr__(slow, "_texts", {"doctor_leases": "SELECT pg_sleep(20)"})
    monkeypatch.setattr("leasequeue.doctor.examine.Table", lambda *_: slow)
    found = only(diagnose(conn, "jobs", limits=Limits(watch_s=0, statement_s=0.2)), Code.COULD_NOT_LOOK, "refused")
    assert "took longer than 0.2 s" in found.summary


def test_the_command_tells_people_and_programs(conn: Conn, queue: Table, dsn: str) -> None:
    run = CliRunner().invoke
    here = ["--dsn", dsn, "--table", "jobs", "--watch-s", "0"]
    clean = run(doctor_command, here, standalone_mode=False)
    assert (clean.return_value, clean.output) == (0, "public.jobs: nothing found\n")
    add(conn, queue)
    lease(conn, queue)
    conn.execute(UP + "state = 'PENDING'")
    found = run(doctor_command, here, standalone_mode=False)
    assert found.return_value == 1
    assert "BYPASS critical" in found.output
    assert "fix: " in found.output
    as_json = run(doctor_command, [*here, "--json"], standalone_mode=False)
    assert as_json.return_value == 1
    told = json.loads(as_json.output)
    assert told["healthy"] is False
    assert [(f["code"], f["sign"], f["ids"]) for f in told["findings"]] == [("BYPASS", "torn", ["1"])]
    assert SECRET not in found.output + as_json.output
