"""Bounds on the number of pods: the spec's, and those of the schedules that are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import croniter


@dataclass(frozen=True, slots=True)
class Window:
    """Other bounds from each `start` to the next `end` (five cron fields, in `time_zone`)."""

    name: str
    start: str
    end: str
    time_zone: str = "Etc/UTC"
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most pods, and what set each of them ("min_replicas", "schedule:NAME", …)."""

    low: int
    high: int
    low_by: str = "min_replicas"
    high_by: str = "max_replicas"


def is_open(window: Window, now: float) -> bool:
    """True from each start until the next end. `now` in seconds since 1970 UTC."""
    # croniter's get_prev is strict; a moment later makes the exact minute of the start count as open.
    moment = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(window.time_zone)) + timedelta(milliseconds=1)
    started: datetime = croniter(window.start, moment).get_prev(datetime)
    ended: datetime = croniter(window.end, moment).get_prev(datetime)
    return started > ended


def bounds(low: int, high: int, windows: Sequence[Window], now: float) -> Bounds:
    """Bounds at `now`. Of several open schedules the highest minimum and the lowest maximum count; the maximum wins.

    Args:
        low: minReplicas of the spec, where no open schedule gives one.
        high: maxReplicas of the spec, likewise.
        windows: the schedules.
        now: seconds since 1970 UTC.
    """
    found = Bounds(low, high)
    opened = [w for w in windows if is_open(w, now)]
    lows = [(w.low, w.name) for w in opened if w.low is not None]
    highs = [(w.high, w.name) for w in opened if w.high is not None]
    if highs:
        highest, name = min(highs)
        found = Bounds(low, highest, high_by=f"schedule:{name}")
    if lows:
        lowest, name = max(lows)
        # A schedule may ask for more than the everyday maximum.
        top = found.high if highs else max(found.high, lowest)
        found = Bounds(lowest, top, f"schedule:{name}", found.high_by)
    return Bounds(min(found.low, found.high), found.high, found.low_by, found.high_by)
