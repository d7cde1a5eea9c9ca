"""How many items the next claim takes. Pure.

A worker holds at most its slots plus a prefetch of about one second of work at the measured pace: long jobs are never hoarded,
short ones come in full batches. Beyond its slots it also never holds more than max_inflight / (2 × max_replicas), finished
but unacknowledged items included, so that normal running does not trip the in-flight alert.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFETCH_S = 1.0
# About what a claim of a full batch takes, from the request to its items.
CLAIM_S = 0.003
# A worker with many free slots lets fuller ones claim first: for this share of an item's time, at most so long.
YIELD_SHARE = 0.01
YIELD_MOST_S = 0.1
# A prefetched item that waited this long sits behind a job that turned out long: others may be idle, so it goes back.
HOARD_S = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What does not change while a worker runs.

    Args:
        slots: items run at a time.
        batch_size: most items of one claim.
        max_inflight: ceiling of the queue.
        max_replicas: most workers that share it.
    """

    slots: int
    batch_size: int
    max_inflight: int
    max_replicas: int

    @property
    def share(self) -> int:
        """Most items held beyond the slots."""
        return self.max_inflight // (2 * max(1, self.max_replicas))


@dataclass(frozen=True, slots=True)
class Load:
    """What is held now.

    Args:
        queued: claimed, not started.
        running: in a handler.
        unflushed: finished, not yet acknowledged by the database.
        item_s: seconds an item takes; None before the first one finished.
    """

    queued: int
    running: int
    unflushed: int
    item_s: float | None


def prefetch(limits: Limits, item_s: float | None) -> int:
    """Items to hold beyond the slots: what all slots finish in about a second."""
    if item_s is None:
        return 0
    pace = limits.slots * PREFETCH_S / item_s if item_s > 0 else float(limits.batch_size)
    return min(limits.batch_size, limits.share, int(min(pace, 1e6)))


def low_water(limits: Limits, item_s: float | None) -> int:
    """Length of the local queue at which the next claim is due: late enough for claims near full size, early enough that the
    slots are still busy while it is under way. Where a full queue would not last through a claim the slots wait in any case, and
    full claims cost less."""
    ahead = prefetch(limits, item_s)
    lasts_s = ahead * (item_s or 0.0) / limits.slots
    return ahead // 4 if lasts_s > CLAIM_S else 0


def claim_size(limits: Limits, load: Load) -> int:
    """Items the next claim asks for; 0: not now."""
    ahead = prefetch(limits, load.item_s)
    free = max(0, limits.slots - load.running - load.queued)
    wanted = limits.slots + ahead - load.running - load.queued
    # Below the low water a claim is due whatever its size; above it only a full one, such as one of a single item.
    if not free and load.queued > low_water(limits, load.item_s) and wanted < limits.batch_size:
        return 0
    # Unacknowledged items are still ASSIGNED: they count against the share and, when completions stall, stop the claims.
    room = limits.slots + limits.share - load.running - load.queued - load.unflushed
    stall = limits.slots + 2 * limits.batch_size - load.unflushed
    size = max(0, min(wanted, room, stall, limits.batch_size))
    # A flush under way is about to make room for a full batch: better than a claim of a few items now.
    return size if load.unflushed == 0 or 2 * size >= min(wanted, limits.batch_size) else 0


def yield_s(limits: Limits, load: Load) -> float:
    """Seconds by which the claim after a notification is put off, so that fuller workers come first.

    Long items then gather on few workers, and the others empty: a pod can only go once nothing runs in it, so with items anywhere each
    free slot of a fleet that is too large keeps a pod for another item's time. The wait is a hundredth of an item's time at most; who has
    not seen one end yet cannot know that they are short. The only worker of a queue has nobody to wait for.
    """
    if limits.max_replicas <= 1:
        return 0.0
    free = limits.slots - load.running - load.queued
    longest_s = YIELD_MOST_S if load.item_s is None else min(YIELD_MOST_S, YIELD_SHARE * load.item_s)
    return longest_s * max(0, free - 1) / limits.slots


class Pace:
    """Seconds an item takes: a moving average over finished items, raised at once by one that runs longer."""

    WEIGHT = 0.2

    def __init__(self) -> None:
        self._average: float | None = None

    def finished(self, seconds: float, count: int) -> None:
        """`count` items took `seconds` in all."""
        if count <= 0:
            return
        mean = seconds / count
        if self._average is None:
            self._average = mean
        else:
            weight = 1 - (1 - self.WEIGHT) ** count
            self._average += weight * (mean - self._average)

    def item_s(self, longest_running_s: float) -> float | None:
        """The estimate now.

        Args:
            longest_running_s: age of the oldest running item; a job of minutes shows before it ends.
        """
        if self._average is None:
            return longest_running_s if longest_running_s > PREFETCH_S else None
        return max(self._average, longest_running_s) if longest_running_s > PREFETCH_S else self._average


def hoarded(queued: int, since_last_start_s: float) -> bool:
    """True when waiting items should go back to the queue: every slot is busy with something long.

    Args:
        queued: claimed, not started.
        since_last_start_s: seconds since a slot last took an item.
    """
    return queued > 0 and since_last_start_s > HOARD_S
