"""Which slots run which handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leasequeue.errors import BadInput
from leasequeue_worker.async_slots import AsyncSlots
from leasequeue_worker.board import Board
from leasequeue_worker.completion import Completions
from leasequeue_worker.handler import load_handler
from leasequeue_worker.held import Held
from leasequeue_worker.link import Watchdog
from leasequeue_worker.queuetable import QueueTable
from leasequeue_worker.settings import Settings
from leasequeue_worker.slots import FunctionRunner, Runner, ThreadSlots
from leasequeue_worker.transaction import Transactions, TransactionsAsync


class Slots(Protocol):
    """All slots of a worker."""

    def start(self) -> None:
        """Start them."""

    def cancel(self, held: Held, *, hard: bool = False) -> bool:
        """Make what runs for `held` stop; False when it may refuse."""

    def recycle(self, held: Held) -> None:
        """Leave what runs for `held` behind and make its slot usable again."""

    def close(self) -> None:
        """End transactions and children of what still runs."""


def make_slots(settings: Settings, board: Board, completions: Completions, table: QueueTable, watchdog: Watchdog) -> Slots:
    """Slots for the handler that was given; imports it.

    Raises:
        BadInput: it cannot be loaded; names what is missing.
    """
    source, lease_s = settings.source, settings.config.lease_s

    def transactions() -> Transactions:
        return Transactions(source, table.get, lease_s=lease_s, watchdog=watchdog)

    def threads(make: Callable[[str], Runner]) -> ThreadSlots:
        return ThreadSlots(board, completions, lambda name: (make(name), transactions()))

    if settings.handler.kind != "python" or settings.isolation == "process":
        raise BadInput("handler", settings.handler.kind, "only Python handlers in threads can be run yet")
    handler = load_handler(str(settings.handler.target))
    if handler.is_async:
        return AsyncSlots(board, completions, handler.call, lambda: TransactionsAsync(source, table.get, lease_s=lease_s))
    return threads(lambda _name: FunctionRunner(handler.call))
