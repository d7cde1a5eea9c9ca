"""Looks at the database: each look a short read-only transaction of its own, bounded, and its failure a fact like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import errors

from leasequeue import sql
from leasequeue.claim import CEILING_CLASS
from leasequeue.doctor.facts import (
    Blind,
    Connections,
    Counted,
    Counters,
    DueRow,
    Duplicates,
    Holder,
    LaneRow,
    LeaseRow,
    Pin,
    Snapshot,
    Suspect,
    Upkeep,
    Wait,
)
from leasequeue.rows import result_of
from leasequeue.schema.facts import Check
from leasequeue.states import State
from leasequeue.table import Table, quoted
from leasequeue.workers import WorkerRow

Row = dict[str, Any]

MOST_LEASES = 20_000  # twice the largest max_inflight
SUSPECTS_PAGE = 10_000
WHOLE_BYTES = 64 * 2**20  # tables up to this size are read whole where every row matters; of larger ones about as much
LOCKED = ("the table is locked", "end the transaction that LOCK_CONTENTION names, and look again")
CLAIM_ORDER = "ORDER BY -t.priority, t.created_at, t.id"


@dataclass
class Looker:
    """Runs the looks at one queue; what it could not see is in `blind`.

    Args:
        conn: an idle autocommit connection.
        table: the queue.
        statement_s: seconds that one look may take.
        adopt: the command that adopts the table, for fixes.
    """

    conn: psycopg.Connection[Any]
    table: Table
    statement_s: float
    adopt: str
    blind: list[Blind] = field(default_factory=list)

    def snapshot(self, upkeep: Upkeep) -> Snapshot:
        """One look at what moves. The counters come first: they must not count this look."""
        counters = self._counters()
        return Snapshot(self._leases(upkeep), self._workers(), self._waits(), counters)

    def upkeep(self) -> Upkeep:
        """What the control schema remembers."""
        found = self._rows("the reclaimer's record", sql.text("doctor_upkeep"), {"queue": self.table.oid})
        return Upkeep(**found[0]) if found else Upkeep()

    def due(self, *, strict: bool) -> tuple[DueRow, ...]:
        """The first due item of each priority."""
        text = self.table.sql("doctor_due", unlaned="AND c.lane IS NULL" if strict else "")
        return tuple(DueRow(**row) for row in self._rows("due items", text))

    def unpromoted(self, after_s: float) -> Counted:
        """SCHEDULED items that should be PENDING."""
        found = self._rows("scheduled items", self.table.sql("doctor_unpromoted"), {"after_s": after_s})
        return self._counted(found)

    def lanes(self) -> tuple[LaneRow, ...]:
        """Lanes whose head cannot run."""
        return tuple(LaneRow(**row) for row in self._rows("lanes", self.table.sql("doctor_lanes")))

    def suspects(self, *, strict: bool) -> tuple[Suspect, ...]:
        """Unfinished items with a past. With strict lanes no index gives all PENDING rows in claim order: any will do."""
        text = self.table.sql("doctor_suspects", claim_order="" if strict else CLAIM_ORDER)
        return tuple(Suspect(**row) for row in self._rows("waiting items", text, {"n": SUSPECTS_PAGE}))

    def duplicates(self) -> Duplicates | None:
        """Idempotency keys that several items have."""
        found = self._rows("idempotency keys", self.table.sql("doctor_duplicates"))
        if not found:
            return None
        row = found[0]
        return Duplicates(row["keys"], row["items"], row["open"], row["leased_keys"], tuple(row["example"] or ()))

    def unstamped(self, upkeep: Upkeep) -> Counted:
        """RESOLVED items without resolved_at."""
        text = self.table.sql("doctor_unstamped")
        return self._counted(self._rows("completed items", text, {"adopted_at": upkeep.adopted_at}))

    def unknown_states(self) -> dict[str, int]:
        """States that nobody serves, with their counts."""
        found = self._rows("states", self.table.sql("adopt_unknown_states"), {"known": [state.value for state in State]})
        return {row["state"]: row["rows"] for row in found}

    def not_numbers(self, bytes_: int) -> tuple[dict[str, tuple[str, ...]], bool]:
        """Per numeric column the items that hold NaN or Infinity; and whether only a sample was read."""
        columns = [name for name, kind in self.table.columns.items() if kind.startswith("numeric") and not kind.endswith("]")]
        if not columns:
            return {}, False
        sampled = bytes_ > WHOLE_BYTES
        sample = f"TABLESAMPLE SYSTEM ({max(100.0 * WHOLE_BYTES / bytes_, 0.001):.3f})" if sampled else ""
        tests = {name: f"t.{quoted(name)} IN ('NaN', 'Infinity', '-Infinity')" for name in columns}
        conditions = ", ".join(f"CASE WHEN {test} THEN {n} END" for n, test in enumerate(tests.values()))
        text = self.table.sql("doctor_not_numbers", conditions=conditions, sample=sample, anywhere=" OR ".join(tests.values()))
        found: dict[str, tuple[str, ...]] = {}
        for row in self._rows("numeric columns", text):
            for n in row["columns"]:
                found[columns[n]] = (*found.get(columns[n], ()), row["id"])
        return found, sampled

    def holders(self) -> tuple[Holder, ...]:
        """Transactions with locks on the table."""
        found = self._rows("holders of locks", sql.text("doctor_holders"), {"queue": self.table.oid})
        return tuple(Holder(**{**row, "modes": tuple(row["modes"])}) for row in found)

    def pins(self) -> tuple[Pin, ...]:
        """What keeps dead rows."""
        return tuple(Pin(**row) for row in self._rows("old snapshots", sql.text("doctor_xmin")))

    def refusing(self, checks: Sequence[Check]) -> dict[str, Counted]:
        """Per CHECK that was never validated the unfinished items that break it."""
        found = {}
        for check in checks:
            text = self.table.sql("doctor_refusing", condition=f"({check.expression})".replace("%", "%%"))
            found[check.name] = self._counted(self._rows(f"items that break {check.name}", text))
        return {name: counted for name, counted in found.items() if counted.items}

    def connections(self) -> Connections | None:
        """How full the server is."""
        found = self._rows("connections", sql.text("doctor_connections"), {})
        return Connections(**found[0]) if found else None

    def _leases(self, upkeep: Upkeep) -> tuple[LeaseRow, ...]:
        params = {"adopted_at": upkeep.adopted_at, "n": MOST_LEASES}
        found = self._rows("leases", self.table.sql("doctor_leases"), params, by_index=True)
        return tuple(LeaseRow(**row) for row in found)

    def _workers(self) -> tuple[WorkerRow, ...]:
        found = self._rows("workers", self.table.sql("worker_list"), {"queue": self.table.oid}, by_index=True)
        return tuple(WorkerRow(**row) for row in found)

    def _waits(self) -> tuple[Wait, ...]:
        params = {"queue": self.table.oid, "ceiling": CEILING_CLASS}
        return tuple(Wait(**row) for row in self._rows("waits for locks", sql.text("doctor_waits"), params))

    def _counters(self) -> Counters | None:
        found = self._rows("statistics", sql.text("doctor_counters"), {"queue": self.table.oid})
        if not found:
            return None
        row: Row = {name: 0 if value is None and name != "last_autovacuum" else value for name, value in found[0].items()}
        row["building"] = tuple(found[0]["building"])
        return Counters(**row)

    @staticmethod
    def _counted(found: Sequence[Row]) -> Counted:
        if not found or not found[0]["items"]:
            return Counted()
        row = found[0]
        return Counted(row["items"], tuple(row["ids"] or ()), float(row.get("late_s") or 0.0))

    def _rows(self, look: str, text: str, params: Mapping[str, Any] | None = None, *, by_index: bool = False) -> list[Row]:
        """Rows of one look; none, and an entry in `blind`, where the database would not answer.

        Raises:
            psycopg.OperationalError: the connection is gone: there is nothing more to see.
        """
        limits = {"statement_timeout": f"{int(self.statement_s * 1000)}ms", "seqscan": "off" if by_index else "on"}
        try:
            with self.conn.transaction():
                self.conn.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY")
                self.conn.execute(sql.text("doctor_begin"), limits)
                return result_of(self.conn.execute(text, params or {}), self.conn).dicts()
        except psycopg.Error as error:
            if self.conn.closed or self.conn.broken:
                raise
            self.blind.append(blind(look, error, self.statement_s, self.adopt))
            return []


def blind(look: str, error: psycopg.Error, statement_s: float, adopt: str) -> Blind:
    """Why a look failed and what would let us look. Messages of other errors are not passed on: they may quote a row."""
    if isinstance(error, errors.InsufficientPrivilege):
        said = error.diag.message_primary or "permission denied"
        return Blind(
            look, said, "GRANT USAGE ON SCHEMA leasequeue, SELECT ON the table named, TO the role that runs the doctor"
        )
    if isinstance(error, errors.QueryCanceled):
        return Blind(look, f"took longer than {statement_s:g} s", "run again at a quieter time, or with a longer --statement-s")
    if isinstance(error, errors.LockNotAvailable):
        return Blind(look, *LOCKED)
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)):
        return Blind(look, "a table or column of the control schema leasequeue is missing", adopt)
    return Blind(look, f"the database answered {error.sqlstate or type(error).__name__}", "see the server's log")
