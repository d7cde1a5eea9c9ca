"""Guarantees 10 and 11: plans cannot flip, and cost does not grow with what is done or not due.

Every hot statement is planned, generically, while the queue is empty and analysed; then the queue is filled, and the same plan runs.
Judged by nodes and pages, never by times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

import leasequeue
from leasequeue import ClaimMark, Completion, Settlement, Table, schema
from leasequeue.claim import claim_flow
from leasequeue.config import LeaseConfig
from leasequeue.fence import lease_outcome_flow, release_unheld_flow, renew_flow, resolve_flow, settle_flow
from leasequeue.item import Lease
from leasequeue.maintain import defer_flow, promote_flow, reclaim_flow
from leasequeue.sample import stats_flow
from leasequeue.workers import cordon_flow, heartbeat_flow, held_by_pods_flow, register_flow
from tests.postgres.engine.conftest import MakeQueue
from tests.postgres.engine.plans import ExplainingDriver, Plan
from tests.postgres.engine.support import Client, add, bulk, name_of, set_where

Conn = psycopg.Connection[Any]
DONE = 20_000
WORKER = "w"
RECLAIM = LeaseConfig(lock_timeout_ms=1_000, reclaim_after_s=10, reclaim_batch=5)


@dataclass
class Queue:
    """A queue, who explains, and the leases that statements about leases use."""

    table: Table
    driver: ExplainingDriver
    config: LeaseConfig
    mark: ClaimMark

    def claim(self, n: int = 5, **options: Any) -> list[Lease]:
        options.setdefault("config", self.config)
        claimed = self.driver.run(claim_flow(self.table, worker_id=WORKER, n=n, **options))
        return [item.lease for item in claimed.items]


Statement = Callable[[Queue, list[Lease]], Any]
ENFORCED = {"max_inflight_policy": "Enforce", "max_inflight": 1000}

HOT: dict[str, Statement] = {
    "claim": lambda q, leases: q.claim(),
    "claim, registered": lambda q, leases: q.claim(registered=True),
    "claim with a ceiling": lambda q, leases: q.claim(config=LeaseConfig(**ENFORCED)),
    "claim with a mark": lambda q, leases: q.claim(mark=q.mark),
    "claim of lanes": lambda q, leases: q.claim(lanes=["lane 1", "lane 2"]),
    "renew": lambda q, leases: q.driver.run(renew_flow(q.table, leases, config=q.config)),
    "resolve": lambda q, leases: q.driver.run(resolve_flow(q.table, [Completion(x) for x in leases])),
    "resolve, results": lambda q, leases: q.driver.run(resolve_flow(q.table, [Completion(x, 1) for x in leases])),
    "resolve, columns": lambda q, leases: q.driver.run(
        resolve_flow(q.table, [Completion(x, 1, {"decision": "d"}) for x in leases])
    ),
    "resolve, all lost": lambda q, leases: q.driver.run(
        resolve_flow(q.table, [Completion(Lease(x.id, x.token, "other")) for x in leases])
    ),
    "settle": lambda q, leases: q.driver.run(settle_flow(q.table, [Settlement(x, "RETRY", 60.0) for x in leases])),
    "release_unheld": lambda q, leases: q.driver.run(release_unheld_flow(q.table, worker_id=WORKER, held_tokens=[])),
    "lease_outcome": lambda q, leases: leases and q.driver.run(lease_outcome_flow(q.table, leases[0])),
    "reclaim": lambda q, leases: q.driver.run(reclaim_flow(q.table, config=RECLAIM)),
    "promote": lambda q, leases: q.driver.run(promote_flow(q.table, limit=5)),
    "defer": lambda q, leases: q.driver.run(defer_flow(q.table, limit=5)),
    "held_by_pods": lambda q, leases: q.driver.run(held_by_pods_flow(q.table, ["pod"])),
}
STRICT = ("claim", "claim of lanes", "renew", "resolve", "settle", "release_unheld", "reclaim", "promote", "defer")


@pytest.fixture
def explaining(queue_dsn: str) -> Iterator[ExplainingDriver]:
    with leasequeue.connect(queue_dsn) as conn:
        yield ExplainingDriver(conn)


def fill(admin: Conn, table: Table, done: int) -> None:
    """Mostly finished, a quarter as much not due yet, 300 due rows, some of them in lanes."""
    lane = "CASE WHEN i %% 2 = 0 THEN 'lane ' || i %% 100 END"
    bulk(admin, table, done, "RESOLVED", lane)
    bulk(admin, table, done // 4, "SCHEDULED", lane)
    bulk(admin, table, 300, "PENDING", lane)


def measure(
    admin: Conn, driver: ExplainingDriver, table: Table, statement: Statement, done: int, **settings: Any
) -> list[Plan]:
    """Plans of a statement on a filled queue, made while it was empty."""
    queue = Queue(table, driver, LeaseConfig(**settings), ClaimMark(clock=lambda: 0.0))
    driver.run(register_flow(table, WORKER, pod_uid="pod"))
    admin.execute(f"ANALYZE {name_of(table)}")
    add(admin, table, 5)
    statement(queue, queue.claim())
    admin.execute(f"DELETE FROM {name_of(table)}")  # TRUNCATE would throw the plans away
    fill(admin, table, done)
    leases = queue.claim()
    expired = queue.claim()
    ids = [lease.id for lease in expired]
    set_where(admin, table, "lease_expires_at = now() - interval '1 hour'", "id = ANY (%(ids)s)", ids=ids)
    queue.mark = ClaimMark(clock=lambda: 0.0)
    queue.claim(mark=queue.mark)
    driver.plans.clear()
    statement(queue, leases)
    plans = driver.about(table)
    assert plans, "nothing was recorded"
    return plans


def assert_by_index(plans: list[Plan], table: Table, most: int) -> None:
    for plan in plans:
        for node in plan.on(table):
            assert node["Node Type"] in ("Index Scan", "Index Only Scan"), f"{node['Node Type']} in: {plan.text}"
        for node in plan.nodes():
            if "Sort" in node["Node Type"]:  # of the few rows that were picked, never of the queue
                assert node["Actual Rows"] * node["Actual Loops"] <= 200, (
                    f"a sort of {node['Actual Rows']} rows in: {plan.text}"
                )
        assert plan.buffers <= most, f"{plan.buffers} pages for: {plan.text}"


@pytest.mark.both_versions
@pytest.mark.parametrize("name", HOT)
@pytest.mark.usefixtures("settled_server")
def test_hot_statements_use_their_index(admin: Conn, table: Table, explaining: ExplainingDriver, name: str) -> None:
    assert_by_index(measure(admin, explaining, table, HOT[name], DONE), table, 400)


@pytest.mark.both_versions
@pytest.mark.parametrize("name", STRICT)
@pytest.mark.usefixtures("settled_server")
def test_hot_statements_of_strict_lanes_use_their_index(
    admin: Conn, strict: Table, explaining: ExplainingDriver, name: str
) -> None:
    most = 4_000 if name == "defer" else 1_500  # it looks past what is not due in each lane, once a sweep
    assert_by_index(measure(admin, explaining, strict, HOT[name], DONE, strict_lanes=True), strict, most)


@pytest.mark.both_versions
@pytest.mark.parametrize("name", ["renew", "resolve", "resolve, results", "resolve, columns", "settle"])
def test_leases_are_found_by_primary_key(admin: Conn, table: Table, explaining: ExplainingDriver, name: str) -> None:
    """Not by the index of ASSIGNED rows, which holds every dead lease until vacuum comes."""
    for plan in measure(admin, explaining, table, HOT[name], 200):
        assert {node["Index Name"] for node in plan.on(table)} == {f"{table.name}_pkey"}


@pytest.mark.both_versions
def test_claim_reads_order_and_mark_from_the_index(admin: Conn, table: Table, explaining: ExplainingDriver) -> None:
    """Order without a sort, and the mark as an Index Cond (as a filter it walks over all that was done)."""
    bulk(admin, table, 500)
    queue = Queue(table, explaining, LeaseConfig(), ClaimMark(clock=lambda: 0.0))
    queue.claim(50, mark=queue.mark)
    explaining.plans.clear()
    assert len(queue.claim(50, mark=queue.mark)) == 50
    (plan,) = explaining.about(table)
    scans = [node for node in plan.on(table) if node.get("Index Name") == f"{table.name}_lq_claim"]
    assert len(scans) == 1
    assert "ROW(" in scans[0]["Index Cond"]
    assert "after_neg" in scans[0]["Index Cond"]
    assert "upto_neg" in scans[0]["Index Cond"]
    assert not [node for node in plan.nodes() if "Sort" in node["Node Type"]]


@pytest.mark.both_versions
def test_no_row_is_looked_at_before_the_claimers_own_is_locked(admin: Conn, table: Table, explaining: ExplainingDriver) -> None:
    """Whether the process may claim is a condition of the whole search, tested before its first row."""
    bulk(admin, table, 50)
    queue = Queue(table, explaining, LeaseConfig(), ClaimMark())
    assert queue.claim(registered=True) == []
    plan = explaining.about(table)[0]
    searched = [node for node in plan.on(table) if node.get("Index Name") == f"{table.name}_lq_claim"]
    own = [node for node in plan.nodes() if node.get("Relation Name") == "worker"]
    assert [node["Actual Loops"] for node in searched] == [0]
    assert [node["Actual Loops"] for node in own] == [1]


@pytest.mark.parametrize("name", ["claim", "resolve", "renew", "settle", "reclaim"])
@pytest.mark.usefixtures("settled_server")
def test_cost_does_not_grow_with_what_is_done(admin: Conn, make_queue: MakeQueue, queue_dsn: str, name: str) -> None:
    """Pages of one statement on a queue with 200 and with 20,000 finished items."""
    pages = []
    for done in (200, DONE):
        with leasequeue.connect(queue_dsn) as conn:
            plans = measure(admin, ExplainingDriver(conn), make_queue(), HOT[name], done)
            pages.append(sum(plan.buffers for plan in plans))
    assert pages[1] <= pages[0] + 80, f"{pages} pages with 200 and with {DONE} items done"


@pytest.mark.both_versions
def test_cost_stays_flat_under_a_pinned_snapshot(admin: Conn, table: Table, client: Client, queue_dsn: str) -> None:
    """B28: vacuum may remove nothing. The mark spares each claim the walk over the dead entries of all earlier ones, and completions
    find their rows by primary key."""
    admin.execute(f"ALTER TABLE {name_of(table)} SET (autovacuum_enabled = off)")  # its pages would be counted as well
    bulk(admin, table, 3_000)
    # Or the pages of these inserts are counted whenever this session comes to report them.
    admin.execute("SELECT pg_stat_force_next_flush()")
    mark = ClaimMark(clock=lambda: 0.0)
    claims, batches = [], []
    with psycopg.connect(queue_dsn) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute(f"SELECT count(*) FROM {name_of(table)}")
        for _ in range(25):
            leases = [item.lease for item in client.claim(100, mark=mark)]
            start = pages_read(admin, client)
            client.renew(*leases)
            client.resolve(*leases)
            middle = pages_read(admin, client)
            (item,) = client.claim(1, mark=mark)
            claims.append(pages_read(admin, client) - middle)
            batches.append(middle - start)
            client.resolve(item.lease)
    for pages in (claims, batches):
        assert sum(pages[-5:]) <= sum(pages[1:6]) * 1.5, f"pages grew: claims {claims}, renewals and completions {batches}"


def pages_read(admin: Conn, client: Client) -> int:
    """Pages of the table and its indexes that were looked at so far."""
    client.driver.execute("SELECT pg_stat_force_next_flush()")
    return admin.execute(
        "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_user_tables WHERE relid = %s",
        [client.table.oid],
    ).fetchone()[0]


@pytest.mark.both_versions
def test_promotion_looks_only_at_what_is_due(admin: Conn, table: Table, explaining: ExplainingDriver) -> None:
    bulk(admin, table, 2_000, "SCHEDULED")
    due = add(admin, table, 3, state="SCHEDULED", run_at="2024-01-01Z")
    assert explaining.run(promote_flow(table, limit=100)) == len(due)
    (plan,) = explaining.about(table)
    (scan,) = [node for node in plan.on(table) if node.get("Index Name") == f"{table.name}_lq_scheduled"]
    assert "run_at" in scan.get("Index Cond", "")
    assert scan.get("Rows Removed by Filter", 0) == 0


@pytest.mark.both_versions
@pytest.mark.parametrize("strict_lanes", [False, True])
def test_sample_scans_only_for_the_count_of_finished_items(
    admin: Conn, make_queue: MakeQueue, explaining: ExplainingDriver, strict_lanes: bool
) -> None:
    table = make_queue(strict_lanes=strict_lanes)
    fill(admin, table, DONE)
    admin.execute(f"VACUUM ANALYZE {name_of(table)}")
    stats = explaining.run(stats_flow(table, strict="Block" if strict_lanes else None))
    assert stats.resolved_exact
    (plan,) = explaining.about(table)
    finished = [node for node in plan.on(table) if "RESOLVED" in node.get("Filter", "") and "<>" not in node["Filter"]]
    others = [node for node in plan.on(table) if node not in finished]
    assert len(finished) == 1
    assert {node["Node Type"] for node in others} <= {"Index Scan", "Index Only Scan"}


@pytest.mark.parametrize("lanes", [20, 200])
def test_strict_claim_costs_lanes_not_rows(admin: Conn, make_queue: MakeQueue, queue_dsn: str, lanes: int) -> None:
    """Rows that wait behind a lane's head are never looked at."""
    pages = []
    for length in (5, 50):
        table = make_queue(strict_lanes=True)
        bulk(admin, table, lanes * length, "PENDING", f"'lane ' || i %% {lanes}")
        admin.execute(f"VACUUM ANALYZE {name_of(table)}")
        with leasequeue.connect(queue_dsn) as conn:
            driver = ExplainingDriver(conn)
            assert len(Queue(table, driver, LeaseConfig(strict_lanes=True), ClaimMark()).claim(10)) == 10
            pages.append(driver.buffers)
    assert pages[1] <= pages[0] * 1.6 + 60, f"{pages} pages for lanes of 5 and of 50 rows"


