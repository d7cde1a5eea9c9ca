"""Where a process's last claims ended, per priority, so that the next one need not walk over what is done.

Dead index entries stay at the head of the claim index until vacuum removes them, and under an old snapshot it may not: then each
claim from the head walks over all of them. A mark lets the search start behind the last row leased. Rows *before* the mark exist
all the same (reclaimed, released, committed late, skipped while locked), so the mark is rewound at least once a second and whenever
a claim comes back short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from leasequeue.item import Item

LOWEST, HIGHEST = -(2**31), 2**31 - 1  # of -priority; a CHECK keeps priority above −2³¹
START = datetime.min.replace(tzinfo=UTC)
END = datetime.max.replace(tzinfo=UTC)
MAX_PRIORITIES = 32
REWIND_S = 1.0
LANES_SPARE = 4  # lanes tried beyond those wanted, since others may be at work on some


@dataclass(frozen=True, slots=True)
class Segments:
    """Disjoint ranges of the claim order, in order, as parallel arrays: after (neg, at, id), up to and including upto_neg."""

    after_neg: list[int]
    after_at: list[datetime]
    after_id: list[Any]
    upto_neg: list[int]


WHOLE = Segments([LOWEST], [START], [None], [HIGHEST])
NO_WALLS: Mapping[int, tuple[datetime, Any]] = MappingProxyType({})


def segments_behind(marks: Mapping[int, tuple[datetime, Any]]) -> Segments:
    """The whole claim order but what lies before a mark within its priority.

    Args:
        marks: by -priority, created_at and id of the last row that is not looked at.
    """
    if not marks:
        return WHOLE
    after: list[tuple[int, datetime, Any, int]] = []
    low: tuple[int, datetime] = (LOWEST, START)
    for neg in sorted(marks):
        at, item_id = marks[neg]
        if low[0] < neg - 1 or low[0] == LOWEST:
            after.append((low[0], low[1], None, neg - 1))
        after.append((neg, at, item_id, neg))
        low = (neg, END)
    after.append((low[0], low[1], None, HIGHEST))
    return Segments([a[0] for a in after], [a[1] for a in after], [a[2] for a in after], [a[3] for a in after])


@dataclass
class ClaimMark:
    """Keyset mark of one process; not shared between threads.

    Args:
        clock: monotonic seconds, for tests.
    """

    clock: Callable[[], float] = time.monotonic
    _marks: dict[int, tuple[datetime, Any]] = field(default_factory=dict)
    _rewound_at: float = float("-inf")
    rewinds: int = 0
    _lanes: list[str] = field(default_factory=list)
    _lanes_seen_at: float = float("-inf")

    def segments(self, walls: Mapping[int, tuple[datetime, Any]] = NO_WALLS) -> Segments:
        """The ranges to search now; rewinds first when the last rewind is a second ago.

        Args:
            walls: where else to start, by -priority; of mark and wall the later counts.
        """
        if self.clock() - self._rewound_at >= REWIND_S:
            self.rewind()
        if not walls:
            return segments_behind(self._marks)
        marks = {neg: at for neg, at in self._marks.items() if neg not in walls or at[0] > walls[neg][0]}
        return segments_behind({**walls, **marks})

    def advance(self, items: Sequence[Item], wanted: int) -> None:
        """Take note of what a claim returned.

        Args:
            items: leased items in claim order.
            wanted: how many were asked for; fewer means that rows before the mark may be all there is left.
        """
        if len(items) < wanted:
            self.rewind()
            return
        one = items[0].priority == items[-1].priority  # as mostly; in claim order, so the last of each priority stays
        last = {items[-1].priority: items[-1]} if one else {item.priority: item for item in items}
        for priority, item in last.items():
            if START < item.created_at < END:
                self._marks[-priority] = (item.created_at, item.id)
        if len(self._marks) > MAX_PRIORITIES:
            self.rewind()

    def rewind(self) -> None:
        """Search from the head again."""
        self._marks.clear()
        self._rewound_at = self.clock()
        self.rewinds += 1

    # --- strict lanes ------------------------------------------------------------------------------------------------

    def saw_lanes(self, lanes: list[str]) -> None:
        """Lanes that could be claimed next, in order, as a walk over all of them has just found."""
        self._lanes, self._lanes_seen_at = lanes, self.clock()

    def lanes_ahead(self, n: int) -> list[str]:
        """Lanes to try for `n` items before all are walked over again; none once the walk is a second ago.

        They say where to look and no more: whether a lane's head may run is decided under its lock. A lane that came up since, whatever its
        priority, is seen within that second, or as soon as these are used up.
        """
        if self.clock() - self._lanes_seen_at >= REWIND_S:
            self._lanes = []
        return self._lanes[: n + LANES_SPARE]

    def lanes_tried(self, tried: Sequence[str], held: Sequence[str]) -> None:
        """Forget the lanes that were held, and those before them in the order, which were not free."""
        last = max((tried.index(lane) for lane in held), default=len(tried) - 1)
        self._lanes = self._lanes[last + 1 :]
