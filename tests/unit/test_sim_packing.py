"""Pod-seconds of items packed by a rule: what counts, and which rule packs better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.autoscaling.loads import LOADS
from benchmarks.autoscaling.packing import ORDERS, Order, pod_seconds
from benchmarks.autoscaling.traces import Trace, between

LONGER = next(load.trace for load in LOADS if load.name == "longer")
ONE = Trace("one pod's worth", 10_000, between(0, 0, 0.0), service_s=100.0, dumps=((10.0, 4),))


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_a_pod_counts_from_its_first_item_to_the_end_of_its_last(order: Order) -> None:
    seconds = pod_seconds(ONE, order, 1)
    assert 50 < seconds < 150
    # Beyond the slots there is a second pod, and what lies past the end of the load does not count.
    assert seconds < pod_seconds(replace(ONE, dumps=((10.0, 5),)), order, 1) < 300
    assert pod_seconds(replace(ONE, length_s=40), order, 1) == 30


def test_who_knows_more_packs_better() -> None:
    means = [sum(pod_seconds(LONGER, order, seed) for seed in range(1, 11)) for order in ORDERS.values()]
    assert means == sorted(means, reverse=True)
    assert means[2] < means[0] * 0.95
