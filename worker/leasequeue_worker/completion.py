"""Completions: verdicts reach the database in batches, within about 10 ms, from a thread and a connection of their own.

A slot appends to `finished` (an atomic operation of a deque) and goes on; no lock is taken per item. While one flush is under
way the next batch gathers, so the batch size follows the load. Where one item goes at a time there is nothing to gather, and waking this
thread would cost more than the write: then the slot writes itself, as long as nobody else does (`write_here`). Nothing is dropped: a finished result is offered to the fence
until the database answers, also past the lease's expiry. A batch that one row breaks is halved until that row stands alone: refused
for its data it goes to REPAIR with the message; locked by somebody, or failing otherwise, it alone is offered again.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import leasequeue
from leasequeue.config import LeaseConfig
from leasequeue.fence import Settlement
from leasequeue.outcomes import Outcomes
from leasequeue.process.faults import Fault, classify, describe
from leasequeue.process.logs import get
from leasequeue.process.pacing import Backoff
from leasequeue.states import Outcome
from leasequeue_worker.audit import AuditLog
from leasequeue_worker.bell import Bell
from leasequeue_worker.held import Held, Registry
from leasequeue_worker.link import CallCut, Connection, Link
from leasequeue_worker.metrics import WorkerMetrics
from leasequeue_worker.queuetable import QueueTable
from leasequeue_worker.sizing import Pace
from leasequeue_worker.verdicts import Writes, plain_text, plan_writes, said_after_commit

FLUSH_S = 0.008
FLUSH_MOST = 500
HERE_MOST = 4  # more finished items than these are a batch, which is the thread's
IDLE_S = 5.0  # a beat at least so often
CALL_LIMIT_S = 15.0
EVENTS = {
    Outcome.RETRIED: "item_retried",
    Outcome.FAILED: "item_failed",
    Outcome.REPAIR: "item_repair",
    Outcome.RELEASED: "item_released",
}
Answer = Outcomes


class Completions:
    """Takes verdicts and writes them.

    Args:
        link: the connection completions have for themselves.
        table: the queue's table.
        registry: what is held; an item leaves it when the database took its verdict.
        config: settings of the queue.
        metrics: counters.
        audit: audit log.
        flushed: called after each flush, with True where a lane or a place under the ceiling came free.
        beat: called at each turn, for /healthz.
    """

    def __init__(
        self,
        link: Link,
        table: QueueTable,
        registry: Registry,
        config: LeaseConfig,
        metrics: WorkerMetrics,
        audit: AuditLog,
        flushed: Callable[[bool], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._link, self._table, self._registry, self._config = link, table, registry, config
        self._metrics, self._audit, self._flushed, self._beat = metrics, audit, flushed, beat
        self._rng = random.Random()
        self._backoff = Backoff(0.05, 3.0)
        self._armed, self._kicked = Bell(), Bell()
        self._writing = threading.Lock()  # the connection, and what is to be offered again, are of one thread at a time
        self._batch_size = config.batch_size
        self.singly = config.batch_size == 1
        self._in_flight = self._halvings = 0
        self._most = FLUSH_MOST  # items a call, fewer after one that could not be sent and answered in time
        self._broken = False
        self._retry: list[Held] = []
        self._told: set[str] = set()  # each kind of late verdict is told once a process
        self.finished: deque[Held] = deque()
        self.pace = Pace()
        self.thread = threading.Thread(target=self._loop, name="completions", daemon=True)

    @property
    def unflushed(self) -> int:
        """Finished items whose verdict the database has not yet acknowledged."""
        return len(self.finished) + self._in_flight

    def give(self, held: Held) -> None:
        """A slot is done with an item; `held.verdict` is set. Any thread."""
        self.finished.append(held)
        self._armed.ring()  # asking for the first of a batch instead would miss two that come at once
        if len(self.finished) >= self._batch_size:
            self._kicked.ring()

    def hold(self, held: Held) -> None:
        """As `give`, by a slot that will soon have more, or nothing else to do. Nothing is written before that or FLUSH_S, not even where
        items are claimed singly."""
        self.finished.append(held)
        self._armed.ring()

    def write_here(self, held: Held) -> None:
        """As `give`, by a slot that has nothing better to do: what is finished is written by the calling thread, unless another one writes,
        or there is much to write, or something must be offered again."""
        self.finished.append(held)
        if self._retry or len(self.finished) > HERE_MOST or not self._writing.acquire(blocking=False):
            self._armed.ring()
            self._kicked.ring()
            return
        try:
            self._flush_safely()
        finally:
            self._writing.release()
        if self._retry or self.finished:  # the thread's, with its back-off
            self._armed.ring()

    def kick(self) -> None:
        """Flush now: the slots have nothing left that could fill the batch."""
        if self.finished:
            self._kicked.ring()

    def flush(self) -> None:
        """Offer everything finished to the fence once. One thread at a time."""
        again, self._retry, self._broken = self._retry, [], False
        pop = self.finished.popleft
        most = min(len(self.finished), FLUSH_MOST)
        self._in_flight = len(again) + most
        fresh = [pop() for _ in range(most)]
        freed = False
        try:
            self._measure(fresh)
            for batch in (*self._pieces(fresh), *self._pieces(again)):  # apart: what failed before must not hold up the others
                if self._broken:
                    self._retry.extend(batch)
                elif batch:
                    self._halvings = 2 * len(batch).bit_length()
                    freed |= self._write(plan_writes(batch, self._rng))
        except BaseException:
            self._retry = fresh + again  # what was written already is recognised as a repeat
            raise
        finally:
            self._in_flight = len(self._retry)
        if (
            fresh or again
        ):  # told last: whoever it wakes must no longer count these items as unflushed, or it sleeps on for a poll
            self._flushed(freed)

    def _pieces(self, batch: list[Held]) -> list[list[Held]]:
        return [batch[start : start + self._most] for start in range(0, len(batch), self._most)]

    def _open(self) -> None:
        """Connect before the first claim: on a full server a worker would lease what it cannot complete. The claim loop tells the trouble."""
        while not self._link.opened:
            self._beat()
            try:
                with self._writing:  # as soon as it is open the claim loop goes, and a slot may want to write
                    self._link.run(CALL_LIMIT_S, lambda _conn: None)
            except Exception:  # noqa: BLE001  (whatever it is, the worker waits for it)
                time.sleep(self._backoff.next_s())
        self._backoff.reset()

    def _loop(self) -> None:
        self._open()
        while True:
            self._beat()
            if not self._retry:
                rung = self._armed.wait(IDLE_S)
                if rung:
                    self._kicked.wait(FLUSH_S)
            with self._writing:  # also when there is nothing to do: a slot whose write hangs is seen as this thread's hang
                self._flush_safely()
                broken, self._broken = self._broken, False
            if broken:
                time.sleep(self._backoff.next_s())
            else:
                self._backoff.reset()
            if self.finished:
                self._armed.ring()

    def _flush_safely(self) -> None:
        try:
            self.flush()
        except Exception as ex:  # noqa: BLE001  (this thread must outlive every surprise: leases hang on it)
            get().error("completion_unexpected_error", error=describe(ex), error_type=type(ex).__name__)
            self._broken = True

    def _measure(self, batch: Sequence[Held]) -> None:
        """Durations of items seen for the first time."""
        took = [held.took_s for held in batch if held.took_s > 0.0]
        if not took:
            return
        total = sum(took)
        self._metrics.handler.observe(took)
        self._metrics.busy_s += total
        self.pace.finished(total, len(took))

    def _write(self, writes: Writes) -> bool:
        self._retry.extend(writes.later)
        freed = False
        if writes.committed:
            self._tell_too_late(writes.committed)
            self._done(writes.committed)
            freed = True
        if writes.completions:
            freed |= self._offer(writes.resolved, writes.completions, self._resolve)
        if writes.settlements:
            freed |= self._offer(writes.settled, writes.settlements, self._settle)
        return freed

    def _tell_too_late(self, committed: Sequence[Held]) -> None:
        """Say so when a handler gave a result or another verdict after its transaction had resolved the item."""
        for held in committed:
            what = said_after_commit(held.verdict)
            if what and what not in self._told:
                self._told.add(what)
                get().warning(
                    "verdict_after_commit", item_id=str(held.lease.id), ignored=what,
                    next="ctx.transaction() has resolved the item: give its result inside the block with ctx.set_result(value)",
                )  # fmt: skip

    def _resolve(self, conn: Connection, writes: Sequence[Any]) -> Answer:
        return leasequeue.resolve(conn, self._table.get(), writes)

    def _settle(self, conn: Connection, writes: Sequence[Any]) -> Answer:
        return leasequeue.settle(conn, self._table.get(), writes, config=self._config)

    def _offer(self, batch: Sequence[Held], writes: Sequence[Any], call: Callable[[Connection, Sequence[Any]], Answer]) -> bool:
        """One write of a batch; True when it was taken. What the database did not answer is offered again."""
        self._beat()
        try:
            answer = self._link.run(CALL_LIMIT_S, lambda conn: call(conn, writes))
        except Exception as ex:  # noqa: BLE001  (classified below)
            fault = classify(ex)
            self._metrics.faults[fault] += 1
            if fault is Fault.DATA:
                return self._split(batch, writes, call, ex)
            if fault is not Fault.CONNECTION and len(batch) > 1 and self._halvings > 0:
                return self._halve(batch, writes, call)
            get().warning("completion_failed", error=describe(ex), kind=str(fault), items=len(batch), next="offered again")
            if isinstance(ex, CallCut):
                self._most = max(1, len(batch) // 2)
            self._retry.extend(batch)
            self._broken = True
            return False
        self._most = min(FLUSH_MOST, 2 * self._most)
        self._account(batch, answer)
        return True

    def _split(
        self,
        batch: Sequence[Held],
        writes: Sequence[Any],
        call: Callable[[Connection, Sequence[Any]], Answer],
        error: Exception,
    ) -> bool:
        """Halve a refused batch; a refused item goes to REPAIR with the reason."""
        if len(batch) > 1:
            return self._halve(batch, writes, call)
        get().error("item_result_refused", error=describe(error), error_type=type(error).__name__)
        if isinstance(writes[0], Settlement):
            self._registry.forget(batch)  # nothing left to say about it: its lease expires and the reclaimer takes it
            return False
        reason = plain_text(f"the result was refused: {error}".split("\n", 1)[0])
        return self._offer(batch, [Settlement(batch[0].lease, "REPAIR", error=reason)], self._settle)

    def _halve(self, batch: Sequence[Held], writes: Sequence[Any], call: Callable[[Connection, Sequence[Any]], Answer]) -> bool:
        """Offer the halves: one row that is locked, or that the server cannot change, keeps back itself alone.

        Where neither half is taken the trouble is no single row's: the search ends, and the rest is offered whole.
        """
        self._halvings -= 1
        middle = len(batch) // 2
        first = self._offer(batch[:middle], writes[:middle], call)
        second = self._offer(batch[middle:], writes[middle:], call)
        if not first and not second:
            self._halvings = 0
        return first or second

    def _account(self, batch: Sequence[Held], answer: Answer) -> None:
        """Count, log and forget what the database answered."""
        if answer.all(Outcome.RESOLVED):
            self._done(batch)
            return
        resolved = [held for held in batch if answer.get(held.lease.id) is Outcome.RESOLVED]
        if resolved:
            self._done(resolved)
        if len(resolved) == len(batch):
            return
        others = [held for held in batch if answer.get(held.lease.id) is not Outcome.RESOLVED]
        for held in others:
            self._other(held, answer.get(held.lease.id, Outcome.LOST))
        self._registry.forget(others)

    def _done(self, resolved: Sequence[Held]) -> None:
        self._metrics.finished["resolved"] += len(resolved)
        self._audit.resolved(resolved)
        self._registry.forget(resolved)

    def _other(self, held: Held, outcome: Outcome) -> None:
        finished: Counter[str] = self._metrics.finished
        name = EVENTS.get(outcome)
        if name:
            finished[outcome.lower()] += 1
            self._audit.event(name, [held], reason=held.cancelled or None)
            return
        if outcome is Outcome.REFUSED:
            finished["refused"] += 1
            get().error(
                "item_result_refused", item_id=str(held.lease.id), next="it refuses every change; its lease ends by itself"
            )
            return
        finished["noop" if outcome is Outcome.ALREADY_RESOLVED else "lost"] += 1
        if outcome is Outcome.LOST and held.cancelled != "lost":
            self._metrics.lost += 1
        self._audit.unchanged(held, outcome)
