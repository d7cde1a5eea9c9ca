"""Slots with `isolation: process`: the worker's side of a child that runs the handler.

Each slot keeps one child. The lease stays with the worker: its renewal goes on whatever the child does, holding its interpreter for
minutes or crashing. A crash costs the item one attempt and nobody else anything.

Messages to the child: Boot once, then Work per item, and Cancel. From it: Ready or Refused once, Stage, Said per item.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

from leasequeue import jsonio
from leasequeue.dsn import DsnSource
from leasequeue.errors import BadInput
from leasequeue.item import Item
from leasequeue.table import Table
from leasequeue.verdict import Fail, Release, Repair, Resolve, Retry, Verdict
from leasequeue_worker.context import Context
from leasequeue_worker.held import Held
from leasequeue_worker.processes import ended_how, has_ended, reap, signal_group
from leasequeue_worker.queuetable import QueueTable

START_LIMIT_S = 120.0
POLL_S = 0.5
KINDS: dict[str, type[Verdict]] = {kind.__name__: kind for kind in (Resolve, Retry, Fail, Repair, Release)}


@dataclass(frozen=True)
class Boot:
    """What a child needs to know. The DSN travels in here, not in its arguments."""

    handler: str
    source: DsnSource
    lease_s: float
    log_level: str
    bound: dict[str, str]


@dataclass(frozen=True)
class Work:
    """One item; `table` where the child does not have it yet."""

    names: tuple[str, ...]
    row: tuple[Any, ...]
    table: Table | None


@dataclass(frozen=True)
class Cancel:
    """Ask the running handler to stop."""

    reason: str


@dataclass(frozen=True)
class Ready:
    """The handler is loaded."""


@dataclass(frozen=True)
class Refused:
    """The handler cannot be loaded."""

    handler: str
    problem: str


@dataclass(frozen=True)
class Stage:
    """How far the handler's transaction is: fenced, idle or committed."""

    name: str


@dataclass(frozen=True)
class Said:
    """A verdict in plain values: results as JSON text, so that no class of the handler's has to exist on our side."""

    kind: str
    committed: bool
    result: str | None = None
    columns: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)


def encode(verdict: Verdict, *, committed: bool) -> Said:
    """A verdict as message. A result that JSON cannot hold becomes a Repair."""
    if isinstance(verdict, Resolve):
        try:
            result = None if verdict.result is None else jsonio.dumps_result(verdict.result)
            columns = jsonio.dumps_result(dict(verdict.columns)) if verdict.columns else None
        except BadInput as ex:
            return Said("Repair", committed, fields={"error": f"the result was refused: {ex}"})
        return Said("Resolve", committed, result, columns)
    fields = {name: getattr(verdict, name) for name in ("after_s", "error") if hasattr(verdict, name)}
    kind = next(name for name, known in KINDS.items() if isinstance(verdict, known))
    return Said(kind, committed, fields=fields)


def decode(said: Said) -> Verdict:
    """The verdict of a message."""
    if said.kind == "Resolve":
        result = None if said.result is None else jsonio.loads(said.result)
        return Resolve(result, jsonio.loads(said.columns) if said.columns else {})
    return KINDS[said.kind](**said.fields)


class HandlerProcessDied(Exception):
    """The child ended without a verdict."""


