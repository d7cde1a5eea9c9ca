"""Slots of sync handlers: one thread each, taking items straight from the waiting line.

No hand-over per item: a slot pops, runs the handler, and appends the verdict; with nothing else to do it writes the
verdict itself. A thread cannot be ended from outside; one that ran
past maxRuntimeSeconds is left behind (its verdict is taken, its late result ignored) and another takes its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from leasequeue.item import Item
from leasequeue.process.logs import get
from leasequeue.verdict import Release, Retry
from leasequeue_worker import verdicts
from leasequeue_worker.board import Board
from leasequeue_worker.completion import Completions
from leasequeue_worker.context import Context
from leasequeue_worker.held import Held
from leasequeue_worker.transaction import Transactions
from leasequeue_worker.verdicts import NOTHING

# After a handler as short as this the next one will be over before another thread has woken to write the verdict.
BRIEF_S = 0.0001


class Runner(Protocol):
    """What a slot runs items with: the handler itself, a child process, a command, an HTTP client."""

    def __call__(self, item: Item, ctx: Context) -> Any:
        """Run one item; the value or the exception is the verdict."""

    def stop(self, held: Held, *, hard: bool) -> bool:
        """End what runs for `held`, from another thread. False when that is not possible (a thread)."""

    def close(self) -> None:
        """Let go of children and connections."""


class FunctionRunner:
    """Runs a Python function in the slot's own thread."""

    def __init__(self, call: Callable[[Item, Any], Any]) -> None:
        self._call = call

    def __call__(self, item: Item, ctx: Context) -> Any:
        return self._call(item, ctx)

    def stop(self, held: Held, *, hard: bool) -> bool:  # noqa: ARG002
        """A thread cannot be ended from outside."""
        return False

    def close(self) -> None:
        """Nothing to let go of."""


def never_ran(held: Held, now: float) -> bool:
    """True when a waiting item must not start: its lease is lost, or no longer proven."""
    return bool(held.cancelled) or held.deadline <= now


class ThreadSlot(threading.Thread):
    """One slot."""

    def __init__(self, name: str, board: Board, completions: Completions, runner: Runner, transactions: Transactions) -> None:
        super().__init__(name=name, daemon=True)
        self.retired = False
        self.runner, self.transactions = runner, transactions
        self._board, self._completions = board, completions

    def run(self) -> None:
        """Take items until the board closes or the slot is retired."""
        board, completions = self._board, self._completions
        line, write_here = board.line, completions.write_here
        give, give_brief = completions.give, completions.hold if completions.singly else completions.give
        pop, wake = line.popleft, board.waker.wake  # as board.take does, without a call an item
        # The plain function is called without a wrapper around it: this line runs for every item.
        call = self.runner._call if isinstance(self.runner, FunctionRunner) else self.runner
        clock, transactions = time.monotonic, self.transactions
        while not self.retired:
            try:
                held = pop()
            except IndexError:
                if board.closed:
                    return
                completions.kick()
                board.wait(1.0)
                continue
            if len(line) <= board.low_water:
                wake()
            began = clock()
            if held.cancelled or held.deadline <= began:  # never_ran, without a call an item
                skip(held, completions)
                continue
            held.slot = self
            held.started = board.last_start = began
            try:
                value = call(held.item, Context(held, transactions))
                verdict = NOTHING if value is None else verdicts.of_value(value)
            except BaseException as ex:  # noqa: BLE001  (a handler's SystemExit must not end the worker)
                verdict = failed(held, ex)
            took_s = clock() - began
            if held.say(verdict):
                held.took_s = took_s
                if not line:
                    write_here(held)
                elif took_s < BRIEF_S:
                    give_brief(held)
                else:
                    give(held)
            else:
                late(held)


def skip(held: Held, completions: Completions) -> None:
    """A waiting item whose lease is lost or unproven is given back, if it is still ours."""
    if held.say(Release()):
        completions.give(held)


def failed(held: Held, error: BaseException) -> Any:
    """Verdict of a handler that raised; logged without its message, which may quote the payload."""
    verdict = verdicts.of_error(error)
    if verdict is not error:
        item = held.item
        get().warning(
            "handler_raised",
            item_id=str(item.id), trace_id=str(item.trace_id), idempotency_key=item.idempotency_key, attempt=item.attempt,
            error_type=type(error).__name__, where=verdicts.where(error), cancelled=held.cancelled or None,
        )  # fmt: skip
        if held.cancelled in ("lost", "unconfirmed", "drain"):
            # Stopped by us, not failed by itself: where the lease still stands the attempt does not count.
            return Release(verdicts.DRAIN_DELAY_S if held.cancelled == "drain" else 0.0)
        if held.cancelled == "max_runtime":
            return Retry(error=f"stopped: it ran longer than maxRuntimeSeconds ({type(error).__name__})")
    return verdict


def late(held: Held) -> None:
    """A handler ended after its verdict was taken for it."""
    get().warning("handler_ended_late", item_id=str(held.lease.id), reason=held.cancelled or None)


class ThreadSlots:
    """All slots of a worker whose handler blocks a thread.

    Args:
        board: the waiting line.
        completions: where verdicts go.
        make: makes the runner and the transactions of one slot.
    """

    def __init__(self, board: Board, completions: Completions, make: Callable[[str], tuple[Runner, Transactions]]) -> None:
        self._board, self._completions, self._make = board, completions, make
        self._slots: list[ThreadSlot] = []
        self._made = 0

    def start(self) -> None:
        """Start all slots."""
        for _ in range(self._board.slots):
            self._start_one()

    def _start_one(self) -> None:
        name = f"slot-{self._made}"
        self._made += 1
        runner, transactions = self._make(name)
        slot = ThreadSlot(name, self._board, self._completions, runner, transactions)
        self._slots.append(slot)
        slot.start()

    def cancel(self, held: Held, *, hard: bool = False) -> bool:
        """Make what runs for `held` stop. False when it can only be asked (a plain thread).

        Args:
            held: the item.
            hard: do not wait for it to stop by itself.
        """
        slot: ThreadSlot | None = held.slot
        return slot is not None and slot.runner.stop(held, hard=hard)

    def recycle(self, held: Held) -> None:
        """Leave the thread that runs `held` behind and start another in its place."""
        slot: ThreadSlot = held.slot
        if slot.retired:
            return
        slot.retired = True
        self._slots.remove(slot)
        self._start_one()

    def close(self) -> None:
        """End transactions and children of what still runs."""
        for slot in self._slots:
            slot.transactions.close()
            slot.runner.close()
