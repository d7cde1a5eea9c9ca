"""From samples to judged ratios. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report.

    Args:
        name: what was measured.
        base: the figure that it is compared with, as text.
        found: the figure, as text.
        ratio: found ÷ base; None for a plain fact.
        limit: most that the ratio may be; None where it is only shown.
        ok: whether it holds; True where there is no limit.
    """

    name: str
    base: str
    found: str
    ratio: float | None = None
    limit: float | None = None
    ok: bool = True


def compare(name: str, base: Sequence[float], found: Sequence[float], limit: float | None, unit: str = "ms") -> Figure:
    """Figure of two samples by their medians.

    Args:
        name: what was measured.
        base: samples of the plain case, not empty.
        found: samples of the hard case, not empty.
        limit: most that the ratio of medians may be; None: shown only.
        unit: of the samples.
    """
    low, high = statistics.median(base), statistics.median(found)
    ratio = high / low
    ok = limit is None or ratio <= limit
    return Figure(name, f"{low:.3f} {unit}", f"{high:.3f} {unit}", ratio, limit, ok)


def tail(samples: Sequence[float], share: float = 0.95) -> float:
    """The sample that `share` of all do not exceed."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ends(samples: Sequence[float], share: float = 0.1) -> tuple[Sequence[float], Sequence[float]]:
    """The first and the last `share` of samples, at least one each."""
    size = max(1, int(len(samples) * share))
    return samples[:size], samples[-size:]


def fact(name: str, found: str, wanted: str, ok: bool) -> Figure:
    """A figure that either holds or does not."""
    return Figure(name, wanted, found, ok=ok)
