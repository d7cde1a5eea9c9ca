"""What the database shows of one queue at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from leasequeue.lane_depth import LaneDepth
from leasequeue.owner import OwnedBy
from leasequeue.sample import Stats
from leasequeue.workers import WorkerRow
from leasequeue_operator.plan.problem import Problem


@dataclass(frozen=True, slots=True)
class DatabaseView:
    """One look at a queue's database.

    Args:
        at: wall clock of the operator when the sample was taken, seconds since 1970 UTC.
        unreachable: why there is no connection; None when there is one.
        unready: why the table is no queue, or could not be sampled; None when it is one.
        stats: the newest sample, which may be older than `at` when one of the two problems stands.
        stats_at: wall clock of `stats`.
        owner: who owns the table; None when not known yet.
        schema_version: version applied to the table; None when none was.
        gaps: what is missing of an adopted table (an index, a check): it works, but not as well.
        command: the command that mends the gaps, where one does.
        own: what the queue's own lanes hold, where it serves some lanes of the table alone.
        workers: the table's processes as of then; asked for in that case alone.
    """

    at: float
    unreachable: Problem | None = None
    unready: Problem | None = None
    stats: Stats | None = None
    stats_at: float | None = None
    owner: OwnedBy | None = None
    schema_version: int | None = None
    gaps: tuple[str, ...] = ()
    command: str | None = None
    own: LaneDepth | None = None
    workers: tuple[WorkerRow, ...] = ()

    @property
    def ok(self) -> bool:
        """The newest look gave a sample."""
        return self.unreachable is None and self.unready is None and self.stats is not None
