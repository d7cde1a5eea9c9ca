"""schema adopt beside the table's users: nobody waits longer than the lock timeout, plain-SQL clients keep working."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import leasequeue
from devtools.samples import CONTENT_JOBS, review_queue
from leasequeue import LeaseConfig, Table, schema
from leasequeue.schema import SchemaBusy, ddl

Conn = psycopg.Connection[Any]

# The statements that the review queue's users run today; they know nothing of our columns.
INSERT = """
    INSERT INTO review_queue_item (idempotency_key, ledger_entity, variance_amount, match_decision, source_hash)
    VALUES (gen_random_uuid()::text, 'entity', 12.34, 'PARTIAL', 'hash')
"""
CLAIM = """
    UPDATE review_queue_item SET state = 'ASSIGNED', leased_by = %(who)s, leased_at = now(),
           lease_expires_at = now() + interval '30 seconds'
     WHERE id = (SELECT id FROM review_queue_item WHERE state = 'PENDING' ORDER BY created_at LIMIT 1
                   FOR UPDATE SKIP LOCKED)
 RETURNING id
"""
COMPLETE = "UPDATE review_queue_item SET state = 'RESOLVED' WHERE id = %(id)s AND state = 'ASSIGNED' AND leased_by = %(who)s"
EXPIRE = "UPDATE review_queue_item SET lease_expires_at = now() - interval '10 minutes' WHERE id = %(id)s"
RECLAIM = """
    UPDATE review_queue_item SET state = 'PENDING', leased_by = NULL, leased_at = NULL, lease_expires_at = NULL
     WHERE state = 'ASSIGNED' AND lease_expires_at < now()
