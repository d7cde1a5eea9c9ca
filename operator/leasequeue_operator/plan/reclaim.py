"""When the reclaimer is overdue."""

from __future__ import annotations

from datetime import UTC, datetime

from croniter import croniter

from leasequeue_operator.plan.cronjob import ACTIVE_DEADLINE_S
from leasequeue_operator.plan.spec import Queue

# Scheduling, pulling and starting take their time; a run may also take its whole deadline.
SLACK_S = 120


def overdue_s(queue: Queue, now: float) -> float:
    """Seconds after a success by which the next one must have come, from the schedule around `now`."""
    moment = datetime.fromtimestamp(now, UTC)
    following = croniter(queue.spec.reclaimer.schedule, moment)
    first: datetime = following.get_next(datetime)
    second: datetime = following.get_next(datetime)
    return (second - first).total_seconds() + ACTIVE_DEADLINE_S + SLACK_S
