"""A queue's own part of a table's counters, where several queues share the table by their lanes.

The table's counters are of all its workers. Those of the queue's own are added up look by look: what a worker finished between the
last look and its end is missed, so λ is a little low rather than another queue's. All of it can be lost; the rates begin anew then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Counters = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Share:
    """What the queue's own workers did since it was first looked at.

    Args:
        finished: items.
        busy_ms: time spent in handlers.
        seen: (worker id, items, ms) of each worker as of the last look.
    """

    finished: int = 0
    busy_ms: int = 0
    seen: tuple[Counters, ...] = ()


def advance(share: Share, workers: Iterable[Counters]) -> Share:
    """Add what the workers did since the last look.

    Args:
        share: as of the last look.
        workers: (worker id, items finished since its start, ms in handlers since its start) of the queue's own workers.
    """
    before = {name: (finished, busy_ms) for name, finished, busy_ms in share.seen}
    seen = tuple(sorted(workers))
    finished, busy_ms = share.finished, share.busy_ms
    for name, items, spent in seen:
        old_items, old_spent = before.get(name, (0, 0))
        finished += max(0, items - old_items)
        busy_ms += max(0, spent - old_spent)
    return Share(finished, busy_ms, seen)
