"""Which slots run which handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leasequeue_worker.async_slots import AsyncSlots
from leasequeue_worker.board import Board
from leasequeue_worker.child import ChildRunner, boot_of
from leasequeue_worker.completion import Completions
from leasequeue_worker.exec_handler import ExecRunner
from leasequeue_worker.handler import load_handler
from leasequeue_worker.held import Held
from leasequeue_worker.http_handler import HttpRunner
from leasequeue_worker.link import Watchdog
from leasequeue_worker.queuetable import QueueTable
from leasequeue_worker.settings import Settings
from leasequeue_worker.slots import FunctionRunner, Runner, ThreadSlots
from leasequeue_worker.tracing import WorkerTracing
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


def make_slots(
    settings: Settings,
    board: Board,
    completions: Completions,
    table: QueueTable,
    watchdog: Watchdog,
    bound: dict[str, str],
    spans: WorkerTracing | None = None,
) -> Slots:
    """Slots for the handler that was given; imports it.

    Args:
        settings: of this worker.
        board: the waiting line.
        completions: where verdicts go.
        table: the queue's table.
        watchdog: bounds the database calls of transactions.
        bound: fields of every log line, for children.
        spans: makes spans around what runs; None without tracing.

    Raises:
        BadInput: it cannot be loaded; names what is missing.
    """
    source, lease_s = settings.source, settings.config.lease_s

    def transactions() -> Transactions:
        return Transactions(source, table.get, lease_s=lease_s, watchdog=watchdog)

    def threads(make: Callable[[str], Runner]) -> ThreadSlots:
        def runner(name: str) -> Runner:
            return make(name) if spans is None else spans.runner(make(name))

        return ThreadSlots(board, completions, lambda name: (runner(name), transactions()))

    target = settings.handler.target
    if settings.handler.kind == "exec":
        return threads(lambda _name: ExecRunner(list(target)))
    if settings.handler.kind == "http":
        HttpRunner(str(target))  # a URL without a host is refused now
        return threads(lambda _name: HttpRunner(str(target)))
    if settings.isolation == "process":
        return threads(_child_runners(settings, table, bound))
    handler = load_handler(str(target))
    if handler.is_async:
        call = handler.call if spans is None else spans.handler(handler.call)
        return AsyncSlots(board, completions, call, lambda: TransactionsAsync(source, table.get, lease_s=lease_s))
    return threads(lambda _name: FunctionRunner(handler.call))


def _child_runners(settings: Settings, table: QueueTable, bound: dict[str, str]) -> Callable[[str], Runner]:
    """Makes child runners; the first child is started at once, so that a handler that cannot be loaded is an error now."""
    boot = boot_of(str(settings.handler.target), settings.source, settings.config.lease_s, settings.log_level, bound)
    first = ChildRunner(boot, table)
    first.start()
    ready = [first]
    return lambda _name: ready.pop() if ready else ChildRunner(boot, table)
