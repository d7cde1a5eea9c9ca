"""The scaling on simulated loads: what must hold on every one of them, and what it may cost beside KEDA."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import pytest

from benchmarks.autoscaling import baselines
from benchmarks.autoscaling.ours import LeaseQueue
from benchmarks.autoscaling.traces import TRACES, Trace, run
from benchmarks.autoscaling.world import Result
from leasequeue_operator.scaling import saved
from leasequeue_operator.scaling.decide import decide

LOADS = [t for t in TRACES if t.name not in ("sine", "dump of 4,000")]
POINTS = 0.02


@functools.cache
def ours(trace: Trace) -> tuple[LeaseQueue, Result]:
    """LeaseQueue on a load, run once."""
    scaler = LeaseQueue(trace)
    return scaler, run(trace, scaler)


loads = pytest.mark.parametrize("trace", LOADS, ids=lambda t: t.name)


@loads
def test_never_over_a_cap(trace: Trace) -> None:
    cap = min(trace.max_replicas, math.ceil(trace.ceiling / trace.slots))
    scaler, result = ours(trace)
    assert max(look.decision.desired for look in scaler.looks) <= cap
    assert max(result.replicas) <= cap


@loads
def test_a_deeper_queue_never_gets_fewer_pods(trace: Trace) -> None:
    scaler, _ = ours(trace)
    state = None
    for look in scaler.looks:
        if look.sample is not None and state is not None:
            for more in (1, 50, 2000):
                deeper = replace(look.sample, due=look.sample.due + more)
                assert decide(state, deeper, scaler.spec, look.at).desired >= look.decision.desired
        state = look.decision.state


@loads
def test_an_error_never_lowers(trace: Trace) -> None:
    scaler, _ = ours(trace)
    for look in scaler.looks[1:]:
        blind = decide(look.decision.state, None, scaler.spec, look.at + 5)
        assert blind.desired == look.decision.desired
        assert blind.limiter == "database_error"


@loads
def test_restarted_at_any_look_it_goes_on_as_if_it_had_not_been(trace: Trace) -> None:
    looks, spec = ours(trace)[0].looks, ours(trace)[0].spec
    for begin in range(1, len(looks)):
        state = saved.read(looks[begin].written, looks[begin].running, looks[begin].at, spec)
        for look in looks[begin : begin + 13]:
            decision = decide(state, look.sample, spec, look.at)
            assert decision.desired == look.decision.desired
            state = decision.state


@loads
def test_no_decrease_cuts_work_off_and_all_is_done(trace: Trace) -> None:
    _, result = ours(trace)
    assert (result.cut_off, result.left) == (0, 0)
    assert any(after < before for before, after in itertools.pairwise(result.replicas))


@loads
def test_it_costs_no_more_than_keda_and_makes_nobody_wait_longer(trace: Trace) -> None:
    _, result = ours(trace)
    keda = run(trace, baselines.default(trace))
    # Also where KEDA saves pods by ending runs of long jobs, which then have to be done again.
    assert result.pod_seconds <= keda.pod_seconds
    assert result.late(60) <= keda.late(60) + POINTS