"""


def cycle(conn: Conn, who: str) -> int:
    """Insert, claim and complete one item as a plain-SQL client does; returns how many were completed."""
    conn.execute(INSERT)
    claimed = conn.execute(CLAIM, {"who": who}).fetchone()
    return 0 if claimed is None else conn.execute(COMPLETE, {"id": claimed[0], "who": who}).rowcount


@contextmanager
def in_background(work: Callable[[threading.Event], Any], threads: int = 1) -> Iterator[list[Any]]:
    """Run `work` until the block ends; its results, or its errors, come out at the end."""
    stop, results = threading.Event(), []  # type: ignore[var-annotated]
    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(work, stop) for _ in range(threads)]
        try:
            yield results
        finally:
            stop.set()
        results += [future.result() for future in running]


@pytest.mark.both_versions
def test_neighbours_work_before_during_and_after(conn: Conn, dsn: str) -> None:
    review_queue(conn, 200, assigned=5)

    def neighbour(stop: threading.Event) -> int:
        done = 0
        with psycopg.connect(dsn, autocommit=True) as mine:
            # Far above adoption's own 300 ms: whoever waits longer fails this test with an error.
            mine.execute("SET lock_timeout = '3s'")
            while not stop.is_set():
                done += cycle(mine, f"neighbour-{threading.get_ident()}")
        return done

    with in_background(neighbour, 2) as done:
        assert schema.adopt(conn, "review_queue_item").ok
        assert schema.adopt(conn, "review_queue_item", strict_lanes=True).ok
    assert all(count > 0 for count in done)
    assert cycle(conn, "afterwards") == 1


def test_their_items_are_ours_and_ours_theirs(conn: Conn) -> None:
    review_queue(conn)
    schema.adopt(conn, "review_queue_item")
    table, config = Table.load(conn, "review_queue_item"), LeaseConfig()
    conn.execute(INSERT)
    (item,) = leasequeue.claim(conn, table, worker_id="ours", n=5, config=config).items
    assert conn.execute(COMPLETE, {"id": item.id, "who": "theirs"}).rowcount == 0
    conn.execute(EXPIRE, {"id": item.id})
    assert conn.execute(RECLAIM).rowcount == 1
    assert leasequeue.resolve(conn, table, leasequeue.Completion(item.lease)) == {item.id: leasequeue.Outcome.LOST}
    taken = conn.execute(CLAIM, {"who": "theirs"}).fetchone()
    assert taken == (item.id,)
    assert leasequeue.resolve(conn, table, leasequeue.Completion(item.lease)) == {item.id: leasequeue.Outcome.LOST}
    assert conn.execute(COMPLETE, {"id": item.id, "who": "theirs"}).rowcount == 1


def test_a_claim_without_an_end_is_refused_to_neighbours_too(conn: Conn) -> None:
    review_queue(conn, 1)
    schema.adopt(conn, "review_queue_item")
    with pytest.raises(psycopg.errors.CheckViolation, match="lq_leased"):
        conn.execute("UPDATE review_queue_item SET state = 'ASSIGNED', leased_by = 'w'")


def test_a_writer_that_holds_the_table_for_a_while_is_waited_for_without_a_queue_behind(conn: Conn, dsn: str) -> None:
    review_queue(conn, 50)
    release = threading.Event()

    def holder(_: threading.Event) -> None:
        with psycopg.connect(dsn) as mine:  # one transaction, ROW EXCLUSIVE on the table
            mine.execute(INSERT)
            release.wait(30)

    def reader(stop: threading.Event) -> int:
        reads = 0
        with psycopg.connect(dsn, autocommit=True) as mine:
            mine.execute("SET lock_timeout = '3s'")
            while not stop.is_set():
                mine.execute("SELECT count(*) FROM review_queue_item")
                mine.execute(INSERT)
                reads += 1
        return reads

    with in_background(holder), ThreadPoolExecutor(1) as pool:
        wait_for_lock_holder(conn)
        with in_background(reader) as reads, psycopg.connect(dsn, autocommit=True) as other:
            adopting = pool.submit(schema.adopt, other, "review_queue_item")
            wait_for_failed_tries(conn, adopting.done)
            release.set()
            assert adopting.result(60).ok
        assert reads[0] > 0


def wait_for_lock_holder(conn: Conn) -> None:
    deadline = time.monotonic() + 20
    query = "SELECT count(*) FROM pg_locks WHERE relation = 'review_queue_item'::regclass AND mode = 'RowExclusiveLock'"
    while conn.execute(query).fetchone() == (0,):
        assert time.monotonic() < deadline, "nobody holds the table"
        time.sleep(0.02)


def wait_for_failed_tries(conn: Conn, done: Callable[[], bool], tries: int = 2) -> None:
    """Until adoption was seen waiting for its lock, and not waiting, `tries` times: it gave up and came again."""
    waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'review_queue_item'::regclass AND NOT granted AND mode = 'AccessExclusiveLock'"
    deadline = time.monotonic() + 30
    for expected in ("1", "0") * tries:
        while True:
            row = conn.execute(waiting).fetchone()
            if row is not None and str(row[0]) == expected:
                break
            assert not done(), "adoption got an exclusive lock beside a writer"
            assert time.monotonic() < deadline, "adoption was never seen waiting and giving up"
            time.sleep(0.01)


def test_no_statement_scans_or_builds_under_an_exclusive_lock(conn: Conn) -> None:
    """A small table hides a scan under lock; so the statements themselves are looked at."""
    statements: list[str] = []

    class Recording(psycopg.Cursor[Any]):
        def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
            statements.append(query if isinstance(query, str) else query.as_string(None))
            return super().execute(query, *arguments, **options)

    review_queue(conn, 5)
    conn.execute("ALTER TABLE review_queue_item ALTER COLUMN created_at DROP NOT NULL")
    conn.cursor_factory = Recording
    schema.adopt(conn, "review_queue_item")
    added = [text for text in statements if "ADD CONSTRAINT" in text]
    built = [
        text
        for text in statements
        if text.startswith(("CREATE INDEX", "CREATE UNIQUE INDEX", "DROP INDEX")) and "leasequeue." not in text
    ]
    assert len(added) == 4
    assert all(text.rstrip().endswith("NOT VALID") for text in added)
    assert len(built) >= 8
    assert all("CONCURRENTLY" in text for text in built)
    assert sum("VALIDATE CONSTRAINT" in text for text in statements) == 4


def test_a_lock_that_never_comes_is_told_with_its_holder(conn: Conn, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    review_queue(conn, 5)
    monkeypatch.setattr(ddl, "LOCK_DEADLINE_S", 0.5)
    with psycopg.connect(dsn, application_name="nightly dump") as holder:
        holder.execute("SELECT count(*) FROM review_queue_item")
        with pytest.raises(SchemaBusy, match=rf"pid {holder.info.backend_pid} \(nightly dump"):
            schema.adopt(conn, "review_queue_item")
    assert schema.adopt(conn, "review_queue_item").ok


def test_settings_of_the_session_are_put_back(conn: Conn) -> None:
    review_queue(conn, 5)
    names = ("lock_timeout", "statement_timeout", "synchronous_commit", "enable_seqscan")
    before = [conn.execute(f"SHOW {name}").fetchone() for name in names]
    schema.adopt(conn, "review_queue_item")
    assert [conn.execute(f"SHOW {name}").fetchone() for name in names] == before
    assert conn.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)


@pytest.mark.both_versions
def test_many_adopt_at_once(conn: Conn, dsn: str) -> None:
    review_queue(conn, 500)

    def adopt(_: int) -> bool:
        with psycopg.connect(dsn, autocommit=True) as mine:
            return schema.adopt(mine, "review_queue_item").ok

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(adopt, range(4))) == [True] * 4


def test_two_tables_are_adopted_at_once(conn: Conn, dsn: str) -> None:
    review_queue(conn, 50)
    conn.execute(CONTENT_JOBS)

    def adopt(table: str) -> bool:
        with psycopg.connect(dsn, autocommit=True) as mine:
            return schema.adopt(mine, table, confirm=f"public.{table}").ok

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(adopt, ["review_queue_item", "content_jobs"])) == [True, True]


# B35: the database's default isolation is not ours to inherit
def test_under_a_serializable_default(conn: Conn, dsn: str, db: str) -> None:
    review_queue(conn, 50, assigned=3)
    conn.execute("UPDATE review_queue_item SET lease_expires_at = NULL")
    conn.execute(f'ALTER DATABASE "{db}" SET default_transaction_isolation = serializable')
    with psycopg.connect(dsn, autocommit=True) as other:
        assert schema.adopt(other, "review_queue_item").ok


# B34: the session's time zone changes nothing
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_in_any_time_zone(conn: Conn, zone: str) -> None:
    review_queue(conn, 2, assigned=1)
    conn.execute("UPDATE review_queue_item SET lease_expires_at = NULL")
    conn.execute(f"SET timezone = '{zone}'")
    schema.adopt(conn, "review_queue_item")
    due = "SELECT bool_and(run_at <= clock_timestamp() AND run_at > clock_timestamp() - interval '1 minute') FROM review_queue_item"
    assert conn.execute(due).fetchone() == (True,)
    ended = "SELECT clock_timestamp() - lease_expires_at < interval '1 minute' FROM review_queue_item WHERE state = 'ASSIGNED'"
    assert conn.execute(ended).fetchone() == (True,)
