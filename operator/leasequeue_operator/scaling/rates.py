"""How much work arrives, and how long an item takes: learnt from counters that the database keeps.

`arrived` is what was ever finished plus what is there now, so the difference of two marks counts arrivals exactly, whoever
looked in between. λ is the mean since the load last changed, over 300 s at most: a plain 300 s mean would hold idle pods
for minutes after each burst, and a plain 30 s mean would take a dump of 4,000 items for a flood. A change is a count that
the mean does not explain; the new load then counts from the next look on, so a dump, which comes once, moves it little.

Marks are what a restart needs, and only they are remembered: one a minute while something moves, and one at each change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

LONGEST_S = 300.0
MARK_EVERY_S = 60.0
# A load younger than this is not known well enough to lower the rate.
SETTLE_S = 10.0
# Counters of a worker come with its heartbeat: what it finished in the last seconds is not in them yet.
HEARTBEAT_S = 5.0
TOLERANCE = 0.25
SIGMAS = 3.0
SERVICE_ITEMS = 20


@dataclass(frozen=True, slots=True)
class Mark:
    """Counters at one moment: time (s since 1970), items that ever arrived, that ever finished, ms ever spent in handlers."""

    at: float
    arrived: int
    finished: int
    busy_ms: int


@dataclass(frozen=True, slots=True)
class Rates:
    """What was learnt.

    Args:
        marks: since the load last changed, oldest first, 300 s at most.
        settled: arrivals per second before that.
        service_s: mean seconds of an item; None before the first was finished.
        start_s: seconds a pod takes to start; None before the first was seen.
    """

    marks: tuple[Mark, ...] = ()
    settled: float = 0.0
    service_s: float | None = None
    start_s: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Arrivals per second and mean seconds of an item (None: not known yet)."""

    rate: float
    service_s: float | None


def observe(rates: Rates, seen: Mark, *, still: bool) -> tuple[Rates, Load]:
    """Take one look into account.

    Args:
        rates: what was learnt before.
        seen: the counters now.
        still: nothing has to be remembered while the counters stand still.

    Returns:
        What to remember (the same object where nothing has to be), and the load as of now.
    """
    if not rates.marks or seen.finished < rates.marks[-1].finished or seen.at < rates.marks[-1].at:
        # First sight, or another table under the old name: counters that fall cannot be compared.
        service_s = rates.service_s if rates.marks else _service(None, Mark(seen.at, 0, 0, 0), seen)
        return replace(rates, marks=(seen,), service_s=service_s), Load(rates.settled, service_s)
    newest = rates.marks[-1]
    service_s = _service(rates.service_s, newest, seen)
    known = _rate(rates.marks[0], newest)
    if known is None:
        return _young(rates, seen, service_s)
    margin = _margin(known, seen.at - newest.at)
    expected, count = known * (seen.at - newest.at), seen.arrived - newest.arrived
    explained = min(max(count, expected - margin), expected + margin)
    total = newest.arrived - rates.marks[0].arrived + explained
    rate = max(0.0, total / (seen.at - rates.marks[0].at))
    load = Load(rate, service_s)
    if explained != count:
        return replace(rates, marks=(seen,), settled=round(rate, 6), service_s=service_s), load
    unmoved = (seen.arrived, seen.finished, seen.busy_ms) == (newest.arrived, newest.finished, newest.busy_ms)
    if seen.at - newest.at < MARK_EVERY_S or (still and unmoved):
        return rates, load
    return replace(rates, marks=_recent((*rates.marks, seen)), service_s=service_s), load


def _young(rates: Rates, seen: Mark, service_s: float | None) -> tuple[Rates, Load]:
    """A load that began with the only mark: it can raise the rate at once, and lower it after `SETTLE_S`."""
    began = rates.marks[0]
    age_s = seen.at - began.at
    count = max(0, seen.arrived - began.arrived)
    if age_s < SETTLE_S:
        return rates, Load(max(rates.settled, count / max(age_s, HEARTBEAT_S)), service_s)
    return replace(rates, marks=(began, seen), service_s=service_s), Load(count / age_s, service_s)


def _rate(first: Mark, last: Mark) -> float | None:
    span_s = last.at - first.at
    return max(0.0, (last.arrived - first.arrived) / span_s) if span_s > 0 else None


def _margin(rate: float, seconds: float) -> float:
    """How far a count may be from rate · seconds before the load has changed."""
    expected = rate * seconds
    return SIGMAS * math.sqrt(expected + 1) + TOLERANCE * expected + rate * HEARTBEAT_S


def _recent(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    while len(marks) > 2 and marks[1].at <= marks[-1].at - LONGEST_S:
        marks = marks[1:]
    return marks


def _service(before: float | None, since: Mark, seen: Mark) -> float | None:
    """Mean seconds of an item; `SERVICE_ITEMS` new ones weigh as much as all before."""
    count = seen.finished - since.finished
    if count <= 0:
        return before
    fresh = max(0, seen.busy_ms - since.busy_ms) / 1000 / count
    if before is None:
        return round(fresh, 4)
    return round(before + (fresh - before) * count / (count + SERVICE_ITEMS), 4)


def start_time(before: float | None, seen: float | None) -> float | None:
    """Seconds a pod takes to start; small differences are not worth remembering."""
    if seen is None or (before is not None and abs(seen - before) <= 1 + TOLERANCE * before):
        return before
    return round(seen, 1)
