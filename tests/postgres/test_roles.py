"""docs/howto/roles.md: its SQL runs as it stands, each role can do its work, and nothing beyond."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import leasequeue
from devtools.pgserver import PgServer
from devtools.samples import review_queue
from leasequeue import LeaseConfig, RunRecord, Table, WorkerCounters, look, schema
from leasequeue.requeue import requeue

Conn = psycopg.Connection[Any]
PAGE = Path(__file__).parents[2] / "docs/howto/roles.md"
TABLE = "review_queue_item"
ROLES = ("lq_owner", "lq_producer", "lq_worker", "lq_reclaimer", "lq_operator", "lq_person")
ROW = {"ledger_entity": "e", "variance_amount": 1, "match_decision": "PARTIAL", "source_hash": "h"}
As = Callable[[str], Any]


def blocks() -> list[str]:
    """The page's SQL, but for the part that holds only where an administrator made the control schema."""
    found = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in found if not block.startswith("-- only where")]


@pytest.fixture
def as_role(conn: Conn, pg: PgServer, db: str) -> Iterator[As]:
    """A database set up as the page says, and connections as its roles."""
    roles, owner, *grants = blocks()
    conn.execute(roles, prepare=False)
    try:
        conn.execute(owner, prepare=False)
        review_queue(conn, 20)
        conn.execute(f"ALTER TABLE {TABLE} OWNER TO lq_owner")
        conn.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")

        @contextmanager
        def connected(role: str) -> Iterator[Conn]:
            with psycopg.connect(pg.dsn(db), autocommit=True) as other:
                other.execute(f"SET SESSION AUTHORIZATION {role}")
                yield other

        with connected("lq_owner") as mine:
            assert schema.adopt(mine, TABLE).ok
        for block in grants:
            conn.execute(block, prepare=False)
        yield connected
    finally:
        conn.execute("DROP SCHEMA IF EXISTS leasequeue CASCADE")
        for role in ROLES:
            conn.execute(f"DROP OWNED BY {role} CASCADE")
            conn.execute(f"DROP ROLE {role}")


def denied(conn: Conn, statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute(statement)


@pytest.mark.both_versions
def test_producers(as_role: As) -> None:
    with as_role("lq_producer") as mine:
        table = Table.load(mine, TABLE)
        assert leasequeue.enqueue(mine, table, [{**ROW, "idempotency_key": "new"}, {**ROW, "idempotency_key": "key-1"}])
        assert leasequeue.enqueue_many(mine, table, [{**ROW, "idempotency_key": f"n{n}"} for n in range(5)]).created == 5
        denied(mine, f"UPDATE {TABLE} SET priority = 1")
        denied(mine, f"DELETE FROM {TABLE}")


@pytest.mark.both_versions
def test_workers(as_role: As) -> None:
    config = LeaseConfig(strict_lanes=True, max_inflight_policy="Enforce")
    with as_role("lq_worker") as mine:
        table = Table.load(mine, TABLE)
        leasequeue.register(mine, table, "w", pod_uid="uid", slots=2)
        leasequeue.heartbeat(mine, table, "w", WorkerCounters())
        plain = leasequeue.claim(mine, table, worker_id="w", n=2, config=LeaseConfig(), registered=True).items
        strict = leasequeue.claim(mine, table, worker_id="w", n=4, config=config, registered=True).items
        assert (len(plain), len(strict)) == (2, 4)
        leasequeue.renew(mine, table, [item.lease for item in plain], config=config)
        leasequeue.resolve(mine, table, leasequeue.Completion(plain[0].lease, result={"ok": True}))
        leasequeue.retry(mine, table, plain[1].lease, after_s=5, error="x")
        leasequeue.fail(mine, table, strict[0].lease, error="x")
        leasequeue.repair(mine, table, strict[1].lease, error="x")
        leasequeue.release(mine, table, [strict[2].lease])
        assert leasequeue.release_unheld(mine, table, worker_id="w", held_tokens=[]) == 1
        leasequeue.promote(mine, table)
        leasequeue.deregister(mine, table, "w")
        denied(mine, f"DELETE FROM {TABLE}")
        denied(mine, f"INSERT INTO {TABLE} DEFAULT VALUES")
        denied(mine, f"ALTER TABLE {TABLE} ADD COLUMN x int")
        denied(mine, "DELETE FROM leasequeue.audit")
        denied(mine, "CREATE TABLE public.mine (id int)")


@pytest.mark.both_versions
def test_the_reclaimer(as_role: As) -> None:
    with as_role("lq_reclaimer") as mine:
        table = Table.load(mine, TABLE)
        run = leasequeue.start_run(mine, table, runner="r", max_inflight=1000)
        leasequeue.reclaim(mine, table, config=LeaseConfig())
        leasequeue.promote(mine, table)
        leasequeue.defer(mine, table)
        leasequeue.prune(mine, table, older_than_s=60)
        leasequeue.swept(mine, table, reclaimed=0, repaired=0)
        leasequeue.record_run(mine, table, run, RunRecord(), over=True)
        assert leasequeue.runs(mine, table)[0].id == run
        leasequeue.stats(mine, table)
        leasequeue.deregister(mine, table)
        denied(mine, f"INSERT INTO {TABLE} DEFAULT VALUES")
        denied(mine, "INSERT INTO leasequeue.owner VALUES (1, 'a', 'b', 'c')")


@pytest.mark.both_versions
def test_the_operator(as_role: As) -> None:
    with as_role("lq_operator") as mine:
        table = Table.load(mine, TABLE)
        assert schema.verify(mine, TABLE).ok
        assert leasequeue.sample(mine, [table])[table.oid].due == 20
        leasequeue.cordon(mine, table, ["uid"])
        leasequeue.held_by_pods(mine, table, ["uid"])
        leasequeue.workers(mine, table)
        leasequeue.runs(mine, table)
        assert leasequeue.own_table(mine, table, cr_uid="u", cr_namespace="n", cr_name="c").mine
        leasequeue.disown(mine, table, cr_uid="u")
        assert look.list_items(mine, table, limit=1)
        denied(mine, f"UPDATE {TABLE} SET priority = 1")
        denied(mine, "UPDATE leasequeue.worker SET held = 0")


@pytest.mark.both_versions
def test_people(as_role: As) -> None:
    with as_role("lq_worker") as worker:
        table = Table.load(worker, TABLE)
        (item,) = leasequeue.claim(worker, table, worker_id="w", n=1, config=LeaseConfig()).items
        leasequeue.fail(worker, table, item.lease, error="x")
    with as_role("lq_person") as mine:
        assert [one.id for one in requeue(mine, table, ids=[item.id], actor="ann", reason="again")] == [item.id]
        shown = look.show(mine, table, item_id=item.id)
        assert shown is not None
        assert [entry.actor for entry in shown.audit] == ["ann"]
        denied(mine, "DELETE FROM leasequeue.audit")
        denied(mine, "UPDATE leasequeue.audit SET reason = 'other'")
