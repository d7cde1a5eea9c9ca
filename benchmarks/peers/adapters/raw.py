"""The ceiling: hand-written claim and completion over psycopg 3, without library, renewal, heartbeat, retries or logs.

On a table of its own with the least that leasing needs, or on the very table that LeaseQueue adopted (`adopted`) or made (`created`), in the
same order.
"""

from __future__ import annotations

import sys
import time
import uuid
from typing import Any

import psycopg
from _proto import DSN, Worker, enqueued, one_by_one, opts, out, pace, sent

O = opts()  # noqa: E741
COLUMNS = "idempotency_key, ledger_entity, variance_amount, match_decision, trace_id, source_hash"
PLACES = "%s, %s, %s, %s, %s, %s"
ADOPTED, CREATED = bool(O.get("adopted")), bool(O.get("created"))
TABLE = "review_queue_item" if ADOPTED or CREATED else "t"
ORDER = "-priority, created_at, id" if ADOPTED or CREATED else "created_at"
CLAIM = f"""UPDATE {TABLE} SET state = 'ASSIGNED', leased_by = %s, lease_token = gen_random_uuid(), leased_at = now(),
 lease_expires_at = now() + interval '30 s' WHERE id = ANY (ARRAY(SELECT id FROM {TABLE} WHERE state = 'PENDING'
 ORDER BY {ORDER} LIMIT %s FOR UPDATE SKIP LOCKED)) RETURNING *"""
COMPLETE = f"UPDATE {TABLE} SET state = 'RESOLVED' WHERE state = 'ASSIGNED' AND id = ANY (%s::uuid[]) AND lease_token = ANY (%s::uuid[])"


def setup() -> None:
    """The review queue's typed table with what leasing needs, and one index."""
    if ADOPTED or CREATED:
        from ours import review_queue

        review_queue(TABLE, adopted=ADOPTED)
        return
    with psycopg.connect(DSN, autocommit=True) as conn:
        conn.execute(f"""CREATE TABLE t (
          id uuid PRIMARY KEY DEFAULT uuidv7(), idempotency_key text NOT NULL UNIQUE, ledger_entity text NOT NULL,
          variance_amount numeric(18,2) NOT NULL, match_decision text NOT NULL, state text NOT NULL DEFAULT 'PENDING',
          leased_by text, leased_at timestamptz, lease_expires_at timestamptz, lease_token uuid,
          trace_id uuid NOT NULL, source_hash text NOT NULL, created_at timestamptz NOT NULL DEFAULT clock_timestamp()
        ) WITH (fillfactor={int(O.get("fillfactor", 100))})""")
        conn.execute("CREATE INDEX t_pending ON t (created_at, id) WHERE state = 'PENDING'")


def row(number: int, decision: str = "UNMATCHED", source: str = "") -> tuple[Any, ...]:
    """One review item."""
    return (
        f"{O.get('prefix', '')}key-{number:08d}",
        "ACME-EU",
        number,
        decision,
        uuid.uuid4(),
        source or f"{number * 2654435761 % (1 << 64):064x}",
    )


def enqueue() -> None:
    """COPY, or single INSERTs."""
    n, chunk = O["n"], O.get("chunk", 5000)
    insert = f"INSERT INTO {TABLE} ({COLUMNS}) VALUES ({PLACES})"
    with psycopg.connect(DSN, autocommit=True) as conn:
        conn.prepare_threshold = 0
        if O["how"] == "one":
            one_by_one(n, lambda number: conn.execute(insert, row(number)))
        elif O["how"] == "tx":

            def send(number: int) -> None:
                with conn.transaction():
                    conn.execute("INSERT INTO effect VALUES (%s)", [number])
                    conn.execute(insert, row(number))

            one_by_one(n, send)
        else:
            began = time.perf_counter()
            for start in range(0, n, chunk):
                with conn.cursor() as cur, cur.copy(f"COPY {TABLE} ({COLUMNS}) FROM STDIN") as copy:
                    for number in range(start, min(n, start + chunk)):
                        copy.write_row(row(number))
            enqueued(time.perf_counter() - began)


def work() -> None:
    """Claim and complete in turn; with `fused`, both in one transaction and one round trip."""
    worker = Worker()
    conn = psycopg.connect(DSN, autocommit=True)
    conn.execute("LISTEN work")
    me, batch = f"w{id(worker)}", O.get("batch", 100)
    worker.ready_and_wait()
    done: tuple[list[Any], list[Any]] | None = None
    names = [column.name for column in conn.execute(f"SELECT * FROM {TABLE} LIMIT 0").description or ()]
    amount, source, decision, key, token = map(
        names.index, ("variance_amount", "source_hash", "match_decision", "id", "lease_token")
    )
    while not worker.stop.is_set():
        rows, done = (fused if O.get("fused") else plain)(conn, me, batch, done)
        if not rows:
            wait(conn)
            continue
        for r in rows:
            worker.job(int(r[amount]), float(r[source]) if r[decision] == "LAT" else None)
        done = ([r[key] for r in rows], [r[token] for r in rows])
        if not O.get("fused"):
            conn.execute(COMPLETE, done, prepare=True)
            done = None
    if done:
        conn.execute(COMPLETE, done)
    worker.done()


def wait(conn: psycopg.Connection[Any]) -> None:
    """Until a notification or the next poll."""
    if O.get("no_wake"):
        time.sleep(O["poll_s"])
        return
    for _ in conn.notifies(timeout=0.05, stop_after=1):
        pass


def plain(conn: psycopg.Connection[Any], me: str, batch: int, done: Any) -> tuple[list[Any], Any]:
    """One claim."""
    return conn.execute(CLAIM, (me, batch), prepare=True).fetchall(), done


def fused(conn: psycopg.Connection[Any], me: str, batch: int, done: Any) -> tuple[list[Any], Any]:
    """Completion of the last batch and the next claim."""
    with conn.pipeline(), conn.transaction():
        if done:
            conn.execute(COMPLETE, done, prepare=True)
        cur = conn.execute(CLAIM, (me, batch), prepare=True)
    return cur.fetchall(), None


def produce() -> None:
    """Single inserts on schedule, each with its notification."""
    calls, late = [], []
    notify = "" if O.get("no_wake") else "SELECT pg_notify('work', '') FROM i"
    text = f"WITH i AS (INSERT INTO {TABLE} ({COLUMNS}) VALUES ({PLACES}) RETURNING id) {notify or 'SELECT id FROM i'}"
    with psycopg.connect(DSN, autocommit=True) as conn:
        for number, lateness in pace(O["rate"], O["seconds"]):
            t = time.time()
            conn.execute(text, row(number, "LAT", repr(t)), prepare=True)
            calls.append(time.time() - t)
            late.append(lateness)
    sent(calls, late)


def version() -> None:
    """The driver's version."""
    out({"version": "psycopg " + psycopg.__version__})


{"setup": setup, "enqueue": enqueue, "work": work, "produce": produce, "version": version}[sys.argv[1]]()
