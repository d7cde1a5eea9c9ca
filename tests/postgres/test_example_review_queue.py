"""The review queue example on a real PostgreSQL: a worker killed in the middle, and a check that counts every posting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from demo.database import Database
from examples.review_queue.check import compare, read
from examples.review_queue.dataset import load
from examples.review_queue.items import ReviewItem, derive
from leasequeue import LeaseConfig, Table, reclaim
from leasequeue.schema.adopt import adopt

ROOT = Path(__file__).parents[2]
ITEMS = 400
CONFIG = LeaseConfig(lock_timeout_ms=1000, reclaim_after_s=10)
KEEP_TRYING_S = 60.0


@pytest.fixture
def items() -> list[ReviewItem]:
    return list(derive(load(), ITEMS))


@pytest.fixture
def seeded(dsn: str, conn: psycopg.Connection, items: list[ReviewItem]) -> psycopg.Connection:
    """The published table with its items, adopted; an empty ledger."""
    database = Database(0, "")
    database.dsn = dsn
    database.seed(items)
    adopt(conn, "review_queue_item")
    return conn


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + KEEP_TRYING_S
    while not reached():
        assert time.monotonic() < deadline, f"waited {KEEP_TRYING_S:.0f} s for {what}"
        time.sleep(0.1)


def count(conn: psycopg.Connection, where: str) -> int:
    row = conn.execute(f"SELECT count(*) FROM review_queue_item WHERE {where}").fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def worker(dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        str(Path(sys.executable).parent / "leasequeue-worker"), "--table", "review_queue_item", "--concurrency", "6",
        "--handler", "examples.review_queue.handler:handle", "--http-port", "0",
        "--lock-timeout-ms", str(CONFIG.lock_timeout_ms), "--poll-interval-ms", "100",
    ]  # fmt: skip
    env = os.environ | {"LEASEQUEUE_DSN": dsn, "DEMO_HANDLER_SECONDS": "0.05", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


def test_a_killed_worker_costs_executions_but_never_a_posting(
    dsn: str, seeded: psycopg.Connection, items: list[ReviewItem]
) -> None:
    with worker(dsn) as first:
        until(lambda: count(seeded, "state = 'RESOLVED'") >= 50, "50 items resolved")
        first.send_signal(signal.SIGKILL)
        assert first.wait(10) == -signal.SIGKILL
    left = count(seeded, "state = 'ASSIGNED'")
    assert left > 0
    assert count(seeded, "state = 'RESOLVED'") < ITEMS

    table = Table.load(seeded, "review_queue_item")

    def all_back() -> bool:
        reclaim(seeded, table, config=CONFIG)
        return count(seeded, "crash_count > 0") >= left

    with worker(dsn) as second:
        until(all_back, f"{left} leases reclaimed")
        until(lambda: count(seeded, "state = 'RESOLVED'") == ITEMS, "every item resolved")
        second.terminate()
        assert second.wait(30) == 0

    with psycopg.connect(dsn) as fresh:
        report = compare(items, *read(fresh))
    assert report.problems == []
    assert (report.postings, report.lost, report.doubled) == (ITEMS, 0, 0)
    assert report.executions_started >= ITEMS + left
    decisions = seeded.execute("SELECT result->>'decision', count(*) FROM review_queue_item GROUP BY 1").fetchall()
    posted = seeded.execute("SELECT decision, count(*) FROM ledger_posting GROUP BY 1").fetchall()
    assert sorted(decisions) == sorted(posted)
    assert {decision for decision, _ in posted} == {"AUTO_APPROVED", "WITHIN_TOLERANCE", "ESCALATED"}


def check(*args: str, dsn: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("LEASEQUEUE_DSN")}
    command = [sys.executable, "-m", "examples.review_queue.check", *args]
    env |= {"PYTHONPATH": str(ROOT)} | ({"LEASEQUEUE_DSN": dsn} if dsn else {})
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=ROOT, check=False)


def finish_by_hand(conn: psycopg.Connection) -> None:
    conn.execute("UPDATE review_queue_item SET state = 'RESOLVED', attempt = 1")
    conn.execute(
        "INSERT INTO ledger_posting (item_id, ledger_entity, amount, decision, worker_id, attempt)"
        " SELECT id, ledger_entity, variance_amount, 'AUTO_APPROVED', 'by hand', 1 FROM review_queue_item"
    )


def test_the_check_passes_only_while_everything_is_exact(dsn: str, seeded: psycopg.Connection) -> None:
    limit = f"--limit={ITEMS}"
    assert check(limit, dsn=dsn).returncode == 1

    finish_by_hand(seeded)
    passed = check(limit, dsn=dsn)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "off:" not in passed.stdout

    seeded.execute("INSERT INTO ledger_posting SELECT * FROM ledger_posting WHERE amount <> 0 LIMIT 1")
    doubled = check(limit, dsn=dsn)
    assert doubled.returncode == 1
    assert "off: 1 postings are over one an item" in doubled.stdout


def test_a_cent_is_noticed(dsn: str, seeded: psycopg.Connection, items: list[ReviewItem]) -> None:
    finish_by_hand(seeded)
    seeded.execute(
        "UPDATE ledger_posting SET amount = amount + 0.01 WHERE item_id ="
        " (SELECT id FROM review_queue_item ORDER BY idempotency_key LIMIT 1)"
    )
    with psycopg.connect(dsn) as fresh:
        report = compare(items, *read(fresh))
    wrong = [total for total in report.totals if not total.exact]
    assert [total.posted - total.source for total in wrong] == [Decimal("0.01")]
    assert wrong[0].entity == items[0].ledger_entity


def test_the_check_tells_usage_from_an_unreachable_database(tmp_path: Path) -> None:
    usage = check()
    assert usage.returncode == 2
    assert "LEASEQUEUE_DSN_FILE" in usage.stderr
    away = check(dsn=f"host={tmp_path} user=x password=hunter2")
    assert away.returncode == 3
    assert "cannot read the database" in away.stderr
    assert "hunter2" not in away.stdout + away.stderr
