"""Slots of async handlers: coroutines on one event loop in a thread of its own.

A handler that blocks the loop delays its neighbours, but neither renewal nor claims nor probes: those have threads of their own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from leasequeue_worker import verdicts
from leasequeue_worker.board import Board
from leasequeue_worker.completion import Completions
from leasequeue_worker.context import AsyncContext
from leasequeue_worker.handler import AsyncHandler
from leasequeue_worker.held import Held
from leasequeue_worker.slots import failed, late, never_ran, skip
from leasequeue_worker.transaction import TransactionsAsync


class AsyncSlot:
    """One slot: a task that runs one handler after the other."""

    def __init__(self, board: Board, completions: Completions, call: AsyncHandler, transactions: TransactionsAsync) -> None:
        self.current: Held | None = None
        self.retired = False
        self.task: asyncio.Task[None] | None = None
        self.transactions = transactions
        self._board, self._completions, self._call = board, completions, call

    async def run(self, arrived: asyncio.Event) -> None:
        """Take items until the board closes or the slot is retired.

        Args:
            arrived: set when items were claimed; shared by all slots.
        """
        while not self.retired:
            held = self._board.take()
            if held is None:
                if self._board.closed:
                    return
                self._completions.kick()
                arrived.clear()
                if not self._board.line:  # a batch between take() and clear() would be missed otherwise
                    await arrived.wait()
                continue
            if never_ran(held, time.monotonic()):
                skip(held, self._completions)
                continue
            await self._run_one(held)
            await asyncio.sleep(0)  # handlers that never await must not keep the other slots from their turn

    async def _run_one(self, held: Held) -> None:
        began = time.monotonic()
        held.slot, held.started = self, began
        self._board.last_start = began
        self.current = held
        try:
            verdict = verdicts.of_value(await self._call(held.item, AsyncContext(held, self.transactions)))
        except BaseException as ex:  # noqa: BLE001  (CancelledError included: it must not leave the row leased)
            verdict = failed(held, ex)
        finally:
            self.current = None
        task = self.task
        while task is not None and task.cancelling():
            task.uncancel()  # the cancellation was the item's, not the slot's
        took_s = time.monotonic() - began
        if held.say(verdict):
            held.took_s = took_s
            self._completions.give(held)
        else:
            late(held)


class AsyncSlots:
    """All slots of a worker with an async handler.

    Args:
        board: the waiting line.
        completions: where verdicts go.
        call: the coroutine function.
        make: makes the transactions of one slot.
    """

    def __init__(
        self, board: Board, completions: Completions, call: AsyncHandler, make: Callable[[], TransactionsAsync]
    ) -> None:
        self._board, self._completions, self._call, self._make = board, completions, call, make
        self._slots: list[AsyncSlot] = []
        self._loop = asyncio.new_event_loop()
        self._arrived = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="async-slots", daemon=True)

    def start(self) -> None:
        """Start the event loop and all slots."""
        self._board.on_arrival(lambda: self._tell(self._arrived.set))
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for _ in range(self._board.slots):
            self._start_one()
        self._loop.run_forever()

    def _start_one(self) -> None:
        slot = AsyncSlot(self._board, self._completions, self._call, self._make())
        self._slots.append(slot)
        slot.task = self._loop.create_task(slot.run(self._arrived))

    def _tell(self, call: Callable[..., Any], *args: Any) -> None:
        self._loop.call_soon_threadsafe(call, *args)

    def cancel(self, held: Held, *, hard: bool = False) -> bool:  # noqa: ARG002
        """Cancel the task that runs `held`, at its next await. False: it may refuse.

        Args:
            held: the item.
            hard: no difference here: a task has one way to be cancelled.
        """
        self._tell(self._cancel, held)
        return False

    def _cancel(self, held: Held) -> None:
        slot: AsyncSlot | None = held.slot
        if slot is not None and slot.current is held and slot.task is not None:
            slot.task.cancel(held.cancelled)

    def recycle(self, held: Held) -> None:
        """Leave the task that runs `held` behind and start another in its place."""
        self._tell(self._recycle, held)

    def _recycle(self, held: Held) -> None:
        slot: AsyncSlot = held.slot
        if not slot.retired:
            slot.retired = True
            self._slots.remove(slot)
            self._start_one()

    def close(self) -> None:
        """End transactions of what still runs."""
        self._tell(self._arrived.set)
        for slot in list(self._slots):
            slot.transactions.close()
