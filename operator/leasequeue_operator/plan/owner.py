"""Two LeaseQueues and one table: who may work on it.

The database remembers the uid of the first that asked, whatever spelling of the connection led to it. Two may share the table
when both name their lanes and no lane is named twice; then the owner runs the reclaimer and the alerts. An owner that is no
more is followed, but only when its workers are gone as well: the table may belong to a queue of another cluster, which this
operator cannot see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leasequeue_operator.observe.view import DatabaseView
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import Queue, SpecError, read_queue


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows for a queue that does not own its table."""

    problem: Problem | None = None
    take_over: bool = False


def judge(queue: Queue, view: DatabaseView, other: Mapping[str, Any] | None, *, visible: bool) -> Verdict:
    """Judge a table that another LeaseQueue owns.

    Args:
        queue: the one that asks.
        view: its database; `owner` is set and not `mine`.
        other: the owner, as last seen; None when there is no such LeaseQueue to be seen.
        visible: whether this operator would see the owner if it existed here.
    """
    if other is not None and _disjoint(queue, other):
        return Verdict()
    orphaned = other is None and visible and view.stats is not None and view.stats.workers == 0
    return Verdict(_conflict(queue, view), take_over=orphaned)


def _disjoint(queue: Queue, other: Mapping[str, Any]) -> bool:
    try:
        theirs = set(read_queue(other).spec.worker.lanes)
    except SpecError:
        return False
    ours = set(queue.spec.worker.lanes)
    return bool(ours) and bool(theirs) and not ours & theirs


def _conflict(queue: Queue, view: DatabaseView) -> Problem:
    owner = view.owner
    # Names of other namespaces are not for the readers of this one.
    whose = f"LeaseQueue {owner.cr_name}" if owner and owner.cr_namespace == queue.namespace else "another LeaseQueue"
    return Problem(
        "Conflict",
        f"Table {queue.table} is owned by {whose}. Delete one of the two, name another table, or give both disjoint "
        "spec.worker.lanes.",
    )
