"""The stabilisation window: how high the demand was in a lull, small enough to be kept in a status.

A decrease follows the maximum over the window, so a lull shorter than the window moves nothing. While the demand is as high
as the fleet nothing is remembered; the first lower demand opens the window with the fleet's size, which then counts for the
whole length. What is not known opens it anew.
"""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_BUCKET_S, LONGEST_BUCKET_S = 5.0, 60.0

# A pod that takes long to come back is worth holding longer.
HOLD_STARTS, LONGEST_HOLD_S = 2.0, 600.0

Entry = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Highest demand in buckets of time: (start of the bucket in s, pods), oldest first. Empty: the demand is as the fleet."""

    entries: tuple[Entry, ...] = ()


def bucket_s(length_s: float) -> float:
    """Length of a bucket in seconds, for a window of `length_s`."""
    return min(LONGEST_BUCKET_S, max(SHORTEST_BUCKET_S, length_s / 5))


def length(stabilization_s: float, start_s: float | None) -> float:
    """Length of the window: what the spec says, and two starts of a pod at least (600 s at most for that)."""
    return max(stabilization_s, min(LONGEST_HOLD_S, HOLD_STARTS * (start_s or 0.0)))


def opened(desired: int, now: float, length_s: float) -> Window:
    """A window in which the demand was `desired` until now."""
    return Window(((now - bucket_s(length_s), desired),))


def record(window: Window, demand: int, desired: int, now: float, length_s: float) -> Window:
    """The window with one more demand; the same object where there is nothing to remember.

    Args:
        window: before.
        demand: pods that the sample asks for, before any bound.
        desired: pods decided last.
        now: seconds since 1970 UTC.
        length_s: length of the window.
    """
    if not window.entries:
        if demand >= desired:
            return window
        window = opened(desired, now, length_s)
    start, highest_here = window.entries[-1]
    if now - start < bucket_s(length_s):
        if demand <= highest_here:
            return window
        return Window((*window.entries[:-1], (start, demand)))
    kept = _alive(window, now, length_s)
    if demand >= desired and all(n >= desired for _, n in kept):
        return Window()
    return Window((*kept, (now, demand)))


def highest(window: Window, demand: int, now: float, length_s: float) -> int:
    """Highest demand in the window, at least that of now."""
    return max([demand, *(n for _, n in _alive(window, now, length_s))])


def _alive(window: Window, now: float, length_s: float) -> tuple[Entry, ...]:
    """Entries whose bucket reaches into the window: the newest sample of a bucket may be from its very end."""
    step = bucket_s(length_s)
    return tuple((at, n) for at, n in window.entries if at + step > now - length_s)
