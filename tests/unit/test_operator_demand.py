"""What the work asks for, before bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasequeue_operator.plan.scaling import sample_of, scaling_spec, start_s
from leasequeue_operator.scaling import demand, drain
from leasequeue_operator.scaling.decide import Sample, ScalingSpec
from leasequeue_operator.scaling.rates import Load
from tests.operator import samples

SPEC = ScalingSpec(max_replicas=1000, drain_s=120, poll_s=5)


def sample(due: int = 0, expired: int = 0, assigned: int = 0, age_s: float | None = None) -> Sample:
    return Sample(0.0, due, expired, assigned, oldest_age_s=age_s)


def asked(seen: Sample, load: Load, spec: ScalingSpec = SPEC, pod_s: float = 10.0) -> tuple[int, str]:
    return demand.pods(seen, load, pod_s, spec)


def test_a_steady_load_gets_the_square_root_slack() -> None:
    assert asked(sample(assigned=16), Load(4.0, 4.0), replace(SPEC, slack=1.0)) == (20, "rate")
    assert asked(sample(assigned=16), Load(4.0, 4.0), replace(SPEC, slack=2.0)) == (24, "rate")


def test_a_backlog_is_drained_on_top_of_the_load() -> None:
    assert asked(sample(due=1200, assigned=16), Load(4.0, 4.0)) == (16 + 40, "drain")
    assert asked(sample(due=1200), Load(0.0, 4.0)) == (40, "drain")


def test_jobs_longer_than_the_target_get_a_slot_each() -> None:
    assert asked(sample(due=7, assigned=10), Load(0.0, 600.0)) == (17, "drain")


def test_before_the_first_item_has_ended_each_gets_a_slot() -> None:
    assert asked(sample(due=40), Load(0.0, None)) == (40, "drain")


def test_leases_keep_their_slots() -> None:
    assert asked(sample(assigned=9), Load(0.0, 1.0)) == (9, "in_flight")


def test_items_that_workers_fetched_ahead_ask_for_no_pods_of_their_own() -> None:
    spec = replace(SPEC, concurrency=4)
    one_pod = replace(sample(assigned=24), running=1)  # 4 in its slots and 20 of 50 ms fetched ahead
    assert asked(one_pod, Load(0.0, 0.05), spec) == (1, "in_flight")
    # Of long jobs they want a slot each, like any item that waits.
    assert asked(replace(sample(assigned=8), running=1), Load(0.0, 600.0), spec) == (2, "drain")


def test_no_more_than_there_is_work_in_sight() -> None:
    # 10 long jobs came in the last seconds: 200 slots by rate and service time, 10 items and 3 that may come.
    assert asked(sample(due=10), Load(0.2, 1000.0)) == (13, "in_sight")


def test_concurrency_divides() -> None:
    assert asked(sample(due=40), Load(0.0, None), replace(SPEC, concurrency=16))[0] == 3


def test_an_item_now_and_then_lets_the_fleet_rest() -> None:
    assert asked(sample(), Load(0.01, 4.0)) == (0, "idle")
    assert asked(sample(due=1), Load(0.01, 4.0))[0] == 1
    assert asked(sample(), Load(0.1, 1.0))[0] == 1


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [(None, 120), (0, 50), (30, 20), (55, 5), (600, 5)],  # 60 s wanted, a pod takes 10 s, the poll is 5 s
)
def test_the_drain_target_shrinks_as_the_oldest_item_nears_the_latency_target(age_s: float | None, expected: float) -> None:
    assert drain.target_s(replace(SPEC, latency_s=60), sample(due=1, age_s=age_s), 10.0) == expected


def test_the_latency_target_is_named() -> None:
    spec = replace(SPEC, latency_s=60)
    assert asked(sample(due=300, age_s=40), Load(0.0, 4.0), spec) == (120, "latency")
    assert asked(sample(due=300, age_s=40), Load(0.0, 4.0)) == (10, "drain")


loads = st.builds(Load, st.floats(0, 200), st.one_of(st.none(), st.floats(0.01, 2000)))
counts = st.integers(0, 5000)


@given(loads, counts, counts, counts, st.sampled_from(["due", "expired", "assigned"]), st.integers(1, 1000))
@settings(max_examples=300, deadline=None)
def test_monotone_in_each_count(load: Load, due: int, expired: int, assigned: int, which: str, more: int) -> None:
    seen = sample(due, expired, assigned)
    deeper = replace(seen, **{which: getattr(seen, which) + more})
    assert asked(seen, load)[0] <= asked(deeper, load)[0]


@given(loads, counts, counts, counts, st.floats(0, 120))
@settings(max_examples=300, deadline=None)
def test_work_is_never_left_without_a_pod_and_no_pod_is_out_of_sight(
    load: Load, due: int, expired: int, assigned: int, pod_s: float
) -> None:
    seen = sample(due, expired, assigned)
    wanted, _ = asked(seen, load, pod_s=pod_s)
    assert wanted >= (1 if seen.in_sight else 0)
    assert wanted >= assigned
    assert wanted <= max(1, math.ceil(seen.in_sight + load.rate * (pod_s + SPEC.poll_s)))


def running(seconds: int, restarts: int = 0) -> dict[str, object]:
    pod = samples.pod("worker")
    pod["metadata"]["creationTimestamp"] = "2026-03-01T12:00:00Z"
    began = {"startedAt": f"2026-03-01T12:00:{seconds:02d}Z"}
    pod["status"]["containerStatuses"] = [{"name": "worker", "restartCount": restarts, "state": {"running": began}}]
    return pod


def test_pods_tell_how_long_a_start_takes() -> None:
    assert start_s([running(3), running(5), running(40), running(59, restarts=2), samples.pod("worker")]) == 5
    assert start_s([samples.pod("worker", waiting="ImagePullBackOff")]) is None


def test_the_sample_carries_counters_lanes_and_age() -> None:
    view = samples.view(pending=4, assigned=3, expired=1, finished_total=70, busy_ms_total=900)
    made = sample_of(view)
    assert made is not None
    assert (made.due, made.expired, made.assigned, made.held_back) == (4, 1, 2, 0)
    assert (made.finished, made.busy_ms, made.oldest_age_s) == (70, 900, None)


def test_the_spec_is_taken_over() -> None:
    spec = scaling_spec(samples.queue(scaling={"drainTargetSeconds": 30, "latencyTargetSeconds": 45}).spec)
    assert (spec.drain_s, spec.latency_s, spec.stabilization_s) == (30, 45, 30)
