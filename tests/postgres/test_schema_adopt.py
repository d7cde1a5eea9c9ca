"""schema adopt: a live table becomes a queue and keeps everything it had."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import leasequeue
from devtools.samples import CONTENT_JOBS, review_queue
from leasequeue import BadInput, LeaseConfig, NotAQueue, Table, schema
from leasequeue.schema import CannotAdopt

Conn = psycopg.Connection[Any]
OWN_COLUMNS = (
    "id, idempotency_key, ledger_entity, variance_amount, match_decision, state, leased_by, leased_at, lease_expires_at, "
    "trace_id, source_hash, created_at"
)


def one(conn: Conn, query: str) -> Any:
    row = conn.execute(query).fetchone()
    assert row is not None
    return row[0]


def filenode(conn: Conn, table: str) -> Any:
    return one(conn, f"SELECT relfilenode FROM pg_class WHERE oid = '{table}'::regclass")


@pytest.mark.both_versions
def test_the_published_review_queue_keeps_rows_columns_and_indexes(conn: Conn) -> None:
    review_queue(conn, 300, assigned=20)
    rows = conn.execute(f"SELECT ctid, {OWN_COLUMNS} FROM review_queue_item ORDER BY id").fetchall()
    before = filenode(conn, "review_queue_item")
    assert not schema.verify(conn, "review_queue_item").ok

    report = schema.adopt(conn, "review_queue_item")

    assert report.ok, report.missing
    assert conn.execute(f"SELECT ctid, {OWN_COLUMNS} FROM review_queue_item ORDER BY id").fetchall() == rows
    assert filenode(conn, "review_queue_item") == before, "the table was rewritten"
    indexes = {name for (name,) in conn.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'review_queue_item'")}
    assert {"review_queue_item_pkey", "review_queue_item_idempotency_key_key", "idx_review_queue_dequeue"} <= indexes
    assert "review_queue_item_lq_idempotency_key" not in indexes, "the published unique index serves"


@pytest.mark.both_versions
def test_an_adopted_queue_works(conn: Conn) -> None:
    review_queue(conn, 5)
    schema.adopt(conn, "review_queue_item")
    table = Table.load(conn, "review_queue_item")
    claimed = leasequeue.claim(conn, table, worker_id="w", n=10, config=LeaseConfig())
    assert len(claimed.items) == 5
    outcome = leasequeue.retry(conn, table, claimed.items[0].lease, after_s=60, error="later")
    assert outcome is leasequeue.Outcome.RETRIED
    assert one(conn, "SELECT count(*) FROM review_queue_item WHERE state = 'SCHEDULED'") == 1


def test_adopting_again_changes_nothing(conn: Conn) -> None:
    review_queue(conn, 10)
    schema.adopt(conn, "review_queue_item")
    catalog = "SELECT oid, relname, relfilenode, reloptions FROM pg_class ORDER BY oid"
    before = conn.execute(catalog).fetchall()
    assert schema.adopt(conn, "review_queue_item").ok
    assert conn.execute(catalog).fetchall() == before


def test_existing_rows_are_due_and_get_the_defaults(conn: Conn) -> None:
    review_queue(conn, 3)
    schema.adopt(conn, "review_queue_item")
    rows = conn.execute(
        "SELECT priority, attempt, crash_count, lane, lease_token, run_at <= clock_timestamp() FROM review_queue_item"
    ).fetchall()
    assert rows == [(0, 0, 0, None, None, True)] * 3


def test_later_rows_get_a_run_at_of_their_own(conn: Conn) -> None:
    review_queue(conn, 1)
    schema.adopt(conn, "review_queue_item")
    with conn.transaction():
        conn.execute(
            "INSERT INTO review_queue_item (idempotency_key, ledger_entity, variance_amount, match_decision, source_hash) VALUES ('later', 'e', 1, 'PARTIAL', 'h')"
        )
    assert one(conn, "SELECT count(DISTINCT run_at) FROM review_queue_item") == 2


def test_a_check_over_state_alone_is_replaced(conn: Conn) -> None:
    review_queue(conn, 1)
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("UPDATE review_queue_item SET state = 'SCHEDULED'")
    schema.adopt(conn, "review_queue_item")
    conn.execute("UPDATE review_queue_item SET state = 'SCHEDULED'")
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("UPDATE review_queue_item SET state = 'pending'")
    checks = conn.execute(
        "SELECT conname, convalidated FROM pg_constraint WHERE conrelid = 'review_queue_item'::regclass AND contype = 'c' ORDER BY 1"
    )
    assert checks.fetchall() == [(f"review_queue_item_lq_{what}", True) for what in ("leased", "priority", "state")]


def test_further_states_of_the_users_stay_allowed(conn: Conn) -> None:
    review_queue(conn, 2)
    conn.execute(
        "ALTER TABLE review_queue_item DROP CONSTRAINT valid_state, "
        "ADD CONSTRAINT states CHECK (state = 'PENDING' OR state = 'ASSIGNED' OR state = 'RESOLVED' OR state = 'PARKED')"
    )
    conn.execute("UPDATE review_queue_item SET state = 'PARKED' WHERE idempotency_key = 'key-1'")
    report = schema.adopt(conn, "review_queue_item")
    assert report.ok
    assert "PARKED" in next(w.text for w in report.warnings if w.code == "UNKNOWN_STATE")
    conn.execute("UPDATE review_queue_item SET state = 'PARKED' WHERE idempotency_key = 'key-2'")
    conn.execute("UPDATE review_queue_item SET state = 'REPAIR' WHERE idempotency_key = 'key-2'")
    assert schema.adopt(conn, "review_queue_item").ok


def test_leases_without_an_end_get_one_so_that_the_reclaimer_takes_them(conn: Conn) -> None:
    review_queue(conn, 1, assigned=3)
    conn.execute("UPDATE review_queue_item SET lease_expires_at = NULL WHERE idempotency_key <> 'key-1'")
    conn.execute("UPDATE review_queue_item SET leased_by = NULL WHERE idempotency_key = 'key-2'")
    schema.adopt(conn, "review_queue_item")
    ended = conn.execute(
        "SELECT leased_by, lease_expires_at <= clock_timestamp() FROM review_queue_item WHERE state = 'ASSIGNED' ORDER BY 1"
    )
    assert ended.fetchall() == [("neighbour", True), ("neighbour", True), ("unknown", True)]


@pytest.mark.both_versions
def test_a_table_without_lease_columns_is_adopted_by_name(conn: Conn) -> None:
    conn.execute(CONTENT_JOBS)
    conn.execute(
        "INSERT INTO content_jobs (site, kind, topic, input_json) SELECT 's', 'generate', n::text, '{}' FROM generate_series(1, 50) n"
    )
    before = filenode(conn, "content_jobs")
    with pytest.raises(NotAQueue, match=r"--confirm public\.content_jobs"):
        schema.adopt(conn, "content_jobs")
    with pytest.raises(BadInput, match=r"must be 'public\.content_jobs'"):
        schema.adopt(conn, "content_jobs", confirm="content_jobs")
    report = schema.adopt(conn, "content_jobs", confirm="public.content_jobs", strict_lanes=True)
    assert report.ok, report.missing
    assert filenode(conn, "content_jobs") == before
    assert one(conn, "SELECT count(DISTINCT trace_id) FROM content_jobs") == 50, "each item has an identity of its own"
    assert schema.adopt(conn, "content_jobs", strict_lanes=True).ok, "adopted once, it need not be confirmed again"


def test_somebodys_ledger_never_gets_lease_columns_by_a_typo(conn: Conn) -> None:
    conn.execute("CREATE TABLE ledger (id uuid PRIMARY KEY, amount numeric(18,2), state text)")
    with pytest.raises(NotAQueue, match="no column leased_by"):
        schema.adopt(conn, "ledger")
    assert one(conn, "SELECT count(*) FROM pg_attribute WHERE attrelid = 'ledger'::regclass AND attnum > 0") == 3
    assert one(conn, "SELECT to_regnamespace('leasequeue') IS NULL"), "a refusal leaves nothing behind"


def test_row_triggers_and_own_options_stay(conn: Conn) -> None:
    review_queue(conn, 20)
    conn.execute("CREATE TABLE fired (n int)")
    conn.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO fired VALUES (1); RETURN NEW; END'"
    )
    conn.execute("CREATE TRIGGER touched AFTER INSERT OR UPDATE ON review_queue_item FOR EACH ROW EXECUTE FUNCTION note()")
    conn.execute("ALTER TABLE review_queue_item SET (fillfactor = 55)")
    schema.adopt(conn, "review_queue_item")
    assert one(conn, "SELECT count(*) FROM fired") == 0, "adoption touched rows that were in order"
    conn.execute("UPDATE review_queue_item SET state = 'FAILED' WHERE idempotency_key = 'key-1'")
    assert one(conn, "SELECT count(*) FROM fired") == 1
    assert "fillfactor=55" in one(conn, "SELECT reloptions FROM pg_class WHERE oid = 'review_queue_item'::regclass")


def test_an_index_left_invalid_is_rebuilt(conn: Conn) -> None:
    review_queue(conn, 10)
    schema.adopt(conn, "review_queue_item")
    name = "review_queue_item_lq_claim"
    conn.execute(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{name}'::regclass")
    report = schema.verify(conn, "review_queue_item")
    assert report.missing == [f"index {name} is INVALID"]
    assert schema.adopt(conn, "review_queue_item").ok
    assert one(conn, f"SELECT indisvalid FROM pg_index WHERE indexrelid = '{name}'::regclass")


def test_an_index_of_another_form_is_replaced_only_after_its_successor_stands(conn: Conn) -> None:
    review_queue(conn, 10)
    schema.adopt(conn, "review_queue_item")
    assert not schema.verify(conn, "review_queue_item", strict_lanes=True).ok
    assert schema.adopt(conn, "review_queue_item", strict_lanes=True).ok
    definition = one(conn, "SELECT indexdef FROM pg_indexes WHERE indexname = 'review_queue_item_lq_claim'")
    assert "lane IS NULL" in definition
    assert not one(conn, "SELECT count(*) FROM pg_indexes WHERE indexname LIKE '%lq_new'")


def test_an_interrupted_adoption_is_finished_by_the_next(conn: Conn) -> None:
    review_queue(conn, 10)
    conn.execute("ALTER TABLE review_queue_item DROP CONSTRAINT review_queue_item_idempotency_key_key")
    conn.execute("UPDATE review_queue_item SET idempotency_key = 'twice' WHERE idempotency_key IN ('key-1', 'key-2')")
    with pytest.raises(CannotAdopt, match=r"column idempotency_key holds a value twice.*twice.*HAVING count"):
        schema.adopt(conn, "review_queue_item")
    assert not one(conn, "SELECT count(*) FROM pg_index WHERE NOT indisvalid"), "no INVALID leftover"
    assert schema.verify(conn, "review_queue_item").version is None
    conn.execute("UPDATE review_queue_item SET idempotency_key = id::text WHERE idempotency_key = 'twice'")
    assert schema.adopt(conn, "review_queue_item").ok


def test_nullable_columns_become_not_null_without_a_scan_under_lock(conn: Conn) -> None:
    review_queue(conn, 10)
    conn.execute("ALTER TABLE review_queue_item ALTER COLUMN created_at DROP NOT NULL, ALTER COLUMN state DROP NOT NULL")
    conn.execute("UPDATE review_queue_item SET created_at = NULL WHERE idempotency_key = 'key-3'")
    with pytest.raises(CannotAdopt, match=r"created_at is NULL in some rows \(run: UPDATE"):
        schema.adopt(conn, "review_queue_item")
    conn.execute("UPDATE review_queue_item SET created_at = now() WHERE created_at IS NULL")
    assert schema.adopt(conn, "review_queue_item").ok
    with pytest.raises(psycopg.errors.NotNullViolation):
        conn.execute("UPDATE review_queue_item SET created_at = NULL WHERE idempotency_key = 'key-3'")


def test_missing_defaults_are_added_and_own_ones_kept(conn: Conn) -> None:
    review_queue(conn, 1)
    conn.execute("ALTER TABLE review_queue_item ALTER COLUMN state DROP DEFAULT")
    schema.adopt(conn, "review_queue_item")
    defaults = dict(
        conn.execute(
            "SELECT column_name, column_default FROM information_schema.columns WHERE table_name = 'review_queue_item'"
        ).fetchall()
    )
    assert (defaults["state"], defaults["created_at"]) == ("'PENDING'::text", "now()")


def test_columns_of_limited_length_are_taken_where_they_are_long_enough(conn: Conn) -> None:
    conn.execute(
        "CREATE TABLE jobs (id bigint PRIMARY KEY, state varchar(20) NOT NULL DEFAULT 'PENDING', leased_by varchar(255), lane varchar)"
    )
    conn.execute("INSERT INTO jobs VALUES (1, 'PENDING'), (2, 'PENDING')")
    report = schema.adopt(conn, "jobs")
    assert report.ok, report.missing
    table = Table.load(conn, "jobs")
    claimed = leasequeue.claim(conn, table, worker_id="w", n=2, config=LeaseConfig())
    assert [item.id for item in claimed.items] == [1, 2]
    outcomes = leasequeue.resolve(conn, table, [leasequeue.Completion(item.lease) for item in claimed.items])
    assert set(outcomes.values()) == {leasequeue.Outcome.RESOLVED}
