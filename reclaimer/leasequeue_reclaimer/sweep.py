"""One sweep: take back ended leases, promote due items, set aside items of the future, prune, count.

Each step goes page by page, each page a transaction of its own, until a page comes back short or the time is up: what is committed
stays, whatever happens next. A step that fails is reported and does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

import leasequeue
from leasequeue.jsonio import printable
from leasequeue.maintain import Reclaimed
from leasequeue.process.faults import describe, needs_new_connection
from leasequeue.process.logs import get
from leasequeue.spare import Refused, Skips
from leasequeue.table import Table
from leasequeue_reclaimer.settings import Settings

PROMOTE_PAGE = 500
DEFER_PAGE = 500
PRUNE_PAGE = 1_000
Connection = psycopg.Connection[Any]


@dataclass
class Swept:
    """Figures of one sweep. `errors` names the steps that failed, with the reason."""

    reclaimed: int = 0
    repaired: int = 0
    promoted: int = 0
    deferred: int = 0
    pruned: int = 0
    assigned: int | None = None
    exceeded: bool = False
    errors: list[str] = field(default_factory=list)


class Sweep:
    """Runs sweeps over one table.

    Args:
        conn: an autocommit connection of our own.
        table: the queue's table.
        settings: of this run.
        go_on: asked before each page; False when the time is up or the process was told to end.
        skips: rows that refuse to be changed, remembered over the sweeps of a run.
        trace: told of each page of items taken back; None without tracing.
    """

    def __init__(
        self,
        conn: Connection,
        table: Table,
        settings: Settings,
        go_on: Callable[[], bool],
        skips: Skips,
        trace: Callable[[Reclaimed], None] | None = None,
    ) -> None:
        self._conn, self._table, self._settings, self._go_on, self._skips = conn, table, settings, go_on, skips
        self._trace = trace
        self._config = settings.config
        self.result = Swept()

    def run(self) -> Swept:
        """All steps, in the order of their urgency.

        Raises:
            psycopg.OperationalError: the connection is gone; `result` has what was done until then.
        """
        steps: list[tuple[str, Callable[[], None]]] = [
            ("reclaim", self._reclaim),
            ("promote", self._promote),
            ("defer", self._defer),
            ("prune", self._prune),
            ("count", self._count),
        ]
        for name, step in steps:
            self._guard(name, step)
            log_refused(self._skips.take_news())
        return self.result

    def _guard(self, name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except psycopg.Error as ex:
            self.result.errors.append(f"{name}: {describe(ex)}")
            get().error("sweep_step_failed", step=name, error=describe(ex))
            if self._conn.closed or needs_new_connection(ex):
                raise

    def _reclaim(self) -> None:
        more = True
        while more and self._go_on():
            page = leasequeue.reclaim(self._conn, self._table, config=self._config, skips=self._skips)
            self.result.reclaimed += len(page.items)
            self.result.repaired += page.repaired
            log_reclaimed(page)
            if self._trace is not None:
                self._trace(page)
            more = page.full or bool(page.refused)

    def _promote(self) -> None:
        def page() -> int:
            return leasequeue.promote(self._conn, self._table, limit=PROMOTE_PAGE, skips=self._skips)

        for count in self._pages(page, PROMOTE_PAGE):
            self.result.promoted += count

    def _defer(self) -> None:
        """Until the head of the claim order is clear: a page looks at its first rows only."""

        def page() -> int:
            return leasequeue.defer(self._conn, self._table, limit=DEFER_PAGE, skips=self._skips)

        for count in self._pages(page, 1):
            self.result.deferred += count

    def _prune(self) -> None:
        age_s = self._settings.retention_resolved_after_s
        if not age_s:
            return

        def page() -> int:
            return leasequeue.prune(self._conn, self._table, older_than_s=age_s, limit=PRUNE_PAGE, skips=self._skips)

        for count in self._pages(page, PRUNE_PAGE):
            self.result.pruned += count

    def _pages(self, page: Callable[[], int], full: int) -> Iterator[int]:
        """Page after page while one brings `full` rows or more, or was short only because rows refused."""
        more = True
        while more and self._go_on():
            before = self._skips.total
            count = page()
            yield count
            more = count >= full or self._skips.total > before

    def _count(self) -> None:
        leasequeue.deregister(self._conn, self._table)
        self.result.assigned = leasequeue.stats(self._conn, self._table).assigned
        limit = self._config.max_inflight
        self.result.exceeded = self.result.assigned > limit
        if self.result.exceeded:
            get().error("max_inflight_exceeded", assigned=self.result.assigned, max_inflight=limit)


def log_refused(found: Iterable[Refused]) -> None:
    """`item_refuses_change` for each row that the database lets nobody change."""
    for refused in found:
        get().error(
            "item_refuses_change", item_id=printable(refused.id), verb=refused.verb, sqlstate=refused.sqlstate,
            next="it is passed over for a while; leasequeue doctor looks for the cause",
        )  # fmt: skip


def log_reclaimed(page: Reclaimed) -> None:
    """`item_lease_reclaimed` for each item, with its identity and never its payload."""
    log = get()
    for item in page.items:
        log.warning(
            "item_lease_reclaimed",
            item_id=printable(item.id),
            trace_id=printable(item.trace_id),
            source_hash=item.source_hash,
            idempotency_key=item.idempotency_key,
            worker_id=item.leased_by,
            attempt=item.attempt,
            crash_count=item.crash_count,
            state=str(item.state),
        )