class Child:
    """One running child.

    Args:
        boot: what it needs to know.

    Raises:
        BadInput: the handler cannot be loaded; says why.
        HandlerProcessDied: it ended while starting.
    """

    def __init__(self, boot: Boot) -> None:
        ours, theirs = multiprocessing.Pipe()
        command = [sys.executable, "-m", "leasequeue_worker.child_main", str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True, stdin=subprocess.DEVNULL)
        theirs.close()
        self.pipe: Connection = ours
        self.table: Table | None = None
        self._sending = threading.Lock()
        self.send(boot)
        answer = self.receive(time.monotonic() + START_LIMIT_S)
        if isinstance(answer, Refused):
            self.end()
            raise BadInput("handler", answer.handler, answer.problem)

    def send(self, message: Any) -> None:
        """Send one message; one to a dead child is dropped, `receive` tells."""
        with self._sending, contextlib.suppress(OSError):
            self.pipe.send(message)

    def receive(self, until: float | None = None) -> Any:
        """The next message.

        Args:
            until: monotonic time after which the child counts as hung.

        Raises:
            HandlerProcessDied: it ended, or hung while starting.
        """
        while True:
            try:
                # Polled: the pipe stays open beyond the child's end when it left a process behind.
                if self.pipe.poll(POLL_S):
                    return self.pipe.recv()
            except (EOFError, OSError):
                raise self._died() from None
            if has_ended(self.process) and not self.pipe.poll(0):
                raise self._died()
            if until is not None and time.monotonic() > until:
                self.kill()
                raise HandlerProcessDied(f"the handler's process did not start within {START_LIMIT_S:g} s")

    def _died(self) -> HandlerProcessDied:
        return HandlerProcessDied(f"the handler's process ended: {ended_how(self.end())}")

    def kill(self) -> None:
        """End it and everything it started."""
        if self.process.returncode is None:
            signal_group(self.process, signal.SIGKILL)

    def end(self) -> int:
        """Kill it where it still runs, and reap it; its exit code."""
        self.pipe.close()
        deadline = time.monotonic() + 1.0
        while not has_ended(self.process) and time.monotonic() < deadline:
            time.sleep(0.01)  # it may be on its way out: its own exit code says more than our SIGKILL
        self.kill()
        return reap(self.process)


class ChildRunner:
    """Runs the items of one slot in a child, started at the first item and again after a crash.

    Args:
        boot: what the child needs to know.
        table: the queue's table.
    """

    def __init__(self, boot: Boot, table: QueueTable) -> None:
        self._boot, self._table = boot, table
        self._child: Child | None = None
        self._running: Held | None = None
        self._closed = False

    def start(self) -> None:
        """Start the child now, to see whether the handler can be loaded.

        Raises:
            BadInput: it cannot; says why.
        """
        self._child = Child(self._boot)

    def __call__(self, item: Item, ctx: Context) -> Any:
        """Run one item in the child; its verdict."""
        if self._closed:
            raise HandlerProcessDied("the worker ends")
        if self._child is None:
            self._child = Child(self._boot)
        held, child, table = ctx._held, self._child, self._table.get()
        self._running = held
        child.send(Work(tuple(item), tuple(item.as_dict().values()), None if child.table is table else table))
        child.table = table
        if held.cancelled:
            child.send(Cancel(held.cancelled))  # cancelled while the child was being started
        try:
            return self._verdict(child, held)
        except HandlerProcessDied:
            self._child = None
            raise
        finally:
            self._running = None

    def _verdict(self, child: Child, held: Held) -> Verdict:
        while True:
            message = child.receive()
            if isinstance(message, Stage):
                held.fenced = message.name == "fenced"
                held.committed |= message.name == "committed"
            elif isinstance(message, Said):
                held.fenced = False
                held.committed |= message.committed
                return decode(message)

    def stop(self, held: Held, *, hard: bool) -> bool:
        """Ask the handler of `held` to stop, or kill its process. True: nothing of it will run any more."""
        child = self._child
        if child is None or self._running is not held:
            return hard  # it ended just now, or has not begun: asked again at the next tick
        if hard:
            child.kill()
            return True
        threading.Thread(target=child.send, args=(Cancel(held.cancelled),), daemon=True).start()
        return False

    def close(self) -> None:
        """End the child; no other is started."""
        self._closed = True
        if self._child is not None:
            self._child.kill()


def boot_of(handler: str, source: DsnSource, lease_s: float, log_level: str, bound: dict[str, str]) -> Boot:
    """What children of this worker need to know; relative DSN paths still mean the same in a child."""
    if source.path is not None:
        source = replace(source, path=source.path.absolute())
    return Boot(handler, source, lease_s, log_level, bound)
