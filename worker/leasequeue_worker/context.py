"""What a handler gets beside the item: its lease's facts, cancellation, a logger, and transactions that hold the fence.

`Context` is for sync handlers, `AsyncContext` for async ones; they differ in `transaction()` and in `cancelled.wait()`.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol
from uuid import UUID

import psycopg

from leasequeue.process import logs
from leasequeue_worker.held import Held


class SyncTransactions(Protocol):
    """Makes the transactions of one slot's sync handlers."""

    def open(self, held: Held, result: ResultBox) -> AbstractContextManager[psycopg.Connection[Any]]:
        """One transaction about one item."""


class AsyncTransactions(Protocol):
    """Makes the transactions of one slot's async handlers."""

    def open(self, held: Held, result: ResultBox) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """One transaction about one item."""


class ResultBox:
    """The result a handler sets inside its transaction."""

    __slots__ = ("given", "value")

    def __init__(self) -> None:
        self.given, self.value = False, None

    def set(self, value: Any) -> None:
        """Keep `value`; the last one wins."""
        self.given, self.value = True, value


class Cancelled:
    """True once the handler should stop: its lease is lost or unconfirmed, it ran too long, or the worker ends."""

    __slots__ = ("_held",)

    def __init__(self, held: Held) -> None:
        self._held = held

    def __bool__(self) -> bool:
        return bool(self._held.cancelled)

    def is_set(self) -> bool:
        """Same as `bool()`."""
        return bool(self._held.cancelled)

    @property
    def reason(self) -> str:
        """lost, unconfirmed, max_runtime or drain; empty while not cancelled."""
        return self._held.cancelled

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until cancelled, at most `timeout_s` seconds; True when cancelled."""
        return self._held.wait_cancelled(timeout_s)


class AsyncCancelled(Cancelled):
    """`Cancelled` with an awaitable `wait`. An async handler is also cancelled as a task, at its next await."""

    __slots__ = ()

    async def wait(self, timeout_s: float | None = None) -> bool:  # type: ignore[override]
        """Wait until cancelled, at most `timeout_s` seconds; True when cancelled."""
        loop = asyncio.get_running_loop()
        until = None if timeout_s is None else loop.time() + timeout_s
        while not self._held.cancelled and (until is None or loop.time() < until):  # noqa: ASYNC110  (set by any thread)
            await asyncio.sleep(0.05 if until is None else min(0.05, max(0.0, until - loop.time())))
        return bool(self._held.cancelled)


class _Context:
    """Facts about the lease. All forms of handlers get them, so that effects outside PostgreSQL can be made once."""

    __slots__ = ("_held", "_log", "_result", "_transactions")

    def __init__(self, held: Held, transactions: Any) -> None:
        self._held, self._transactions = held, transactions
        self._log: Any = None
        self._result: ResultBox | None = None

    @property
    def idempotency_key(self) -> str | None:
        """The item's key, the same at every attempt: pass it on to what must happen once."""
        key: str | None = self._held.item.get("idempotency_key")
        return key

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1."""
        return self._held.item.attempt

    @property
    def token(self) -> UUID:
        """Fence token of this lease: later leases of the item have others."""
        return self._held.item.lease_token

    @property
    def worker_id(self) -> str:
        """Identity of this process."""
        return self._held.lease.worker_id

    @property
    def log(self) -> Any:
        """structlog logger with the item's identity bound."""
        if self._log is None:
            item = self._held.item
            self._log = logs.get().bind(
                item_id=str(item.id), trace_id=str(item.trace_id), idempotency_key=item.idempotency_key, attempt=item.attempt
            )
        return self._log

    def set_result(self, value: Any) -> None:
        """Inside `transaction()`: the result that is stored with its commit. The last one wins."""
        self._box.set(value)

    @property
    def _box(self) -> ResultBox:
        if self._result is None:
            self._result = ResultBox()
        return self._result


class Context(_Context):
    """Second argument of a sync handler."""

    __slots__ = ()

    @property
    def cancelled(self) -> Cancelled:
        """Whether to stop: `bool(ctx.cancelled)`, `ctx.cancelled.wait(5)`."""
        return Cancelled(self._held)

    def transaction(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A transaction that resolves the item together with the effects written in it.

        The fence comes first: a lease that is no longer held raises before the block runs. The block gets a psycopg connection;
        its commit is the item's completion, with the result given by `ctx.set_result(value)` (or `tx.result = value`). An error
        inside rolls both back. When the connection breaks at COMMIT the outcome is read back, never guessed and never run again.
        After the block the item is done: what the handler returns is ignored, with a warning `verdict_after_commit`.

        Raises:
            LeaseNotHeld: the lease was lost; nothing was done.
            TransactionMisused: a failed statement was caught inside without a savepoint, the handler ended the transaction
                itself, or opened it twice; nothing is told as done.
            OutcomeUnknown: the outcome of the COMMIT could not be read back in time.
        """
        opened: AbstractContextManager[psycopg.Connection[Any]] = self._transactions.open(self._held, self._box)
        return opened


class AsyncContext(_Context):
    """Second argument of an async handler."""

    __slots__ = ()

    @property
    def cancelled(self) -> AsyncCancelled:
        """Whether to stop: `bool(ctx.cancelled)`, `await ctx.cancelled.wait(5)`."""
        return AsyncCancelled(self._held)

    def transaction(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Async twin of `Context.transaction`."""
        opened: AbstractAsyncContextManager[psycopg.AsyncConnection[Any]] = self._transactions.open(self._held, self._box)
        return opened
