"""Claim: lease due rows to a worker, in order, never one row to two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Literal
from uuid import UUID

from leasequeue.arrays import text_array
from leasequeue.config import SETTINGS, LeaseConfig
from leasequeue.errors import BadInput
from leasequeue.item import Item, column_index
from leasequeue.mark import ClaimMark, segments_behind
from leasequeue.rows import Codec, Result
from leasequeue.run import Batch, Flow, Operation, Query, Steps, single
from leasequeue.spare import Page, Refused, Skips, sparing
from leasequeue.table import Table

Admission = Literal["open", "cordoned", "unregistered"]
# Advisory locks share one key space with everybody: the upper half marks ours ("LQ" and the use), the lower is the table's oid.
CEILING_CLASS = 0x4C510001
LANES_AHEAD = 200
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim brought.

    Args:
        items: leased items, in claim order.
        admission: `cordoned` or `unregistered` say why a registered claim brought nothing.
        full: as many as were asked for.
        refused: rows that the database would not let us lease; they are passed over from now on.
    """

    items: list[Item]
    admission: Admission
    full: bool
    refused: Sequence[Refused] = ()


def claim_flow(
    table: Table,
    *,
    worker_id: str,
    n: int,
    config: LeaseConfig,
    lanes: Sequence[str] | None = None,
    mark: ClaimMark | None = None,
    registered: bool = False,
    skips: Skips | None = None,
) -> Flow[Claimed]:
    """Flow behind `claim`; see there."""
    if not worker_id:
        raise BadInput("worker_id", worker_id, "is empty")
    n = SETTINGS["batch_size"].check(n)
    skips = Skips() if skips is None else skips
    claiming = _Claim(table, worker_id, n, config, list(lanes) if lanes else None, mark, registered, skips)
    ahead = mark.lanes_ahead(n) if mark and config.strict_lanes and lanes is None else []
    if not ahead:
        claimed = yield from _sparing(claiming)
        if claimed.items or not registered or claiming.asks_first:
            return claimed
        # As the claim itself runs: an idle worker's poll is to be two short statements, and to wait for no disk.
        why: Result = yield from single(claiming.admission_query(), durable=False, one_plan=True)
        return replace(claimed, admission=_admission(why))
    first = yield from _sparing(replace(claiming, ahead=ahead))
    if first.full or first.admission != "open":
        return first
    rest = yield from _sparing(replace(claiming, n=n - len(first.items)))
    return Claimed([*first.items, *rest.items], rest.admission, rest.full, [*first.refused, *rest.refused])


def _sparing(claiming: _Claim) -> Flow[Claimed]:
    pages = yield from sparing(Page(claiming.statement, claiming.whole, claiming.look, claiming.only), claiming.skips)
    if len(pages.done) == 1 and not pages.refused:
        return pages.done[0]
    items = [item for claimed in pages.done for item in claimed.items]
    admission = pages.done[-1].admission if pages.done else "open"
    return Claimed(items, admission, len(items) == claiming.n, pages.refused)


