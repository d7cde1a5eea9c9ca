"""What a run cost and what its items met: computed afterwards from the items' own times and the pods' lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.autoscaling.live.pods import PodLife

LATE_S = 60.0


@dataclass(frozen=True)
class Item:
    """One item at the end of the run; times in seconds since 1970.

    Args:
        created, leased, resolved: when it came, when its last execution began and ended.
        worker: who executed it last.
        attempts: executions begun.
        crashes: executions that ended without a word.
    """

    created: float
    leased: float
    resolved: float
    worker: str
    attempts: int
    crashes: int


@dataclass(frozen=True)
class Figures:
    """One run; seconds where nothing else is said.

    Args:
        pod_seconds: from creation to end of each pod, within the load's time.
        idle: of them without a job.
        to_zero: pod-seconds until the last pod was gone.
        p50, p95, longest: waits until the first claim.
        late: share of the items that waited over 60 s.
        cut_off: executions that a decrease ended.
        peak: most pods at a time.
        first_s: first item to first claim.
        start_s: median of a pod's creation to its readiness.
        items: how many.
        changes: pods made.
    """

    pod_seconds: float
    idle: float
    to_zero: float
    p50: float
    p95: float
    longest: float
    late: float
    cut_off: int
    peak: int
    first_s: float
    start_s: float
    items: int
    changes: int

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def figures(items: Sequence[Item], lives: Sequence[PodLife], start: float, length_s: float, cut_off: int) -> Figures:
    """Compute them.

    Args:
        items: all of them, resolved.
        lives: all pods.
        start: beginning of the load, seconds since 1970.
        length_s: how long it was watched: pod-seconds count within it.
        cut_off: executions that never ended, or what the operator says it cut off.
    """
    end = start + length_s
    waits = sorted(i.leased - i.created for i in items)
    busy = sum(_busy(life, items, start, end) for life in lives)
    there = sum(life.there(start, end) for life in lives)
    starts = [life.ready_at - life.came_at for life in lives if life.ready_at is not None]
    return Figures(
        pod_seconds=there,
        idle=there - busy,
        to_zero=sum((life.gone_at or end) - life.came_at for life in lives),
        p50=_quantile(waits, 0.5),
        p95=_quantile(waits, 0.95),
        longest=waits[-1],
        late=sum(w > LATE_S for w in waits) / len(waits),
        cut_off=max(cut_off, sum(i.attempts > 1 or i.crashes > 0 for i in items)),
        peak=_peak(lives),
        first_s=min(i.leased for i in items) - min(i.created for i in items),
        start_s=median(starts) if starts else 0.0,
        items=len(items),
        changes=len(lives),
    )


def _busy(life: PodLife, items: Sequence[Item], start: float, end: float) -> float:
    """Seconds in which the pod had at least one job."""
    mine = sorted((max(i.leased, start), min(i.resolved, end)) for i in items if i.worker.startswith(f"{life.name}-"))
    total, until = 0.0, start
    for began, ended in mine:
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def _peak(lives: Sequence[PodLife]) -> int:
    moments = sorted([(life.came_at, 1) for life in lives] + [(life.gone_at, -1) for life in lives if life.gone_at is not None])
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
