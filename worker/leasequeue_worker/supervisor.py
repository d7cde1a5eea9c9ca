"""The worker put together, and its main thread: signals, deadlines, drain.

Threads: claims (loop.py), completions (completion.py), renewal (renewal.py), slots (slots.py or async_slots.py), probes (probes.py).
The main thread runs no handler and waits for nothing but its tick, so that signals and deadlines are seen within a tenth of a second.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from leasequeue.process import logs
from leasequeue.verdict import Release, Repair
from leasequeue.workers import WorkerCounters
from leasequeue_worker import tracing
from leasequeue_worker.audit import AuditLog
from leasequeue_worker.board import Board
from leasequeue_worker.completion import Completions
from leasequeue_worker.drain import Drain, Facts, Phase, leave_s
from leasequeue_worker.heartbeat import Presence, new_worker_id
from leasequeue_worker.held import Held
from leasequeue_worker.link import Link, Watchdog
from leasequeue_worker.loop import ClaimLoop
from leasequeue_worker.metrics import WorkerMetrics
from leasequeue_worker.probes import Beats, Probes
from leasequeue_worker.queuetable import QueueTable
from leasequeue_worker.renewal import Renewal, unproven
from leasequeue_worker.runners import make_slots
from leasequeue_worker.settings import Settings
from leasequeue_worker.verdicts import DRAIN_DELAY_S
from leasequeue_worker.wakeup import Waker

TICK_S = 0.1
# Handlers that were told to stop get this long before force is used, or before they are left behind.
STOP_GRACE_S = 5.0
# Threads left behind keep their memory and whatever they loop on: past this many the process makes way for a new one.
MAX_ABANDONED = 10
# What each connection mostly does, see `leasequeue.run.Operation`.
USUAL_LIMITS = {
    "claims": {"durable": False, "one_plan": True},
    "completions": {"durable": True},
    "renewal": {"durable": False},
}
EXIT_CODES = {
    0: "Drained after SIGTERM or SIGINT.",
    1: "Ten handlers were left behind past maxRuntimeSeconds: the worker drained and wants to be started again.",
    2: "A setting is wrong, or the handler cannot be loaded.",
}
EXECUTED = ("resolved", "retried", "failed", "repair")


class Worker:
    """One worker process.

    Args:
        settings: validated settings.

    Raises:
        BadInput: the handler cannot be loaded.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.worker_id = new_worker_id(settings.pod_name)
        namespace, queue = settings.queue_label
        bound = {"worker_id": self.worker_id, "queue": settings.queue or queue}
        logs.configure(settings.log_level, **bound)
        self._metrics = WorkerMetrics(namespace, queue)
        self._watchdog, self._beats, self._table = Watchdog(), Beats(), QueueTable(settings.schema, settings.table)
        self._board = Board(settings.concurrency, Waker())
        self._drain = Drain(settings.grace_s)
        self._signals, self._exit_code = 0, 0
        self._alarm = Waker()
        self._tracing = tracing.start(settings, self.worker_id)
        make_audit = AuditLog if self._tracing is None else self._tracing.audit
        audit = make_audit(logs.SINK, self.worker_id, settings.queue or queue, enabled=settings.audit)
        self._make_threads(audit)
        self._slots = make_slots(settings, self._board, self._completions, self._table, self._watchdog, bound, self._tracing)
        self._probes = Probes(settings.http_port, self._beats, self._why_not_ready, self._metrics.registry)
        self._gauges()

    def _make_threads(self, audit: AuditLog) -> None:
        settings, config, registry = self.settings, self.settings.config, self._board.registry
        self._presence = Presence(self.worker_id, settings.pod_uid, settings.pod_name, settings.concurrency, self._counters)
        completions, renewal = self._link("completions"), self._link("renewal")
        self._completions = Completions(
            completions, self._table, registry, config, self._metrics, audit, self._flushed, self._beats.mark("completions")
        )
        self._loop = ClaimLoop(
            settings, self._link("claims"), self._table, self._board, self._completions, self._presence, self._metrics,
            audit, self._beats.mark("claims"), lambda: bool(completions.opened and renewal.opened),
        )  # fmt: skip
        self._renewal = Renewal(
            renewal, self._table, registry, config, self._metrics, audit, self._stop_handler,
            self._beats.mark("renewal"),
        )  # fmt: skip

    def _link(self, name: str) -> Link:
        keep = USUAL_LIMITS[name]
        return Link(name, self.settings.source, lease_s=self.settings.config.lease_s, watchdog=self._watchdog, keep=keep)

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Work until told to end; returns the exit code. The caller exits at once: threads may still run."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._probes.start()
        for thread in (self._completions.thread, self._renewal.thread, self._loop.thread):
            thread.start()
        self._slots.start()
        logs.get().info("worker_started", slots=self.settings.concurrency, table=self._label)
        phase = Phase.WORKING
        while phase is not Phase.EXIT:
            self._alarm.sleep(TICK_S, None)
            phase = self._tick(time.monotonic(), phase)
        self._loop.end()
        self._loop.ended.wait(leave_s(self.settings.grace_s))
        if self._tracing is not None:
            self._tracing.flush()
        logs.get().info("worker_ended", held=len(self._board.registry))
        logs.flush()
        return self._exit_code

    @property
    def _label(self) -> str:
        return f"{self.settings.schema}.{self.settings.table}"

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._signals += 1
        self._alarm.wake()

    def _tick(self, now: float, before: Phase) -> Phase:
        self._watchdog.check(now)
        held = self._board.registry.all()
        self._check_deadlines(held, now)
        facts = Facts(now, self._signals, len(held), sum(h.running for h in held), not self._loop.claims_ended.is_set())
        phase = self._drain.step(facts)
        if phase is not before:
            logs.get().info("drain", phase=str(phase), held=facts.held, running=facts.running)
            self._enter(phase, before)
        return phase

    def _enter(self, phase: Phase, before: Phase) -> None:
        """Do what a new phase asks for; a step may have skipped phases, each is entered once."""
        order = list(Phase)
        for entered in order[order.index(before) + 1 : order.index(phase) + 1]:
            if entered is Phase.FINISHING:
                self._stop_claiming()
            elif entered is Phase.STOPPING and self._board.running():
                self._stop_handlers()
            elif entered is Phase.RELEASING:
                self._release_running()

    def _stop_claiming(self) -> None:
        self._loop.stop_claiming()
        self._board.close()
        for held in self._board.take_back():
            self._end(held, Release())
        self._completions.kick()

    def _stop_handlers(self) -> None:
        for held in self._board.running():
            if held.cancel("drain"):
                self._stop_handler(held)

    def _release_running(self) -> None:
        """Renewal ends first, so that no lease is extended after it was given back."""
        self._renewal.stop()
        self._beats.forget("renewal")
        self._slots.close()
        for held in self._board.running():
            held.cancel("drain")
            self._end(held, Release(DRAIN_DELAY_S))
        self._completions.kick()

    def _end(self, held: Held, verdict: Release | Repair) -> None:
        if held.say(verdict):
            self._completions.give(held)

    # --- deadlines ---------------------------------------------------------------------------------------------------

    def _check_deadlines(self, held: list[Held], now: float) -> None:
        for late in unproven(held, now):
            if late.cancel("unconfirmed"):
                logs.get().warning("lease_unconfirmed", item_id=str(late.lease.id), next="handler cancelled")
                self._stop_handler(late)
        limit = self.settings.max_runtime_s
        for running in [h for h in held if h.running]:
            if limit and now - running.started > limit and running.cancel("max_runtime"):
                logs.get().warning("max_runtime_exceeded", item_id=str(running.lease.id), limit_s=limit)
                self._stop_handler(running)
            elif running.cancelled and now - running.stopped_at > self._stop_grace_s:
                self._use_force(running)

    @property
    def _stop_grace_s(self) -> float:
        return min(STOP_GRACE_S, self.settings.config.lease_s / 3)

    def _stop_handler(self, held: Held) -> None:
        """`held` was marked cancelled: make its handler notice."""
        self._slots.cancel(held)

    def _use_force(self, held: Held) -> None:
        """A handler did not stop when asked: kill its process, or leave its thread behind."""
        if self._slots.cancel(held, hard=True) or held.cancelled != "max_runtime":
            return
        reason = f"ran longer than maxRuntimeSeconds ({self.settings.max_runtime_s}) and could not be stopped"
        self._end(held, Repair(reason))
        self._slots.recycle(held)
        self._metrics.abandoned += 1
        logs.get().error("handler_abandoned", item_id=str(held.lease.id), reason=reason)
        if self._metrics.abandoned >= MAX_ABANDONED and not self._signals:
            logs.get().error("too_many_abandoned_handlers", next="the worker drains and exits with 1")
            self._exit_code, self._signals = 1, 1

    # --- facts -------------------------------------------------------------------------------------------------------

    def _flushed(self, freed: bool) -> None:
        if self._presence.cordoned and not len(self._board.registry):
            self._presence.beat_now()
        self._loop.freed(freed)

    def _counters(self) -> WorkerCounters:
        metrics, held = self._metrics, self._board.registry.all()
        now = time.monotonic()
        running = [h for h in held if h.running]
        busy_s = metrics.busy_s + sum(now - h.started for h in running)
        return WorkerCounters(
            held=len(held),
            running=len(running),
            claimed_total=metrics.claimed,
            finished_total=sum(metrics.finished[name] for name in EXECUTED),
            lost_total=metrics.lost,
            busy_ms_total=int(busy_s * 1000),
        )

    def _why_not_ready(self) -> str:
        if self._drain.phase is not Phase.WORKING:
            return "draining"
        if self._presence.cordoned and not len(self._board.registry):
            return "cordoned and drained"
        return ""

    def _gauges(self) -> None:
        board, gauge = self._board, self._metrics.gauge
        gauge("leasequeue_worker_slots", "Items this worker runs at a time.", lambda: board.slots)
        gauge("leasequeue_worker_in_flight", "Leases this worker holds.", lambda: len(board.registry))
        gauge("leasequeue_worker_running", "Items in a handler now.", lambda: len(board.running()))
        gauge("leasequeue_worker_waiting", "Items claimed and not started.", lambda: len(board.line))
        gauge("leasequeue_worker_unflushed", "Finished items not yet acknowledged.", lambda: self._completions.unflushed)
        gauge("leasequeue_worker_cordoned", "1 while cordoned.", lambda: float(self._presence.cordoned))
        gauge("leasequeue_worker_draining", "1 while on the way out.", lambda: float(self._drain.phase is not Phase.WORKING))


def end_process(code: int) -> None:
    """Exit without waiting for threads: a handler that still runs must not run beside its next execution."""
    logs.flush()
    os._exit(code)
