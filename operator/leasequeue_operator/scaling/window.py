"""The stabilisation window: maxima of the demand in buckets of time, small enough to be kept in a status.

A decrease follows the maximum over the window, so a lull shorter than the window moves nothing. What the window does
not know counts against a decrease: a gap between samples starts it anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

BUCKETS = 10
LONGEST_BUCKET_S = 60.0


@dataclass(frozen=True, slots=True)
class Window:
    """Maxima of the demand.

    Args:
        since: time (s) of the first sample without a gap up to `last`; None before the first.
        last: time (s) of the newest sample.
        maxima: (start of the bucket in s, highest demand in it), oldest first.
    """

    since: float | None = None
    last: float | None = None
    maxima: tuple[tuple[float, int], ...] = ()

    def to_status(self) -> dict[str, Any]:
        """As plain JSON; whole seconds are enough."""
        if self.since is None or self.last is None:
            return {}
        return {"since": int(self.since), "last": int(self.last), "maxima": [[int(t), n] for t, n in self.maxima]}

    @classmethod
    def from_status(cls, saved: Any) -> Window:
        """Read `to_status` back; anything unreadable gives an empty window, which only delays a decrease."""
        try:
            maxima = tuple((float(t), int(n)) for t, n in saved["maxima"])
            return cls(float(saved["since"]), float(saved["last"]), maxima)
        except (KeyError, TypeError, ValueError):
            return cls()


def bucket_s(length_s: float) -> float:
    """Length of a bucket in seconds, for a window of `length_s`."""
    return max(1.0, min(LONGEST_BUCKET_S, length_s / BUCKETS))


def add(window: Window, demand: int, now: float, *, length_s: float, gap_s: float) -> Window:
    """The window with one more sample.

    Args:
        window: before.
        demand: replicas wanted by the sample, before any bound.
        now: time of the sample in seconds.
        length_s: length of the window.
        gap_s: a longer silence than this makes the past unknown.
    """
    if window.last is None or not 0 <= now - window.last <= gap_s:
        window = Window(since=now, last=now)
    step = bucket_s(length_s)
    start = now // step * step
    kept = [(t, n) for t, n in window.maxima if t + step > now - length_s and t != start]
    here = max([demand, *(n for t, n in window.maxima if t == start)])
    return replace(window, last=now, maxima=(*kept, (start, here)))


def highest(window: Window, floor: int) -> int:
    """Highest demand in the window, at least `floor`."""
    return max([floor, *(n for _, n in window.maxima)])


def covers(window: Window, now: float, length_s: float) -> bool:
    """True when the samples reach back over the whole window without a gap."""
    return window.since is not None and now - window.since >= length_s


def assume(window: Window, demand: int, now: float, *, length_s: float) -> Window:
    """The window with `demand` assumed from its last sample until `now`.

    Used after a restart: what came in since the last status write is not known, so the number of pods is assumed for
    it, and a decrease never comes earlier than it would have come without the restart.
    """
    if window.last is None or now < window.last or now - window.last > length_s:
        return Window()
    step = bucket_s(length_s)
    maxima = dict(window.maxima)
    start = window.last // step * step
    while start <= now:
        maxima[start] = max(demand, maxima.get(start, 0))
        start += step
    return replace(window, last=now, maxima=tuple(sorted(maxima.items())))
