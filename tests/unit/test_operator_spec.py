"""The spec as typed values, and the checks that the CRD cannot make."""

from __future__ import annotations

from typing import Any

import pytest

from leasequeue_operator.plan import accept
from leasequeue_operator.plan.spec import SpecError, read_queue
from tests.operator.samples import body, queue


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"lease": {"lockTimeoutMs": "30s"}}, "spec.lease.lockTimeoutMs"),
        ({"lease": {"lockTimeoutMs": "٣٠"}}, "spec.lease.lockTimeoutMs"),
        ({"lease": {"batchSize": 201}}, "spec.lease.batchSize"),
        ({"lease": {"maxInflight": 99}}, "spec.lease.maxInflight"),
        ({"lease": {"maxInflightPolicy": "Maybe"}}, "spec.lease.maxInflightPolicy"),
        ({"database": {"table": None}}, "spec.database.table"),
        ({"worker": {"concurrency": 0}}, "spec.worker.concurrency"),
        ({"alerts": {"inflightWarningPercent": 101}}, "spec.alerts.inflightWarningPercent"),
    ],
)
def test_a_value_that_an_older_crd_let_through_is_refused_by_name(spec: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_queue(body(**spec))
    assert refused.value.reason == "InvalidSpec"
    assert refused.value.message.startswith(named + ":")


def test_a_field_of_a_newer_crd_is_left_alone() -> None:
    assert read_queue(body(lease={"newField": 1})).spec.lease.batch_size == 20


@pytest.mark.parametrize("schedule", ["* * * * *", "*/5 2-4 * * mon", "@hourly"])
def test_cron_schedules_that_are_right(schedule: str) -> None:
    accept.check(queue(reclaimer={"schedule": schedule}))


@pytest.mark.parametrize("schedule", ["*/90 * * * *", "60 * * * *", "* * * * * *", "a b c d e", "0 0 31 2 x"])
def test_cron_schedules_that_are_wrong_are_named(schedule: str) -> None:
    with pytest.raises(SpecError) as refused:
        accept.check(queue(reclaimer={"schedule": schedule}))
    assert refused.value.reason == "InvalidSchedule"
    assert "spec.reclaimer.schedule" in refused.value.message
    assert schedule in refused.value.message


@pytest.mark.parametrize("schedule", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "59 23 31 2 *"])
def test_a_day_that_never_comes_is_refused_before_anybody_asks_the_calendar(schedule: str) -> None:
    with pytest.raises(SpecError, match=r"spec\.reclaimer\.schedule=.* never comes"):
        accept.check(queue(reclaimer={"schedule": schedule}))
    with pytest.raises(SpecError, match=r"schedules\[office\]\.start=.* never comes"):
        accept.check(scheduled(start=schedule))


def scheduled(**values: str) -> Any:
    plain = {"name": "office", "start": "0 8 * * *", "end": "0 18 * * *", "minReplicas": 1}
    return queue(scaling={"schedules": [{**plain, **values}]})


def test_schedules_and_time_zones() -> None:
    accept.check(scheduled(timeZone="Europe/Berlin"))
    with pytest.raises(SpecError, match=r"schedules\[office\]\.end"):
        accept.check(scheduled(end="0 25 * * *"))
    with pytest.raises(SpecError, match=r"schedules\[office\]\.timeZone"):
        accept.check(scheduled(timeZone="Mars/Olympus"))
    with pytest.raises(SpecError, match="timeZone"):
        accept.check(scheduled(timeZone="../etc/passwd"))


@pytest.mark.parametrize(
    ("database", "named"),
    [
        ({"sslMode": "verify-full"}, "caSecretRef"),
        ({"sslMode": "verify-ca"}, "caSecretRef"),
        ({"sslMode": "require", "caSecretRef": {"name": "ca"}}, "require"),
        ({"sslMode": "verify-ca", "systemCA": True}, "verify-full"),
        ({"systemCA": True, "caSecretRef": {"name": "ca"}}, "exclude"),
    ],
)
def test_tls_that_is_less_than_it_seems_is_refused(database: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        accept.check(queue(database=database))


def test_tls_that_fits_together() -> None:
    for database in (
        {}, {"sslMode": "require"}, {"sslMode": "verify-full", "systemCA": True}, {"caSecretRef": {"name": "ca"}},
        {"sslMode": "verify-ca", "caSecretRef": {"name": "ca", "key": "k"}, "systemCA": False},
    ):  # fmt: skip
        accept.check(queue(database=database))
