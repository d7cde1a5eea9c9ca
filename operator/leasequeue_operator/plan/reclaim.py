"""When the reclaimer is overdue."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from croniter import croniter

from leasequeue_operator.plan.cronjob import ACTIVE_DEADLINE_S
from leasequeue_operator.plan.spec import Queue

# Scheduling, pulling and starting take their time; a run may also take its whole deadline.
SLACK_S = 120
MINUTE_S = 60


def overdue_s(queue: Queue, now: float) -> float:
    """Seconds after a success by which the next one must have come, from the schedule around `now`.

    Schedules are uneven ("weekdays at six"): what counts is the pause that `now` lies in, or the one before while its run may
    still be under way; on Saturday that is the whole weekend.
    """
    return _pause_s(queue.spec.reclaimer.schedule, int(now // MINUTE_S)) + ACTIVE_DEADLINE_S + SLACK_S


@lru_cache(maxsize=2048)
def _pause_s(schedule: str, minute: int) -> float:
    """The longer of the two newest pauses; the same all over a minute, since runs begin on full minutes."""
    inside = datetime.fromtimestamp(minute * MINUTE_S + MINUTE_S / 2, UTC)
    following: datetime = croniter(schedule, inside).get_next(datetime)
    back = croniter(schedule, inside)
    newest: datetime = back.get_prev(datetime)
    before: datetime = back.get_prev(datetime)
    return max((following - newest).total_seconds(), (newest - before).total_seconds())
