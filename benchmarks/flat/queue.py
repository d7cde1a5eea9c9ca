"""A queue to measure: made by the product, filled with plain SQL, claimed and completed through the public functions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

import leasequeue
from leasequeue.claim import claim_flow
from leasequeue.config import LeaseConfig
from leasequeue.fence import Completion
from leasequeue.mark import ClaimMark
from leasequeue.schema import ColumnSpec, create
from leasequeue.table import Table

WORKER = "bench"
COLUMNS = ("ledger_entity:text NOT NULL", "variance_amount:numeric(18,2) NOT NULL", "match_decision:text NOT NULL")
CHUNK = 250_000
FILL = """
INSERT INTO {table} (idempotency_key, ledger_entity, variance_amount, match_decision, source_hash, lane, state, created_at, resolved_at,
                     leased_by, lease_token)
SELECT {prefix} || n, 'ACME-EU', n + 0.01, 'UNMATCHED', md5(n::text), {lane}, {state}, {start}::timestamptz + n * interval '1 microsecond',
       CASE WHEN {state} = 'RESOLVED' THEN now() END,
       CASE WHEN {state} = 'RESOLVED' THEN 'someone' END, CASE WHEN {state} = 'RESOLVED' THEN gen_random_uuid() END
  FROM generate_series({low}::bigint, {high}::bigint) AS n
"""


@dataclass(frozen=True, slots=True)
class Buffers:
    """Shared buffers that one claim touches: to find its rows, and in all."""

    search: int
    whole: int


@dataclass
class Queue:
    """One table and the connection it is measured on.

    Args:
        conn: autocommit, made by `leasequeue.dsn.connect`.
        name: the table's.
        config: lease settings.
    """

    conn: psycopg.Connection[Any]
    name: str
    config: LeaseConfig = field(default_factory=LeaseConfig)
    mark: ClaimMark = field(default_factory=ClaimMark)
    table: Table = field(init=False)

    def __post_init__(self) -> None:
        columns = [ColumnSpec.parse(text) for text in COLUMNS]
        create(self.conn, self.name, columns=columns, strict_lanes=self.config.strict_lanes)
        self.table = Table.load(self.conn, self.name)

    def fill(self, rows: int, state: str = "PENDING", *, lanes: int = 0, start: str = "2026-01-02") -> None:
        """Add rows in pages.

        Args:
            rows: how many.
            state: PENDING or RESOLVED.
            lanes: spread them over so many lanes; 0 for none.
            start: created_at of the first; one microsecond apart.
        """
        lane = sql.SQL("'lane-' || mod(n, {})").format(sql.Literal(lanes)) if lanes else sql.SQL("NULL")
        for low in range(1, rows + 1, CHUNK):
            parts = {
                "table": sql.Identifier(self.name), "prefix": sql.Literal(f"{state}-"), "lane": lane, "state": sql.Literal(state),
                "start": sql.Literal(start), "low": sql.Literal(low), "high": sql.Literal(min(rows, low + CHUNK - 1)),
            }  # fmt: skip
            self.conn.execute(sql.SQL(FILL).format(**parts), prepare=False)

    def settle(self) -> None:
        """Statistics, visibility map and a checkpoint, as on a queue that has been there for a while."""
        self.conn.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(self.name)), prepare=False)
        self.conn.execute("CHECKPOINT", prepare=False)

    def claim(self, n: int) -> tuple[float, list[leasequeue.Item]]:
        """One claim: milliseconds, and the items."""
        began = time.perf_counter()
        claimed = leasequeue.claim(self.conn, self.table, worker_id=WORKER, n=n, config=self.config, mark=self.mark)
        return (time.perf_counter() - began) * 1e3, claimed.items

    def resolve(self, items: list[leasequeue.Item]) -> None:
        """Complete a batch.

        Raises:
            RuntimeError: not all of them were resolved.
        """
        outcomes = leasequeue.resolve(self.conn, self.table, [Completion(item.lease) for item in items])
        if not outcomes.all(leasequeue.Outcome.RESOLVED):
            raise RuntimeError(f"{self.name}: not all of {len(items)} items were resolved")

    def claim_buffers(self, n: int) -> Buffers:
        """Shared buffers that the claim statement touches with its mark as it is; the claim itself is rolled back."""
        operation = next(claim_flow(self.table, worker_id=WORKER, n=n, config=self.config, mark=self.mark))
        with self.conn.transaction(force_rollback=True):
            limits = operation.limits()
            self.conn.execute(limits.text, limits.params)
            query = next(operation.steps()).queries[-1]
            explained = self.conn.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query.text}", query.params).fetchone()
        assert explained is not None
        plan = explained[0][0]["Plan"]
        return Buffers(search=sum(_touched(node) for node in plan["Plans"] if node.get("Subplan Name")), whole=_touched(plan))


def _touched(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"])
