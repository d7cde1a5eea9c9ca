"""Names and labels of children: never too long, never shared by two queues."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasequeue_operator.plan import names

DNS = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
cr_names = st.from_regex(r"\A[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?){0,3}\Z").filter(
    lambda n: len(n) <= 253
)


@given(cr_names)
def test_every_name_fits_and_is_a_dns_label(name: str) -> None:
    limits = {
        names.worker(name): 46,
        names.reclaimer(name): 52,
        names.service_account(name): 63,
        names.pod_monitor(name): 63,
        names.schema_job(name, "inputs"): 63,
    }
    for made, limit in limits.items():
        assert len(made) <= limit
        assert DNS.match(made), made


@given(cr_names, cr_names)
def test_two_queues_never_share_a_child(one: str, other: str) -> None:
    for make in (names.worker, names.reclaimer, names.service_account):
        assert (make(one) == make(other)) == (one == other)


def test_a_short_name_stays_readable() -> None:
    assert names.worker("orders") == "orders-worker"
    assert names.reclaimer("orders") == "orders-reclaimer"


def test_a_cronjob_of_a_name_of_45_characters_keeps_to_52() -> None:
    name = "a" * 45
    made = names.reclaimer(name)
    assert len(made) == 52
    assert made.endswith("-reclaimer")
    assert names.reclaimer("a" * 44) != made


def test_dots_give_a_label_with_a_hash() -> None:
    assert names.worker("a.b").startswith("a-b-")
    assert names.worker("a.b") != names.worker("a-b")


def test_the_schema_job_changes_with_its_inputs() -> None:
    assert names.schema_job("q", "one") != names.schema_job("q", "two")
    assert names.schema_job("q", "one") == names.schema_job("q", "one")


@given(st.text(string.ascii_lowercase + "-.", min_size=1, max_size=253))
def test_label_values_fit(text: str) -> None:
    assert len(names.label_value(text)) <= 63


@pytest.mark.parametrize("component", ["worker", "reclaimer"])
def test_the_selector_has_nothing_that_changes(component: str) -> None:
    assert names.selector("uid", component) == {
        "leasequeue.dev/queue-uid": "uid",
        "leasequeue.dev/component": component,
    }
    assert names.selector("uid", component).items() <= names.labels("q", "uid", component).items()
