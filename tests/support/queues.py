"""Queues for the tests of worker and reclaimer: made by the product itself, filled and read with plain SQL."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from leasequeue import connect
from leasequeue.schema import ColumnSpec, create
from tests.support.processes import wait_for

COLUMNS = (ColumnSpec("n", "integer"), ColumnSpec("what", "text"), ColumnSpec("note", "text"))


class Queue:
    """One queue table.

    Args:
        dsn: where it is.
        name: table name.
        strict_lanes: claim index for strict lanes.
        id_type: type of the key.
    """

    def __init__(self, dsn: str, name: str = "work", *, strict_lanes: bool = False, id_type: str = "uuid") -> None:
        self.dsn, self.name = dsn, name
        with connect(dsn) as conn:
            create(conn, name, columns=COLUMNS, strict_lanes=strict_lanes, id_type=id_type)
        self.conn = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        self.conn.execute(
            "CREATE TABLE IF NOT EXISTS ledger (n bigserial, item text, attempt int, at timestamptz DEFAULT clock_timestamp())"
        )

    def add(self, *whats: str, **columns: Any) -> list[Any]:
        """Insert an item for each `what`; their ids, in order."""
        return [self._add({"n": n, "what": what, **columns}) for n, what in enumerate(whats)]

    def _add(self, columns: dict[str, Any]) -> Any:
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING id").format(
            self._table, sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(map(sql.Placeholder, columns))
        )
        row = self.conn.execute(statement, columns).fetchone()
        assert row is not None
        return row["id"]

    def fill(self, count: int, what: str = "") -> None:
        """Insert `count` equal items."""
        self.conn.execute(
            sql.SQL(
                "INSERT INTO {} (n, what, idempotency_key, created_at) SELECT i, %s, 'key-' || i,"
                " clock_timestamp() - interval '1 h' + i * interval '1 us' FROM generate_series(1, %s) AS i"
            ).format(self._table),
            (what, count),
        )

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self.name)

    def execute(self, text: str, *params: Any) -> list[dict[str, Any]]:
        """Run SQL with `{t}` for the table; its rows."""
        cursor = self.conn.execute(sql.SQL(text).format(t=self._table), params or None)
        return cursor.fetchall() if cursor.description else []

    def rows(self) -> list[dict[str, Any]]:
        """All items, by n."""
        return self.execute("SELECT * FROM {t} ORDER BY n, created_at")

    def row(self, item_id: Any) -> dict[str, Any]:
        """One item."""
        return self.execute("SELECT * FROM {t} WHERE id = %s", item_id)[0]

    def states(self) -> dict[str, int]:
        """Items by state."""
        rows = self.execute("SELECT state, count(*) AS n FROM {t} GROUP BY state")
        return {row["state"]: row["n"] for row in rows}

    def wait_states(self, timeout_s: float = 60.0, **wanted: int) -> None:
        """Wait until exactly these states have exactly these counts."""
        seen: dict[str, int] = {}

        def found() -> bool:
            seen.clear()
            seen.update(self.states())
            return seen == wanted

        try:
            wait_for(f"states {wanted}", found, timeout_s)
        except AssertionError:
            raise AssertionError(f"wanted {wanted}, found {seen}") from None

    def wait_state(self, item_id: Any, state: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until one item is in `state`; its row."""
        wait_for(f"{item_id} is {state}", lambda: self.row(item_id)["state"] == state, timeout_s)
        return self.row(item_id)

    def expire(self, seconds: float = 3600.0) -> None:
        """Move every lease's expiry into the past."""
        self.execute(
            "UPDATE {t} SET lease_expires_at = clock_timestamp() - make_interval(secs => %s) WHERE state = 'ASSIGNED'", seconds
        )

    def close(self) -> None:
        """Close the test's own connection."""
        self.conn.close()
