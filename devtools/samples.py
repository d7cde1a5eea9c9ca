"""Tables as users have them before LeaseQueue, for tests and benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

REVIEW_QUEUE = (Path(__file__).parent.parent / "examples/review_queue/table.sql").read_text(encoding="utf-8")
CONTENT_JOBS = """
CREATE TABLE content_jobs (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    site        text NOT NULL,
    kind        text NOT NULL,
    topic       text NOT NULL,
    input_json  jsonb NOT NULL
)
"""


def review_queue(conn: psycopg.Connection[Any], rows: int = 0, *, assigned: int = 0) -> None:
    """Make the review queue as published, with `rows` PENDING items and `assigned` leased by a plain-SQL client."""
    conn.execute(REVIEW_QUEUE, prepare=False)
    conn.execute(
        """
        INSERT INTO review_queue_item (idempotency_key, ledger_entity, variance_amount, match_decision, source_hash,
                                       state, leased_by, leased_at, lease_expires_at)
        SELECT 'key-' || n, 'entity-' || mod(n, 7), n + 0.01, 'PARTIAL', md5(n::text),
               CASE WHEN n > %(rows)s THEN 'ASSIGNED' ELSE 'PENDING' END,
               CASE WHEN n > %(rows)s THEN 'neighbour' END, CASE WHEN n > %(rows)s THEN now() END,
               CASE WHEN n > %(rows)s THEN now() + interval '1 hour' END
          FROM generate_series(1, %(rows)s + %(assigned)s) AS n
        """,
        {"rows": rows, "assigned": assigned},
    )
