"""A child of `isolation: process`: runs one handler call after the other and says their verdicts."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from leasequeue.errors import BadInput, TableMissing
from leasequeue.item import Item, column_index
from leasequeue.process import logs
from leasequeue.table import Table
from leasequeue_worker import verdicts
from leasequeue_worker.child import Boot, Cancel, Ready, Refused, Stage, Work, encode
from leasequeue_worker.context import AsyncContext, Context
from leasequeue_worker.handler import Handler, load_handler
from leasequeue_worker.held import Held
from leasequeue_worker.link import Watchdog
from leasequeue_worker.processes import die_with_parent
from leasequeue_worker.slots import failed
from leasequeue_worker.transaction import Transactions, TransactionsAsync

WATCH_S = 0.2


class ChildLoop:
    """The child's side of the pipe.

    Args:
        pipe: to the worker.
        boot: what the worker said first.
        handler: the loaded handler.
    """

    def __init__(self, pipe: Connection, boot: Boot, handler: Handler) -> None:
        self._pipe, self._handler = pipe, handler
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._held: Held | None = None
        self._cancel_task: Callable[[], None] | None = None
        self._table: Table | None = None
        self._sending = threading.Lock()
        watchdog = Watchdog()
        self._sync = Transactions(
            boot.source, self._known_table, lease_s=boot.lease_s, watchdog=watchdog, stage=lambda name: self._send(Stage(name))
        )
        self._async = TransactionsAsync(
            boot.source, self._known_table, lease_s=boot.lease_s, stage=lambda name: self._send(Stage(name))
        )
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=_watch, args=(watchdog,), daemon=True).start()

    def run(self) -> None:
        """Run items until the worker goes away."""
        self._send(Ready())
        with asyncio.Runner() as runner:
            while True:
                work = self._work.get()
                self._table = work.table or self._table
                item = Item(column_index(work.names), work.row)
                held = Held(item, item.lease, float("inf"), time.monotonic())
                held.started = time.monotonic()
                self._held = held
                self._send(encode(self._one(held, runner), committed=held.committed))

    def _one(self, held: Held, runner: asyncio.Runner) -> Any:
        try:
            if self._handler.is_async:
                value = runner.run(self._call_async(held))
            else:
                value = self._handler.call(held.item, Context(held, self._sync))
            return verdicts.of_value(value)
        except BaseException as ex:  # noqa: BLE001  (a handler's SystemExit must not end the child)
            return failed(held, ex)

    async def _call_async(self, held: Held) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        self._cancel_task = cancel
        try:
            return await self._handler.call(held.item, AsyncContext(held, self._async))
        finally:
            self._cancel_task = None

    def _known_table(self) -> Table:
        if self._table is None:
            raise TableMissing("queue", "was not told to the handler's process")
        return self._table

    def _send(self, message: Any) -> None:
        try:
            with self._sending:
                self._pipe.send(message)
        except OSError:
            os.killpg(0, signal.SIGKILL)  # the worker is gone: its leases are no longer renewed

    def _read(self) -> None:
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                os.killpg(0, signal.SIGKILL)
            if isinstance(message, Work):
                self._work.put(message)
            elif isinstance(message, Cancel) and self._held is not None:
                self._held.cancel(message.reason)
                if self._cancel_task is not None:
                    self._cancel_task()


def _watch(watchdog: Watchdog) -> None:
    while True:
        time.sleep(WATCH_S)
        watchdog.check(time.monotonic())


def main() -> None:
    """Entry point; the argument is the pipe's descriptor."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the worker's to handle
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    pipe: Connection = Connection(descriptor)
    boot: Boot = pipe.recv()
    logs.configure(boot.log_level, **boot.bound)
    try:
        handler = load_handler(boot.handler)
    except BadInput as ex:
        pipe.send(Refused(boot.handler, ex.problem))
        return
    ChildLoop(pipe, boot, handler).run()


if __name__ == "__main__":
    main()
