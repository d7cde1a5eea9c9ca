"""One run of the reclaimer: sweeps inside its time, a record of what it did, an exit code.

It hangs on nothing but the database: the operator may be dead, the workers at zero, the queue suspended. Any number of runs may
overlap; pages skip each other's rows. A lost connection is opened again while there is time; a run that hangs in spite of all
timeouts is ended from outside its main thread.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import Any

import psycopg

import leasequeue
from leasequeue.dsn import connect, redact
from leasequeue.errors import LeaseQueueError
from leasequeue.process import logs
from leasequeue.process.faults import describe
from leasequeue.process.pacing import Backoff
from leasequeue.runs import RunRecord
from leasequeue.spare import Skips
from leasequeue.table import Table
from leasequeue_reclaimer import tracing
from leasequeue_reclaimer.schedule import next_sweep_at, start_jitter_s
from leasequeue_reclaimer.settings import Settings
from leasequeue_reclaimer.sweep import Connection, Sweep, Swept

DONE, USAGE, DATABASE_ERROR = 0, 2, 3
EXIT_CODES = {
    DONE: "Every sweep of the run ended well, or the last one after errors did.",
    USAGE: "A setting is wrong.",
    DATABASE_ERROR: "The last sweep failed, or the run hung: the Job fails, and the next run goes on.",
}
# Past the run's own time, statements under way end by their timeouts; longer than that is a hang.
HANG_AFTER_S = 30.0


class Run:
    """One run.

    Args:
        settings: validated settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._told_to_end = threading.Event()
        self._ends_at = time.monotonic() + settings.budget_s
        self._conn: Connection | None = None
        self._table: Table | None = None
        self._skips = Skips()
        self._run_id: int | None = None
        self._totals: dict[str, int] = dict.fromkeys(("sweeps", "reclaimed", "repaired", "promoted", "deferred", "pruned"), 0)
        self._assigned: int | None = None
        self._exceeded = False
        self._error: str | None = None
        self._tracing: tracing.ReclaimTracing | None = None

    def run(self) -> int:
        """Sweep until the time is up or SIGTERM; returns the exit code."""
        settings = self._settings
        logs.configure(settings.log_level, queue=settings.queue or f"{settings.schema}.{settings.table}")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._tracing = tracing.start(settings)
        self._watch()
        self._sleep(start_jitter_s(settings.queue, min(settings.start_jitter_s, settings.budget_s / 4)))
        self._sweeps()
        self._close()
        if self._tracing is not None:
            self._tracing.flush()
        logs.get().info("run_ended", **self._totals, assigned=self._assigned, exceeded=self._exceeded, error=self._error)
        return DATABASE_ERROR if self._error else DONE

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._ends_at = 0.0  # the page under way is the last one
        threading.Thread(target=self._told_to_end.set, daemon=True).start()  # an Event may be locked by the thread we interrupt

    def _go_on(self) -> bool:
        return time.monotonic() < self._ends_at

    def _sleep(self, seconds: float) -> None:
        self._told_to_end.wait(seconds)

    def _watch(self) -> None:
        """End the process when it hangs: what is committed stays, and the next run may start."""

        def end() -> None:
            logs.get().error("run_hung", next="the process ends; the next run goes on")
            os._exit(DATABASE_ERROR)

        timer = threading.Timer(self._settings.budget_s + HANG_AFTER_S, end)
        timer.daemon = True
        timer.start()

    # --- sweeping ----------------------------------------------------------------------------------------------------

    def _sweeps(self) -> None:
        backoff = Backoff(0.5, 5.0)
        began: float | None = time.monotonic()
        while began is not None and self._go_on():
            ok = self._attempt()
            now = time.monotonic()
            if ok:
                backoff.reset()
                began = next_sweep_at(began, now, self._settings.sweep_interval_s, self._ends_at)
            else:
                began = now + backoff.next_s()
            if began is not None:
                self._sleep(max(0.0, began - now))

    def _attempt(self) -> bool:
        """One sweep; False when it has to be tried again."""
        try:
            self._sweep()
        except (psycopg.Error, LeaseQueueError) as ex:
            self._error = describe(ex)
            logs.get().error("sweep_failed", error=self._error)
            self._drop()
            return False
        return True

    def _sweep(self) -> None:
        conn, table = self._open()
        if self._run_id is None:
            runner = self._settings.runner or socket.gethostname()
            self._run_id = leasequeue.start_run(conn, table, runner=runner, max_inflight=self._settings.config.max_inflight)
        trace = self._tracing.reclaimed if self._tracing is not None else None
        sweep = Sweep(conn, table, self._settings, self._go_on, self._skips, trace)
        try:
            sweep.run()
        finally:
            self._add(sweep.result)
        if not any(error.startswith("reclaim") for error in sweep.result.errors):
            leasequeue.swept(conn, table, reclaimed=sweep.result.reclaimed, repaired=sweep.result.repaired)
        leasequeue.record_run(conn, table, self._run_id, self._record(), over=False)

    def _add(self, swept: Swept) -> None:
        self._totals["sweeps"] += 1
        for name in ("reclaimed", "repaired", "promoted", "deferred", "pruned"):
            self._totals[name] += getattr(swept, name)
        self._assigned = swept.assigned if swept.assigned is not None else self._assigned
        self._exceeded |= swept.exceeded
        self._error = "; ".join(swept.errors) or None

    def _record(self) -> RunRecord:
        return RunRecord(**self._totals, assigned=self._assigned, exceeded=self._exceeded, error=self._error)

    def _open(self) -> tuple[Connection, Table]:
        settings = self._settings
        if self._conn is None:
            try:
                lease_s = settings.config.lease_s
                self._conn = connect(settings.source, lease_s=lease_s, application_name="leasequeue-reclaimer")
            except psycopg.OperationalError as ex:
                raise type(ex)(redact(str(ex))) from None
        if self._table is None:
            self._table = Table.load(self._conn, settings.table, settings.schema)
        return self._conn, self._table

    def _drop(self) -> None:
        """Connect and look the table up again before the next attempt."""
        conn, self._conn, self._table = self._conn, None, None
        if conn is not None:
            conn.close()

    def _close(self) -> None:
        """Close the record; what cannot be written is in the log."""
        if self._run_id is not None and self._conn is not None and self._table is not None:
            try:
                leasequeue.record_run(self._conn, self._table, self._run_id, self._record(), over=True)
            except psycopg.Error as ex:
                logs.get().error("record_failed", error=describe(ex))
        self._drop()
