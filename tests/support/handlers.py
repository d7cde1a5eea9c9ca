"""Handlers that the test workers run. What each item should do is in its own columns."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

from leasequeue import Fail, Item, Release, Repair, Resolve, Retry


def nothing(item: Item, ctx: Any) -> None:
    """No-op."""


def echo(item: Item, ctx: Any) -> dict[str, Any]:
    """The item's identity as result."""
    return {"n": item["n"], "attempt": ctx.attempt, "key": ctx.idempotency_key}


def act(item: Item, ctx: Any) -> Any:
    """Do what the column `what` says."""
    what, _, argument = (item["what"] or "").partition(":")
    if argument:
        ctx.log.info("started")
    return _ACTIONS[what](item, ctx, argument)


def _sleep(item: Item, ctx: Any, seconds: str) -> str:
    ctx.cancelled.wait(float(seconds))
    return f"cancelled {ctx.cancelled.reason}" if ctx.cancelled else "slept"


def _stubborn(item: Item, ctx: Any, seconds: str) -> str:
    time.sleep(float(seconds))
    return "slept"


def _spin(item: Item, ctx: Any, seconds: str) -> str:
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        pass
    return "span"


def _hold_gil(item: Item, ctx: Any, seconds: str) -> str:
    """A C-level call that never lets go of the interpreter: a regular expression that backtracks without end."""
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        re.match(r"(a+)+$", "a" * 24 + "b")
    return "held"


def _die(item: Item, ctx: Any, number: str) -> None:
    os.kill(os.getpid(), int(number or signal.SIGKILL))
    time.sleep(60)


def _raise(item: Item, ctx: Any, text: str) -> None:
    raise RuntimeError(text)


def _exit(item: Item, ctx: Any, code: str) -> None:
    sys.exit(int(code))


def _value(item: Item, ctx: Any, text: str) -> Any:
    return {"nul": "a\0b", "nan": float("nan"), "set": {1, 2}, "surrogate": "\ud800"}.get(text, text)


def _child(item: Item, ctx: Any, seconds: str) -> str:
    return subprocess.run(["sleep", seconds], check=True).args[0]


def _post(item: Item, ctx: Any, then: str) -> str:
    """An effect in the item's own transaction: one line in a ledger without a unique key."""
    with ctx.transaction() as tx:
        tx.execute("INSERT INTO ledger (item, attempt) VALUES (%s, %s)", (str(item.id), ctx.attempt))
        ctx.set_result({"posted": item["n"]})
        if then == "raise":
            raise RuntimeError("after the posting")
        if then.startswith("sleep"):
            time.sleep(float(then[5:]))
    return "ignored"


def _wait_then_post(item: Item, ctx: Any, seconds: str) -> Any:
    time.sleep(float(seconds))
    return _post(item, ctx, "")


_ACTIONS: dict[str, Any] = {
    "": lambda item, ctx, _: {"n": item["n"]},
    "sleep": _sleep,
    "stubborn": _stubborn,
    "spin": _spin,
    "hold_gil": _hold_gil,
    "die": _die,
    "raise": _raise,
    "exit": _exit,
    "value": _value,
    "child": _child,
    "post": _post,
    "wait_then_post": _wait_then_post,
    "retry": lambda item, ctx, s: Retry(float(s) if s else None, "asked for"),
    "fail": lambda item, ctx, text: Fail(text),
    "repair": lambda item, ctx, text: Repair(text),
    "release": lambda item, ctx, s: Release(float(s)),
    "columns": lambda item, ctx, text: Resolve({"set": text}, {"note": text}),
    "bad_column": lambda item, ctx, text: Resolve(None, {"no_such_column": text}),
}


async def act_async(item: Item, ctx: Any) -> Any:
    """Async twin of `act`, for what differs."""
    what, _, argument = (item["what"] or "").partition(":")
    if argument:
        ctx.log.info("started")
    if what == "sleep":
        await asyncio.sleep(float(argument))
        return "slept"
    if what == "block":
        time.sleep(float(argument))  # noqa: ASYNC251  (that is the case: it blocks the loop)
        return "blocked"
    if what == "refuse":
        return await _refuse(float(argument))
    if what == "wait":
        return f"cancelled {await ctx.cancelled.wait(float(argument))}"
    if what == "post":
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO ledger (item, attempt) VALUES (%s, %s)", (str(item.id), ctx.attempt))
            tx.result = {"posted": item["n"]}
            if argument == "raise":
                raise RuntimeError("after the posting")
        return None
    return act(item, ctx)


async def _refuse(seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            await asyncio.sleep(0.2)
        except asyncio.CancelledError:
            continue
    return "refused to be cancelled"


def tells_the_environment(item: Any, ctx: Any) -> None:
    """Fails with a text from the environment: what libraries do with a connection string."""
    raise RuntimeError(os.environ["TOLD"])


def traced(item: Item, ctx: Any) -> dict[str, str]:
    """The span that is active in the handler."""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return {"trace": f"{context.trace_id:032x}", "span": f"{context.span_id:016x}"}


async def traced_async(item: Item, ctx: Any) -> dict[str, str]:
    """The same, after another task had its turn."""
    await asyncio.sleep(0.01)
    return traced(item, ctx)
