"""From what a handler returned or raised to a verdict, and from verdicts to fenced writes. Pure."""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from leasequeue.dsn import redact
from leasequeue.fence import MAX_DELAY_S, NO_COLUMNS, Completion, Settlement
from leasequeue.verdict import Fail, Release, Repair, Resolve, Retry, Verdict, backoff_s
from leasequeue_worker.held import Held

NOTHING = Resolve()
# After a drain the item is due again only when this process is surely gone.
DRAIN_DELAY_S = 10.0


def of_value(value: Any) -> Verdict:
    """Verdict of a handler that returned: a `Verdict` as it is, anything else is the result."""
    if value is None:
        return NOTHING
    return value if isinstance(value, Verdict) else Resolve(value)


def of_error(error: BaseException) -> Verdict:
    """Verdict of a handler that raised: a `Verdict` as it is, anything else is a retry with back-off."""
    if isinstance(error, Verdict):
        return error
    try:
        text = redact(str(error))
    except Exception:  # noqa: BLE001  (an exception whose text raises: its name has to do)
        text = ""
    return Retry(error=f"{type(error).__name__}: {text}" if text else type(error).__name__)


def where(error: BaseException) -> str:
    """File and line that raised, for logs: the message itself may quote the payload, so it goes to last_error only."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""


@dataclass
class Writes:
    """One flush, by the statements it takes. No id appears twice: the engine answers by id."""

    resolved: list[Held] = field(default_factory=list)
    completions: list[Completion] = field(default_factory=list)
    """Of `resolved`, in its order."""
    settled: list[Held] = field(default_factory=list)
    settlements: list[Settlement] = field(default_factory=list)
    """Of `settled`, in its order."""
    committed: list[Held] = field(default_factory=list)
    later: list[Held] = field(default_factory=list)


def plan_writes(finished: Iterable[Held], rng: random.Random) -> Writes:
    """Sort finished items by the write they need.

    Args:
        finished: items with a verdict, oldest first.
        rng: jitter of the back-off.
    """
    batch, new = list(finished), tuple.__new__  # a third of a named tuple's own time
    if not [held for held in batch if held.verdict is not NOTHING or held.committed] and _each_once(batch):  # as mostly
        return Writes(batch, [new(Completion, (held.lease, None, NO_COLUMNS)) for held in batch])
    writes = Writes()
    for held in _one_an_id(batch, writes.later):
        verdict = held.verdict
        if held.committed:
            writes.committed.append(held)
        elif isinstance(verdict, Resolve):
            writes.resolved.append(held)
            writes.completions.append(new(Completion, (held.lease, verdict.result, verdict.columns)))
        else:
            writes.settled.append(held)
            writes.settlements.append(settlement(held, verdict, rng))
    return writes


def _each_once(finished: list[Held]) -> bool:
    return len({held.lease[0] for held in finished}) == len(finished)  # its id, without the cost of a name


def _one_an_id(finished: list[Held], later: list[Held]) -> list[Held]:
    """Those to write now; `later` gets old leases of ours on the same row: never in one statement with the new one."""
    if _each_once(finished):
        return finished
    now, seen = [], set()
    for held in finished:
        if held.committed:
            now.append(held)
        elif held.lease.id in seen:
            later.append(held)
        else:
            seen.add(held.lease.id)
            now.append(held)
    return now


def settlement(held: Held, verdict: Verdict | None, rng: random.Random) -> Settlement:
    """The write of a verdict other than Resolve; one that cannot be written goes to REPAIR and says why."""
    try:
        return _settlement(held, verdict, rng)
    except (TypeError, ValueError) as ex:
        return Settlement(held.lease, "REPAIR", error=plain_text(f"the verdict was refused: {ex}"))


def _settlement(held: Held, verdict: Verdict | None, rng: random.Random) -> Settlement:
    lease = held.lease
    if isinstance(verdict, Retry):
        delay = backoff_s(held.item.attempt, rng=rng) if verdict.after_s is None else verdict.after_s
        return Settlement(lease, "RETRY", _bounded(delay), plain_text(verdict.error) or None)
    if isinstance(verdict, Fail):
        return Settlement(lease, "FAIL", error=plain_text(verdict.error))
    if isinstance(verdict, Repair):
        return Settlement(lease, "REPAIR", error=plain_text(verdict.error))
    if isinstance(verdict, Release):
        return Settlement(lease, "RELEASE", _bounded(verdict.after_s))
    raise TypeError(f"{type(verdict).__name__} is none of Resolve, Retry, Fail, Repair, Release")


def said_after_commit(verdict: Verdict | None) -> str:
    """What a verdict says beyond "done", for an item that the handler's own transaction has resolved; empty where nothing."""
    if verdict is None or (isinstance(verdict, Resolve) and verdict.result is None and not verdict.columns):
        return ""
    return "result" if isinstance(verdict, Resolve) else type(verdict).__name__


def plain_text(text: object) -> str:
    """Text for last_error: no password, and nothing that UTF-8 cannot hold."""
    return redact(str(text)).encode("utf-8", "backslashreplace").decode()


def _bounded(delay_s: float) -> float:
    """A delay the database takes: handlers compute them, and NaN or a negative one must not break a batch."""
    delay = float(delay_s)
    return min(max(delay, 0.0), MAX_DELAY_S) if delay == delay else 0.0