@dataclass(frozen=True, slots=True)
class _Claim:
    """One claim; `steps` may run more than once (retries), each time from the start."""

    table: Table
    worker_id: str
    n: int
    config: LeaseConfig
    lanes: list[str] | None
    mark: ClaimMark | None
    registered: bool
    skips: Skips
    ahead: Sequence[str] = ()

    @property
    def statement(self) -> str:
        """Name of the statement that leases."""
        if self.config.strict_lanes:
            return "claim_strict"
        return "claim" if self.lanes is None else "claim_lanes"

    @property
    def asks_first(self) -> bool:
        """Whether the claimer's own row is locked by an earlier statement. A plain claim locks it itself and finds rows only if it may: what
        else it reads need not be younger than that lock. So it is a single statement, and only one that found nothing asks why.
        """
        return self.registered and (self.statement != "claim" or self._durable)

    def admission_query(self) -> Query:
        """Locks the claimer's own row, and says whether it is cordoned."""
        return Query(self.table.sql("claim_admission"), self._identity())

    def whole(self) -> Operation[Claimed]:
        """The claim itself."""
        plain = self.statement == "claim"
        return Operation(self._claim_steps, durable=self._durable, one_plan=plain, read_committed=self._durable)

    def only(self, ids: str) -> Operation[Claimed]:
        """The claim, bound to some rows."""
        return Operation(lambda: self._claim_steps(self.table.only, ids), durable=self._durable, read_committed=self._durable)

    def look(self) -> Operation[Result]:
        """What the claim would lease."""
        return Operation(self._look_steps)

    @property
    def _durable(self) -> bool:
        return self.config.max_inflight_policy == "Enforce" or self.config.strict_lanes

    def _claim_steps(self, text: Callable[[str], str] | None = None, ids: str | None = None) -> Steps[Claimed]:
        results = yield from self._steps(text or self.table.sql, ids)
        return self._claimed(results)

    def _look_steps(self) -> Steps[Result]:
        results = yield from self._steps(self.table.looking, None)
        return results[-1].typed()

    def _steps(self, text: Callable[[str], str], ids: str | None) -> Steps[list[Result]]:
        """Run the claim's statements in the form that `text` gives the last of them."""
        first = self._first()
        if not self.config.strict_lanes:
            return (yield Batch((*first, self._plain(text, ids)), last=True))
        results = yield Batch((*first, self._lane_lock()))
        held = self._held(results[-1])
        leased = yield Batch((self._strict(held, text, ids),), last=True)
        return results + leased

    def _held(self, locked: Result) -> list[str]:
        """Lanes that this transaction holds now; the mark takes note of the others, and of those that were tried."""
        held = [lane for lane, is_held, _ in locked.rows if is_held]
        if self.ahead and self.mark:
            self.mark.lanes_tried(self.ahead, held)
        elif self._walks and self.mark:
            self.mark.saw_lanes([lane for lane, is_held, _ in sorted(locked.rows, key=itemgetter(2)) if not is_held])
        return held

    @property
    def _walks(self) -> bool:
        """Whether the lanes to try are searched among all."""
        return self.lanes is None and not self.ahead

    def _first(self) -> list[Query]:
        """Locks that must be held before the claim's snapshot is taken."""
        queries = []
        if self.asks_first:
            queries.append(self.admission_query())
        if self.config.max_inflight_policy == "Enforce":
            key = CEILING_CLASS << 32 | self.table.oid
            queries.append(Query(self.table.sql("claim_ceiling"), {"ceiling_key": key}))
        return queries

    def _identity(self) -> dict[str, Any]:
        return {"queue": self.table.oid, "worker_id": self.worker_id}

    def _common(self, ids: str | None) -> dict[str, Any]:
        enforced = self.config.max_inflight_policy == "Enforce"
        return {
            **self._identity(),
            "skip": text_array(self.skips.ids()),
            "only": ids,
            "lease_ms": self.config.lock_timeout_ms,
            "n": self.n,
            "registered": self.registered,
            "max_inflight": self.config.max_inflight if enforced else None,
        }

    def _plain(self, text: Callable[[str], str], ids: str | None) -> Query:
        if self.lanes is not None:
            return Query(text(self.statement), {**self._common(ids), "lanes": self.lanes}, raw=True)
        walls = self.skips.walls()
        segments = self.mark.segments(walls) if self.mark else segments_behind(walls)
        ranges = {
            "after_neg": text_array(segments.after_neg),
            "after_at": text_array(segments.after_at),
            "after_id": text_array(segments.after_id),
            "upto_neg": text_array(segments.upto_neg),
        }
        return Query(text(self.statement), {**self._common(ids), **ranges}, raw=True)

    def _lane_lock(self) -> Query:
        return Query(
            self.table.sql("lane_lock"),
            {
                "queue": self.table.oid,
                "lanes": list(self.ahead) or self.lanes,
                "ahead": LANES_AHEAD if self._walks and self.mark else 0,
                "pass": self.config.on_blocked_head == "Pass",
                "skip": text_array(self.skips.ids()),
                "n": self.n,
            },
        )

    def _strict(self, held: list[str], text: Callable[[str], str], ids: str | None) -> Query:
        return Query(
            text(self.statement),
            {
                **self._common(ids),
                "lanes": held,
                "pass": self.config.on_blocked_head == "Pass",
                "unlaned": self.lanes is None,
            },
            raw=True,
        )

    def _claimed(self, results: list[Result]) -> Claimed:
        leased = results[-1]
        index = column_index(leased.names)
        rows = leased.rows
        if len(rows) > self.n:  # the statement forbids it; a planner bug must not go unseen
            raise RuntimeError(f"claim of {self.table.label} returned {len(rows)} rows for n={self.n}")
        items = [Item(index, row, leased.codec) for row in in_claim_order(leased, index)]
        if self.mark and self.lanes is None and not self.config.strict_lanes:
            self.mark.advance(items, self.n)
        return Claimed(items, _admission(results[0]) if self.asks_first else "open", len(items) == self.n)


def _admission(own: Result) -> Admission:
    if not own.rows:
        return "unregistered"
    return "cordoned" if own.scalar else "open"


def in_claim_order(leased: Result, index: Mapping[str, int]) -> list[tuple[Any, ...]]:
    """Rows of a claim in its order; RETURNING has none. Two stable sorts: created_at and id, then priority falling."""
    at, item_id, priority = index["created_at"], index["id"], index["priority"]
    rows = leased.rows
    if len(rows) < 2:
        return rows
    if leased.codec is not None:
        return _texts_in_claim_order(rows, leased.codec, at, item_id, priority)
    # Times as distances from one in UTC, since Python compares two times of one zone by their wall clocks, which run backwards once a year.
    rows.sort(key=lambda row: (row[at] - EPOCH, row[item_id]))
    rows.sort(key=itemgetter(priority), reverse=True)
    return rows


def _texts_in_claim_order(
    rows: list[tuple[Any, ...]], codec: Codec, at: int, item_id: int, priority: int
) -> list[tuple[Any, ...]]:
    """The same for rows left as text. Text sorts as its value does for uuids, and for times with a year of four digits in UTC."""
    in_utc = {row[at][4:5] + row[at][-3:] for row in rows} == {"-+00"}
    if in_utc and (type(codec.value(item_id, rows[0][item_id])) in (UUID, str)):
        rows.sort(key=itemgetter(at, item_id))
    else:
        rows.sort(key=lambda row: (codec.value(at, row[at]) - EPOCH, codec.value(item_id, row[item_id])))
    if len({row[priority] for row in rows}) > 1:
        rows.sort(key=lambda row: int(row[priority]), reverse=True)
    return rows
