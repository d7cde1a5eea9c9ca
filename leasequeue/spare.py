"""Pages that no single row can stop.

A row may refuse every change: it breaks a CHECK that was added NOT VALID, a trigger raises for it, another table refers to it, its
stored value is corrupt. A statement about a page of rows then fails as a whole, each time, and the queue would stand still behind it. So
a page that fails for a row's data is looked at, and written in halves until the refusing rows stand alone; all others are done.

The refusing rows are passed over for a while, so that the next page finds its way without the search (`Skips`). They stay as they are: what
cannot be changed cannot be set aside either. Whoever keeps the `Skips` reports them, and `leasequeue doctor` finds the usual cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg

from leasequeue.arrays import text_array
from leasequeue.refusals import refuses_row
from leasequeue.rows import Result
from leasequeue.run import RETRIED, Flow, Operation

T = TypeVar("T")

SKIP_S = 60.0
MAX_SKIPPED = 1_000
WALL_S = 600.0
MAX_NEWS = 100


class Refused(NamedTuple):
    """A row that the database would not let us change.

    Args:
        id: primary key.
        priority: of the item.
        created_at: of the item.
        verb: the statement that was refused: claim, claim_lanes, claim_strict, promote, defer, reclaim, prune, release_unheld.
        sqlstate: why, as a code; the message may quote the row's values and is not kept.
    """

    id: Any
    priority: int
    created_at: datetime
    verb: str
    sqlstate: str


@dataclass
class Skips:
    """Rows that one process passes over for a while, since they refuse to be changed. Not shared between threads.

    A row is tried again after 60 s. At most 1,000 rows are remembered one by one. Beyond that, plain claims remember per priority up to
    where in the claim order they met nothing else, and start behind it for ten minutes: a whole migration's worth of bad rows is passed as
    well. Of other rows, such as heads of lanes, the oldest are forgotten first.

    Args:
        clock: monotonic seconds, for tests.
    """

    clock: Callable[[], float] = time.monotonic
    total: int = 0
    _rows: dict[Any, tuple[float, Refused]] = field(default_factory=dict)
    _walls: dict[int, tuple[float, datetime, Any]] = field(default_factory=dict)
    _news: list[Refused] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._rows)

    def ids(self) -> list[Any]:
        """Keys of the rows to pass over now."""
        if not self._rows:
            return []
        now = self.clock()
        self._rows = {key: entry for key, entry in self._rows.items() if entry[0] > now}
        return list(self._rows)

    def walls(self) -> dict[int, tuple[datetime, Any]]:
        """Where to start, by −priority: created_at and id of the last row that refused, with nothing else before it."""
        if not self._walls:
            return {}
        now = self.clock()
        self._walls = {neg: wall for neg, wall in self._walls.items() if wall[0] > now}
        return {neg: (at, item_id) for neg, (_, at, item_id) in self._walls.items()}

    def add(self, found: Iterable[Refused]) -> None:
        """Pass these over from now on."""
        until = self.clock() + SKIP_S
        for refused in found:
            self.total += 1
            if refused.id not in self._rows and len(self._news) < MAX_NEWS:
                self._news.append(refused)
            self._rows[refused.id] = (until, refused)
        if len(self._rows) > MAX_SKIPPED:
            self._raise_walls()

    def take_news(self) -> list[Refused]:
        """What was found since the last call, at most 100 rows: for logs."""
        news, self._news = self._news, []
        return news

    def _raise_walls(self) -> None:
        until = self.clock() + WALL_S
        for refused in [entry[1] for entry in self._rows.values()]:
            if refused.verb != "claim":
                continue
            neg = -refused.priority
            wall = self._walls.get(neg)
            if wall is None or wall[1] <= refused.created_at:
                self._walls[neg] = (until, refused.created_at, refused.id)
            del self._rows[refused.id]
        while len(self._rows) > MAX_SKIPPED:  # of the others the oldest are tried again first
            del self._rows[next(iter(self._rows))]


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One statement about rows that it finds itself.

    Args:
        verb: its name, for reports.
        whole: the operation.
        look: the operation that reads the rows which it would change.
        only: the operation, bound to some rows.
    """

    verb: str
    whole: Callable[[], Operation[T]]
    look: Callable[[], Operation[Result]]
    only: Callable[[str], Operation[T]]


@dataclass(frozen=True, slots=True)
class Pages(Generic[T]):
    """What was done: results in order, and the rows that refused."""

    done: list[T]
    refused: list[Refused]


def sparing(page: Page[T], skips: Skips) -> Flow[Pages[T]]:
    """Run a page; where a row refuses it, run it for all others.

    Raises:
        psycopg.Error: the whole page failed for another reason, or nobody is to blame. What was committed before is never lost: then the
            pages done are returned.
    """
    pages: Pages[T] = Pages([], [])
    try:
        pages.done.append((yield page.whole()))
        return pages
    except psycopg.Error as ex:
        if not refuses_row(ex):
            raise
        error = ex
    looked: Result = yield page.look()
    if not looked.rows:
        raise error
    try:
        yield from _halves(page, looked.rows, pages)
    except RETRIED:
        if not pages.done:
            raise
    finally:
        skips.add(pages.refused)
    return pages


def _halves(page: Page[T], rows: Sequence[tuple[Any, ...]], pages: Pages[T]) -> Flow[None]:
    try:
        pages.done.append((yield page.only(text_array(row[0] for row in rows))))
    except psycopg.Error as ex:
        if not refuses_row(ex):
            raise
        if len(rows) == 1:
            item_id, priority, created_at = rows[0]
            pages.refused.append(Refused(item_id, priority, created_at, page.verb, str(ex.sqlstate)))
            return
        middle = len(rows) // 2
        yield from _halves(page, rows[:middle], pages)
        yield from _halves(page, rows[middle:], pages)
