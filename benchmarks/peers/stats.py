"""From repeated measurements to figures: medians with their spread, the best configuration, ratios. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and most of repeated measurements."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Spread of at least one value."""
        found = list(values)
        return cls(statistics.median(found), min(found), max(found), len(found))

    def text(self, digits: int = 0) -> str:
        """`45,100 (36,500–47,100)`."""
        if self.count == 1:
            return f"{self.median:,.{digits}f}"
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f}–{self.high:,.{digits}f})"


def pick(runs: Sequence[Run], **wanted: Any) -> list[Run]:
    """Runs whose fields have the given values."""
    return [run for run in runs if all(run.get(key) == value for key, value in wanted.items())]


def spread(runs: Sequence[Run], field: str) -> Spread | None:
    """Spread of one field over runs; None without any."""
    values = [float(run[field]) for run in runs if run.get(field) is not None]
    return Spread.of(values) if values else None


def best(runs: Sequence[Run], field: str = "drain_rate") -> str | None:
    """Name of the variant with the highest median; None without runs."""
    names: list[str] = list(dict.fromkeys(run["variant"] for run in runs))
    if not names:
        return None
    return max(names, key=lambda name: statistics.median(run[field] for run in runs if run["variant"] == name))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest-rank percentile of sorted values.

    Args:
        ordered: rising, not empty.
        share: 0 to 1.
    """
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def interleaved(rounds: int, entries: Sequence[Any]) -> Iterable[tuple[int, Any]]:
    """Each entry once a round, every second round backwards: slow drift of the machine falls on all alike."""
    for number in range(1, rounds + 1):
        for entry in entries if number % 2 else reversed(entries):
            yield number, entry


def paired_ratio(runs: Sequence[Run], over: Callable[[Run], bool], under: Callable[[Run], bool], field: str) -> Spread | None:
    """Spread of the ratio of two configurations, taken within each round and then over rounds.

    Args:
        runs: each with a field `round`.
        over: picks the numerator's runs.
        under: picks the denominator's runs.
        field: what is compared.
    """
    ratios = []
    for number in dict.fromkeys(run["round"] for run in runs):
        upper = [run[field] for run in runs if run["round"] == number and over(run)]
        lower = [run[field] for run in runs if run["round"] == number and under(run)]
        if upper and lower:
            ratios.append(statistics.median(upper) / statistics.median(lower))
    return Spread.of(ratios) if ratios else None
