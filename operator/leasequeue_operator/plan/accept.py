"""Checks of a spec that the CRD cannot make: cron fields, time zones, the pod template."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

from croniter import croniter

from leasequeue_operator.plan import podtemplate
from leasequeue_operator.plan.spec import Queue, SpecError

_SIZES = (60, 24, 32, 13, 8)  # of the five fields; a step must be smaller
_STEP = re.compile(r"/(\d+)")


def check(queue: Queue) -> None:
    """Refuse what would fail later or be misunderstood.

    Raises:
        SpecError: names the field and the way out.
    """
    spec = queue.spec
    _cron("spec.reclaimer.schedule", spec.reclaimer.schedule)
    for schedule in spec.scaling.schedules:
        path = f"spec.scaling.schedules[{schedule.name}]"
        _cron(f"{path}.start", schedule.start)
        _cron(f"{path}.end", schedule.end)
        _time_zone(f"{path}.timeZone", schedule.time_zone)
    podtemplate.check(spec.worker.pod_template)


def _cron(path: str, text: str) -> None:
    # croniter also takes a sixth field (seconds), which CronJobs do not have, and, as they do, a step that is longer than
    # its field: `*/90` minutes would run at each full hour, which nobody means.
    fields = text.split()
    steps_fit = all(int(n) < size for part, size in zip(fields, _SIZES, strict=False) for n in _STEP.findall(part))
    if not croniter.is_valid(text) or (not text.startswith("@") and len(fields) != 5) or not steps_fit:
        raise SpecError(
            "InvalidSchedule",
            f"{path}={text!r} is not a cron schedule: give five fields (minute hour day month weekday), such as '*/5 * * * *'.",
        )


def _time_zone(path: str, text: str) -> None:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError) as ex:
        raise SpecError(
            "InvalidTimeZone", f"{path}={text!r} is no time zone of the tz database: give one such as Europe/Berlin."
        ) from ex
