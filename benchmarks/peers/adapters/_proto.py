"""What the Python adapters share: the worker's protocol (see ../../README.md), pacing, and the loop of single enqueues."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

DSN = os.environ.get("DSN", "")
PROGRESS_S = 0.005


def opts() -> dict[str, Any]:
    """Options of this call."""
    found: dict[str, Any] = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    return found


def out(answer: dict[str, Any]) -> None:
    """The answer of an action."""
    print(json.dumps(answer), flush=True)


class Worker:
    """Counts handler calls and speaks with the harness over `stream` and standard input."""

    def __init__(self, stream: Any = None) -> None:
        self.n = 0
        self.s = 0  # sum of the payloads' n: a lost and a doubled job would not cancel out
        self.lat: list[float] = []
        self.stop = threading.Event()
        self.on_stop: Callable[[], None] | None = None
        self._stream = stream or sys.stdout

    def say(self, line: str) -> None:
        """One line to the harness."""
        print(line, file=self._stream, flush=True)

    def ready_and_wait(self) -> None:
        """Loaded: wait for GO, then report progress until STOP."""
        self.say("READY")
        if sys.stdin.readline().strip() != "GO":
            sys.exit("no GO")
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._progress, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == "STOP":
                break
        self.stop.set()
        if self.on_stop:
            self.on_stop()

    def _progress(self) -> None:
        last = 0
        while True:
            n = self.n
            if n != last:
                last = n
                self.say(f"P {n}")
            time.sleep(PROGRESS_S)

    def job(self, n: int, t: float | None = None) -> None:
        """One handler call; `t` is when the job was enqueued, of latency runs."""
        self.n += 1
        self.s += n
        if t:
            self.lat.append(time.time() - t)

    def account(self, **extra: Any) -> None:
        """What was counted."""
        latencies = [round(x * 1e3, 3) for x in self.lat]
        self.say(json.dumps({"handled": self.n, "sum": self.s, "lat_ms": latencies, **extra}))

    def done(self, **extra: Any) -> None:
        """What was counted, and the end of the process."""
        self.account(**extra)
        os._exit(0)


def pace(rate: float, seconds: float) -> Iterator[tuple[int, float]]:
    """Open-loop schedule: (number, seconds late) at number/rate; the caller sends one job a step."""
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        wait = began + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        yield number, max(0.0, -wait)


async def apace(rate: float, seconds: float) -> AsyncIterator[tuple[int, float]]:
    """Async twin of `pace`."""
    import asyncio

    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        wait = began + number / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        yield number, max(0.0, -wait)


def sent(calls: list[float], late: list[float]) -> None:
    """Answer of `produce`."""
    calls.sort()
    out({"sent": len(calls), "call_p50_ms": round(calls[len(calls) // 2] * 1e3, 3), "late_max_ms": round(max(late) * 1e3, 2)})


def enqueued(seconds: float, calls: list[float] | None = None) -> None:
    """Answer of `enqueue`."""
    ordered = sorted(calls or [])
    middle = {"call_p50_ms": round(ordered[len(ordered) // 2] * 1e3, 3)} if ordered else {}
    out({"seconds": seconds, **middle})


def one_by_one(n: int, send: Callable[[int], Any]) -> None:
    """Time `send(number)` for each number."""
    calls, began = [], time.perf_counter()
    for number in range(n):
        start = time.perf_counter()
        send(number)
        calls.append(time.perf_counter() - start)
    enqueued(time.perf_counter() - began, calls)


async def aone_by_one(n: int, send: Callable[[int], Awaitable[Any]]) -> None:
    """Async twin of `one_by_one`."""
    calls, began = [], time.perf_counter()
    for number in range(n):
        start = time.perf_counter()
        await send(number)
        calls.append(time.perf_counter() - start)
    enqueued(time.perf_counter() - began, calls)