def test_strict_claim_after_claim_costs_no_lanes(admin: Conn, make_queue: MakeQueue, queue_dsn: str) -> None:
    """One item of 200 lanes, again and again: the walk over all lanes is made once."""
    pages = []
    for lanes in (1, 200):
        table = make_queue(strict_lanes=True)
        bulk(admin, table, lanes * 20, "PENDING", f"'lane ' || i %% {lanes}")
        admin.execute(f"VACUUM ANALYZE {name_of(table)}")
        with leasequeue.connect(queue_dsn) as conn:
            driver = ExplainingDriver(conn)
            queue = Queue(table, driver, LeaseConfig(strict_lanes=True), ClaimMark(clock=lambda: 0.0))
            for _ in range(3):
                driver.plans.clear()
                leases = queue.claim(1, mark=queue.mark)
                driver.run(resolve_flow(table, [Completion(lease) for lease in leases]))
            pages.append(driver.buffers)
    assert pages[1] <= pages[0] * 2, f"{pages} pages for one lane and for 200"


def test_registry_statements_use_their_key(admin: Conn, table: Table, explaining: ExplainingDriver) -> None:
    for flow in (
        register_flow(table, WORKER, pod_uid="pod"),
        heartbeat_flow(table, WORKER, leasequeue.WorkerCounters()),
        cordon_flow(table, ["pod"], seconds=1),
    ):
        explaining.run(flow)
    seen = [n for plan in explaining.plans for n in plan.nodes() if n.get("Relation Name") == "worker"]
    assert seen
    assert {n["Node Type"] for n in seen} <= {"Index Scan", "Index Only Scan", "ModifyTable"}


def test_adopted_table_too(conn: Conn, dsn: str) -> None:
    conn.execute(
        "CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text NOT NULL DEFAULT 'PENDING', leased_by text)"
    )
    conn.execute("INSERT INTO plain (state) SELECT 'RESOLVED' FROM generate_series(1, 20000)")
    schema.adopt(conn, "plain")
    table = Table.load(conn, "plain")
    add(conn, table, 20)
    with leasequeue.connect(dsn) as own:
        driver = ExplainingDriver(own)
        leases = Queue(table, driver, LeaseConfig(), ClaimMark()).claim()
        driver.run(resolve_flow(table, [Completion(lease) for lease in leases]))
    assert len(leases) == 5
    assert_by_index(driver.about(table), table, 200)
