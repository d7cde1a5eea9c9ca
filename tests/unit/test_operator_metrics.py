"""Metrics: every state exported, series gone with their queue, nothing told that is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from leasequeue.sample import LaneFacts
from leasequeue_operator import metrics
from leasequeue_operator.cache import Key
from leasequeue_operator.memory import Memory
from leasequeue_operator.plan import conditions, reclaim
from leasequeue_operator.plan.observation import Observation
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.scaling.decide import Decision, ScalingState
from leasequeue_operator.workqueue import WorkQueue
from tests.operator import samples
from tests.operator.samples import NOW

KEY = ("team", "orders")
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def remembered(**values: Any) -> Memory:
    plain: dict[str, Any] = {
        "now": NOW.timestamp(), "queue": samples.queue(), "database": samples.view(assigned=5, pending=2),
        "deployment": samples.deployment(), "decision": Decision(2, 2, "depth", ScalingState()),
    }  # fmt: skip
    seen = Observation(**{**plain, **values})
    return Memory("u", observation=seen, conditions=conditions.conditions(seen, {}))


def scrape(memories: dict[Key, Memory], tally: metrics.Tally | None = None) -> Series:
    collector = metrics.Collector(memories, tally or metrics.Tally(), WorkQueue(clock=lambda: 0.0))
    text = generate_latest(metrics.registry(collector)).decode()
    return {(s.name, frozenset(s.labels.items())): s.value for f in text_string_to_metric_families(text) for s in f.samples}


def value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((name, frozenset({"queue_namespace": "team", "queue": "orders", **labels}.items())))


def test_facts_of_a_queue() -> None:
    series = scrape({KEY: remembered()})
    states = {s: value(series, "leasequeue_items", state=s) for s in ("PENDING", "ASSIGNED", "RESOLVED", "FAILED", "REPAIR")}
    assert states == {"PENDING": 2, "ASSIGNED": 5, "RESOLVED": 0, "FAILED": 0, "REPAIR": 0}
    assert value(series, "leasequeue_assigned") == 5
    assert value(series, "leasequeue_max_inflight") == 1000
    assert value(series, "leasequeue_inflight_warning_ratio") == 0.8
    assert value(series, "leasequeue_inflight_critical_ratio") == 0.95
    assert value(series, "leasequeue_workers_desired") == 2
    assert value(series, "leasequeue_database_up") == 1
    assert value(series, "leasequeue_sample_timestamp_seconds") == NOW.timestamp()
    assert value(series, "leasequeue_reclaimer_last_success_timestamp_seconds") == NOW.timestamp() - 20
    assert value(series, "leasequeue_condition", type="Ready", status="True") == 1
    assert value(series, "leasequeue_condition", type="Ready", status="False") == 0
    assert value(series, "leasequeue_info", max_inflight_policy="Alert", table="public.jobs") == 1


def test_a_time_that_is_not_there_is_not_exported() -> None:
    assert value(scrape({KEY: remembered()}), "leasequeue_oldest_pending_timestamp_seconds") is None


def test_every_condition_is_exported() -> None:
    series = scrape({KEY: remembered()})
    told = {dict(labels)["type"] for name, labels in series if name == "leasequeue_condition"}
    assert told == set(conditions.TYPES)


def test_an_unreachable_database_is_down_and_its_facts_keep_their_age() -> None:
    view = replace(samples.view(assigned=5), unreachable=Problem("x", "y"), at=NOW.timestamp() + 900)
    series = scrape({KEY: remembered(database=view)})
    assert value(series, "leasequeue_database_up") == 0
    assert value(series, "leasequeue_sample_timestamp_seconds") == NOW.timestamp()


def test_a_queue_never_sampled_has_no_facts_but_is_listed() -> None:
    series = scrape({KEY: remembered(database=None, secret=Problem("SecretNotFound", "x"))})
    assert value(series, "leasequeue_database_up") == 0
    assert value(series, "leasequeue_assigned") is None
    assert value(series, "leasequeue_info", max_inflight_policy="Alert", table="public.jobs") == 1


def test_a_shared_table_is_told_by_its_owner_alone() -> None:
    series = scrape({KEY: remembered(owner=False)})
    assert value(series, "leasequeue_assigned") is None
    assert value(series, "leasequeue_reclaimer_overdue_seconds") is None
    assert value(series, "leasequeue_workers_desired") == 2


def test_a_suspended_reclaimer_is_waited_for() -> None:
    """Else nobody is told of a suspension that was forgotten, while leases of dead workers pile up."""
    series = scrape({KEY: remembered(queue=samples.queue(reclaimer={"suspend": True}))})
    assert value(series, "leasequeue_reclaimer_overdue_seconds") == 290


def test_a_first_run_is_waited_for_from_when_the_reclaimer_was_made() -> None:
    view = samples.view(swept_at=None)
    series = scrape({KEY: remembered(database=view, cron_job=samples.cron_job(age_s=30))})
    assert value(series, "leasequeue_reclaimer_made_timestamp_seconds") == NOW.timestamp() - 30
    assert value(series, "leasequeue_reclaimer_last_success_timestamp_seconds") is None
    assert value(scrape({KEY: remembered()}), "leasequeue_reclaimer_made_timestamp_seconds") is None


def test_a_replica_tells_whether_it_acts() -> None:
    acting = False
    collector = metrics.Collector({}, metrics.Tally(), WorkQueue(clock=lambda: 0.0), lambda: acting)
    told = [generate_latest(metrics.registry(collector)).decode()]
    acting = True
    told.append(generate_latest(metrics.registry(collector)).decode())
    assert ["\nleasequeue_operator_acting 0.0\n" in told[0], "\nleasequeue_operator_acting 1.0\n" in told[1]] == [True, True]


def test_a_queue_that_is_refused_has_no_reclaimer_to_wait_for() -> None:
    series = scrape({KEY: remembered(refused=Problem("Conflict", "x"))})
    assert value(series, "leasequeue_reclaimer_overdue_seconds") is None


def test_what_decides_now_is_told_without_the_name_of_a_schedule() -> None:
    assert value(scrape({KEY: remembered()}), "leasequeue_scaling_limiter", limiter="depth") == 1
    night = remembered(decision=Decision(2, 2, "schedule:night", ScalingState()))
    assert value(scrape({KEY: night}), "leasequeue_scaling_limiter", limiter="schedule") == 1
    assert value(scrape({KEY: remembered(decision=None)}), "leasequeue_scaling_limiter", limiter="depth") is None


def test_a_count_that_falls_to_zero_reads_zero() -> None:
    memories = {KEY: remembered()}
    assert value(scrape(memories), "leasequeue_items", state="ASSIGNED") == 5
    memories[KEY] = remembered(database=samples.view(assigned=0, pending=0))
    assert value(scrape(memories), "leasequeue_items", state="ASSIGNED") == 0
    assert value(scrape(memories), "leasequeue_assigned") == 0


def test_a_thousand_queues_made_and_deleted_leave_no_series() -> None:
    tally, memories = metrics.Tally(), dict[Key, Memory]()
    before = len(scrape(memories, tally))
    for number in range(1000):
        key = ("team", f"queue-{number}")
        memories[key] = remembered()
        tally.decided(key, 0, number % 3, "depth")
        del memories[key]
        tally.forget(key)
    assert len(scrape(memories, tally)) == before


def test_no_label_has_an_open_set_of_values() -> None:
    """No id of a row, worker or pod, no text of an error: each new one would be a series for ever."""
    told = {label for _, labels in scrape({KEY: remembered()}) for label in dict(labels)}
    assert told <= {
        "queue_namespace", "queue", "state", "type", "status", "outcome", "kind", "limiter", "direction", "result", "head",
        "version", "table", "max_inflight_policy", "le",
    }  # fmt: skip


def test_all_series_of_a_queue_go_with_it() -> None:
    tally = metrics.Tally()
    tally.decided(KEY, 0, 3, "depth")
    tally.decided(KEY, 3, 1, "schedule:night")
    tally.decided(KEY, 1, 1, "depth")
    memories = {KEY: remembered()}
    series = scrape(memories, tally)
    assert value(series, "leasequeue_scaling_decisions_total", direction="up", limiter="depth") == 1
    assert value(series, "leasequeue_scaling_decisions_total", direction="down", limiter="schedule") == 1
    memories.clear()
    tally.forget(KEY)
    assert not [name for name, labels in scrape(memories, tally) if dict(labels).get("queue")]


def test_no_label_value_is_unbounded() -> None:
    labels = {name for _, found in scrape({KEY: remembered()}) for name, _ in found}
    assert labels <= {
        "queue_namespace", "queue", "state", "result", "type", "status", "max_inflight_policy", "table", "version",
        "outcome", "kind", "le", "direction", "limiter", "head",
    }  # fmt: skip


def test_lanes_are_told_where_they_are_strict() -> None:
    assert value(scrape({KEY: remembered()}), "leasequeue_lanes", head="blocked") is None
    lanes = LaneFacts(unlaned=1, claimable=2, blocked=3, later=4, busy=5)
    series = scrape({KEY: remembered(database=samples.view(lanes=lanes))})
    assert [value(series, "leasequeue_lanes", head=h) for h in ("claimable", "blocked", "later", "busy")] == [2, 3, 4, 5]


def test_a_queue_whose_state_cannot_be_told_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = remembered(queue=samples.queue(name="b"))
    real = reclaim.overdue_s

    def mistaken(queue: Any, now: float) -> float | None:
        if queue is broken.observation.queue:  # type: ignore[union-attr]
            raise ZeroDivisionError
        return real(queue, now)

    monkeypatch.setattr(reclaim, "overdue_s", mistaken)
    series = scrape({("team", "a"): remembered(), ("team", "b"): broken, ("team", "c"): remembered()})
    told = {dict(labels)["queue"] for name, labels in series if name == "leasequeue_condition"}
    assert told == {"a", "c"}
