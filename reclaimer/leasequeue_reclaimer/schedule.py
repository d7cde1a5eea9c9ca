"""When a run sweeps. Pure."""

from __future__ import annotations

import hashlib


def start_jitter_s(queue: str, longest_s: float) -> float:
    """Wait before the first sweep, seconds: fixed by the queue's name, spread evenly over names.

    Args:
        queue: namespace/name; empty by hand, which starts at once.
        longest_s: upper bound, seconds.
    """
    if not queue:
        return 0.0
    digest = hashlib.sha256(queue.encode()).digest()
    return longest_s * int.from_bytes(digest[:4], "big") / 2**32


def next_sweep_at(last_began: float, now: float, interval_s: float, ends_at: float) -> float | None:
    """Time of the next sweep, or None when the run is over.

    Sweeps keep their rhythm; one that took longer than the interval is followed at once, never by two.

    Args:
        last_began: when the last sweep began, monotonic seconds.
        now: monotonic seconds.
        interval_s: from one sweep to the next; 0 means a single sweep.
        ends_at: when the run ends.
    """
    if interval_s <= 0:
        return None
    at = max(now, last_began + interval_s)
    return at if at < ends_at else None
