"""Checks of a spec that the CRD cannot make: cron fields, time zones, the pod template."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter

from leasequeue_operator.plan import podtemplate
from leasequeue_operator.plan.spec import Database, Queue, SpecError

_SIZES = (60, 24, 32, 13, 8)  # of the five fields; a step must be smaller
_STEP = re.compile(r"/(\d+)")


def check(queue: Queue) -> None:
    """Refuse what would fail later or be misunderstood.

    Raises:
        SpecError: names the field and the way out.
    """
    spec = queue.spec
    _tls(spec.database)
    _cron("spec.reclaimer.schedule", spec.reclaimer.schedule)
    for schedule in spec.scaling.schedules:
        path = f"spec.scaling.schedules[{schedule.name}]"
        _cron(f"{path}.start", schedule.start)
        _cron(f"{path}.end", schedule.end)
        _time_zone(f"{path}.timeZone", schedule.time_zone)
    podtemplate.check(spec.worker.pod_template)


def _tls(database: Database) -> None:
    """The rules of the CRD once more: an older one has none, and a queue must not run with less than it was meant to."""
    mode, named = database.ssl_mode, database.ca_secret_ref is not None
    if mode in ("verify-ca", "verify-full") and not (named or database.system_ca):
        raise SpecError(
            "NoAuthority",
            f"spec.database.sslMode {mode} needs to know whom to trust: set spec.database.caSecretRef (a Secret with the key "
            "ca.crt), or spec.database.systemCA: true where a public authority issued the server's certificate.",
        )
    if named and database.system_ca:
        raise SpecError("InvalidSpec", "spec.database.caSecretRef and systemCA exclude each other: remove one.")
    if named and mode == "require":
        raise SpecError("InvalidSpec", "spec.database.sslMode require checks no certificate: use verify-full with caSecretRef.")
    if database.system_ca and mode not in (None, "verify-full"):
        raise SpecError(
            "InvalidSpec",
            "spec.database.sslMode must be verify-full with systemCA: a public authority issues certificates to everybody.",
        )


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
    if not _comes(text):
        raise SpecError("InvalidSchedule", f"{path}={text!r} never comes, as the 30th of February: change its day or month.")


@lru_cache(maxsize=2048)
def _comes(text: str) -> bool:
    """Whether a schedule has a next time at all; whoever asks a calendar for it later would fail."""
    try:
        croniter(text, datetime(2000, 1, 1, tzinfo=UTC)).get_next(datetime)
    except CroniterBadDateError:
        return False
    return True


def _time_zone(path: str, text: str) -> None:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError) as ex:
        raise SpecError(
            "InvalidTimeZone", f"{path}={text!r} is no time zone of the tz database: give one such as Europe/Berlin."
        ) from ex
