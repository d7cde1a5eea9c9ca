"""Decreases end no work: the planning against a model of the ReplicaSet controller, and its cases one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leasequeue_operator.scaling.shrink import CORDON_S, LEAVING_S, ROLLOUT_WAIT_S, Fleet, Pod, Shrink, blind, choose, settle

LIMIT_S = 3600.0


@dataclass
class Worker:
    """A pod with its process: the jobs it runs, as seconds left."""

    uid: str
    made: int
    starts_in_s: float = 0.0
    jobs: list[float] = field(default_factory=list)
    registered: bool = True
    cordoned_until: float = -1.0
    priced: bool = False


@dataclass
class Cluster:
    """Workers that claim whenever they may, and a ReplicaSet controller that removes pods in its documented order."""

    rng: random.Random
    slots: int = 4
    job_s: float = 30.0
    waiting: int = 10**6
    now: float = 1000.0
    replicas: int = 0
    made: int = 0
    workers: dict[str, Worker] = field(default_factory=dict)
    killed_busy: int = 0
    state: Shrink = field(default_factory=Shrink)
    cut_off: int = 0

    def scale(self, replicas: int, starts_in_s: float = 3.0) -> None:
        self.replicas = replicas
        while len(self.workers) < replicas:
            self.made += 1
            uid = f"w{self.made}"
            self.workers[uid] = Worker(uid, self.made, starts_in_s, registered=starts_in_s <= 0)
        doomed = sorted(self.workers.values(), key=lambda w: (self.ready(w), 0 if w.priced else 1, -w.made))
        for worker in doomed[: len(self.workers) - replicas]:
            self.killed_busy += len(worker.jobs)
            del self.workers[worker.uid]

    def ready(self, worker: Worker) -> bool:
        drained = worker.cordoned_until > self.now and not worker.jobs
        return worker.registered and not drained

    def fleet(self, rollout: bool = False) -> Fleet:
        pods = [
            Pod(
                w.uid, w.uid, f"{w.made:06d}", self.ready(w), w.priced, len(w.jobs) if w.registered else None,
                w.cordoned_until > self.now,
            )
            for w in self.workers.values()
        ]  # fmt: skip
        return Fleet(self.replicas, pods, rollout, len(pods), LIMIT_S)

    def step(self, target: int) -> None:
        """What the operator does at one look."""
        choice = choose(self.state, self.fleet(), target, self.now)
        for uid in choice.uncordon:
            self.workers[uid].cordoned_until = -1.0
        for uid in choice.cordon:
            self.workers[uid].cordoned_until = self.now + CORDON_S
        step = settle(choice.state, self.fleet(), target, self.now)
        for uid in step.price:
            self.workers[uid].priced = True
        for uid in step.unprice:
            self.workers[uid].priced = False
        self.work(0.3)  # claims go on between the calls
        if step.replicas != self.replicas:
            self.scale(step.replicas)
        self.state, self.cut_off = step.state, self.cut_off + step.cut_off

    def work(self, seconds: float) -> None:
        self.now += seconds
        for worker in self.workers.values():
            worker.starts_in_s -= seconds
            worker.registered = worker.registered or worker.starts_in_s <= 0
            worker.jobs = [left - seconds for left in worker.jobs if left > seconds]
            while (
                worker.registered and worker.cordoned_until <= self.now and len(worker.jobs) < self.slots and self.waiting > 0
                and self.rng.random() < 0.9
            ):  # fmt: skip
                self.waiting -= 1
                worker.jobs.append(self.rng.uniform(0.2, 2) * self.job_s)


targets = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 60)), min_size=1, max_size=8)


@given(st.integers(0, 10**6), targets, st.sampled_from([1, 4]), st.sampled_from([0.5, 20.0, 100.0]), st.integers(0, 400))
@settings(max_examples=120, deadline=None)
def test_no_decrease_ends_work_and_each_comes_to_its_end(
    seed: int, wanted: list[tuple[int, int]], slots: int, job_s: float, waiting: int
) -> None:
    cluster = Cluster(random.Random(seed), slots, job_s, waiting)
    for target, looks in wanted:
        for _ in range(looks):
            cluster.step(target)
            cluster.work(cluster.rng.uniform(1.7, 5))
    final = wanted[-1][0]
    for _ in range(400):
        cluster.step(final)
        cluster.work(2)
    assert (cluster.killed_busy, cluster.cut_off) == (0, 0)
    assert cluster.replicas == final
    assert all(w.cordoned_until <= cluster.now for w in cluster.workers.values())
    assert not any(w.priced for w in cluster.workers.values())


@given(st.integers(0, 10**6), targets, st.lists(st.integers(0, 60), max_size=6))
@settings(max_examples=60, deadline=None)
def test_pods_that_others_kill_meanwhile_change_nothing_of_that(
    seed: int, wanted: list[tuple[int, int]], kills: list[int]
) -> None:
    cluster = Cluster(random.Random(seed), 2, 20.0)
    look = 0
    for target, looks in wanted:
        for _ in range(looks):
            look += 1
            if look in kills and cluster.workers:
                cluster.workers.pop(cluster.rng.choice(sorted(cluster.workers)))
                cluster.scale(cluster.replicas)
            cluster.step(target)
            cluster.work(cluster.rng.uniform(1.7, 5))
    assert cluster.killed_busy == 0


@given(st.integers(0, 10**6), targets, st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_an_operator_that_dies_in_between_changes_nothing_of_that(seed: int, wanted: list[tuple[int, int]], every: int) -> None:
    cluster = Cluster(random.Random(seed), 2, 20.0)
    look = 0
    for target, looks in wanted:
        for _ in range(looks):
            look += 1
            if look % every == 0:
                cluster.state = Shrink()
                cluster.work(cluster.rng.choice([0.0, 30.0, 90.0]))
            cluster.step(target)
            cluster.work(cluster.rng.uniform(1.7, 5))
    assert cluster.killed_busy == 0


def pod(uid: str, leases: int | None = 0, **more: bool) -> Pod:
    return Pod(uid, uid, leases=leases, **more)  # type: ignore[arg-type]


def chosen(*pods: Pod, target: int, state: Shrink | None = None, now: float = 0.0) -> set[str]:
    return set(choose(state or Shrink(), Fleet(len(pods), pods), target, now).cordon)


def test_the_idlest_are_chosen() -> None:
    assert chosen(pod("a", 4), pod("b", 0), pod("c", 2), pod("d", 1), target=2) == {"b", "d"}


def test_pods_that_are_not_ready_are_chosen_first_since_they_would_go_first() -> None:
    assert chosen(pod("a", 0), pod("b", 3, ready=False), target=1) == {"b"}
    assert chosen(pod("a", 0), pod("b", None, ready=False), target=1) == {"b"}


def test_a_busy_pod_that_is_not_ready_holds_the_decrease() -> None:
    state = Shrink(victims=(("a", 0.0),), priced=(("a", 0.0),))
    fleet = Fleet(3, [pod("a", 0, cordoned=True, priced=True), pod("b", 2, ready=False), pod("c", 1)])
    assert settle(state, fleet, 2, 100.0).replicas == 3


def test_a_victim_stays_the_victim_unless_another_is_idle() -> None:
    state = Shrink(victims=(("b", 0.0),))
    assert chosen(pod("a", 4), pod("b", 4, cordoned=True), target=1, state=state) == {"b"}
    assert chosen(pod("a", 0), pod("b", 4, cordoned=True), target=1, state=state) == {"a"}


def test_load_that_returns_lifts_cordons_before_pods_start() -> None:
    state = Shrink(victims=(("a", 0.0), ("b", 0.0)))
    fleet = Fleet(3, [pod("a", 1, cordoned=True), pod("b", 3, cordoned=True, priced=True), pod("c", 4)])
    choice = choose(state, fleet, 3, 10.0)
    assert (choice.cordon, set(choice.uncordon)) == ((), {"a", "b"})
    step = settle(choice.state, fleet, 3, 10.0)
    assert (step.replicas, step.unprice, step.state.under_way) == (3, ("b",), False)
    partly = choose(state, fleet, 2, 10.0)
    assert (partly.cordon, partly.uncordon) == (("a",), ("b",))


def test_cost_first_and_the_number_two_seconds_later() -> None:
    fleet = Fleet(2, [pod("a", 0, cordoned=True), pod("b", 1)])
    first = settle(Shrink(victims=(("a", 0.0),)), fleet, 1, 10.0)
    assert (first.replicas, first.price) == (2, ("a",))
    assert settle(first.state, fleet, 1, 11.9).replicas == 2
    last = settle(first.state, fleet, 1, 12.0)
    assert (last.replicas, last.state.leaving) == (1, (("a", 12.0),))


def test_what_is_drained_goes_while_the_rest_works_on() -> None:
    pods = [pod("a", 0, cordoned=True), pod("b", 2, cordoned=True), pod("c", 3)]
    state = Shrink(victims=(("a", 0.0), ("b", 0.0)), priced=(("a", 0.0),))
    step = settle(state, Fleet(3, pods), 1, 10.0)
    assert (step.replicas, step.cut_off) == (2, 0)
    assert [uid for uid, _ in step.state.victims] == ["b"]


def test_a_lease_found_after_the_cordon_keeps_the_pod() -> None:
    state = Shrink(victims=(("a", 0.0),), priced=(("a", 0.0),))
    step = settle(state, Fleet(2, [pod("a", 1, cordoned=True, priced=True), pod("b")]), 1, 100.0)
    assert (step.replicas, step.unprice) == (2, ("a",))


def test_a_cordon_that_is_not_confirmed_is_none() -> None:
    state = Shrink(victims=(("a", 0.0),), priced=(("a", 0.0),))
    assert settle(state, Fleet(2, [pod("a"), pod("b")]), 1, 100.0).replicas == 2


def test_past_the_limit_a_busy_worker_is_cut_off_and_counted() -> None:
    state = Shrink(victims=(("a", 0.0),), priced=(("a", LIMIT_S),))
    fleet = Fleet(2, [pod("a", 3, cordoned=True), pod("b", 4)], limit_s=LIMIT_S)
    assert settle(state, fleet, 1, LIMIT_S - 1).replicas == 2
    step = settle(state, fleet, 1, LIMIT_S + 3)
    assert (step.replicas, step.cut_off) == (1, 3)


def test_to_zero_needs_no_choice_even_in_a_rollout() -> None:
    busy = [pod("a", 0, cordoned=True), pod("b", 1, cordoned=True)]
    state = Shrink(victims=(("a", 0.0), ("b", 0.0)))
    assert settle(state, Fleet(2, busy, rollout=True), 0, 5.0).replicas == 2
    idle = [pod("a", 0, cordoned=True), pod("b", 0, cordoned=True)]
    step = settle(state, Fleet(2, idle, rollout=True), 0, 5.0)
    assert (step.replicas, step.price) == (0, ())


def test_a_rollout_is_waited_for_but_not_for_ever() -> None:
    fleet = Fleet(3, [pod("a"), pod("b"), pod("c")], rollout=True)
    first = choose(Shrink(), fleet, 1, 100.0)
    assert (first.cordon, settle(first.state, fleet, 1, 100.0).replicas) == ((), 3)
    assert first.state.under_way
    later = choose(first.state, fleet, 1, 100.0 + ROLLOUT_WAIT_S)
    assert len(later.cordon) == 2


def test_missing_pods_have_nothing_to_lose() -> None:
    assert settle(Shrink(), Fleet(9, [pod("a", 4), pod("b", 4)], existing=2), 3, 0.0).replicas == 3


def test_pods_that_the_watch_has_not_shown_yet_are_waited_for() -> None:
    assert settle(Shrink(), Fleet(9, [pod("a", 4)], existing=9), 3, 0.0).replicas == 9


def test_without_the_database_nothing_is_lowered_until_the_limit() -> None:
    fleet = Fleet(4, [pod("a"), pod("b")], limit_s=LIMIT_S)
    first = blind(Shrink(), fleet, 2, 100.0)
    assert (first.replicas, first.state.under_way) == (4, True)
    assert blind(first.state, fleet, 2, 99.0 + LIMIT_S).replicas == 4
    assert blind(first.state, fleet, 2, 100.0 + LIMIT_S).replicas == 2
    assert blind(first.state, fleet, 6, 101.0).replicas == 6


def test_a_pod_on_its_way_out_keeps_its_cordon_and_one_that_stays_gets_back_to_work() -> None:
    state = Shrink(leaving=(("a", 0.0),))
    fleet = Fleet(1, [pod("a", 0, cordoned=True, priced=True), pod("b", 1)])
    assert choose(state, fleet, 1, 5.0).uncordon == ()
    assert settle(choose(state, fleet, 1, 5.0).state, fleet, 1, 5.0).unprice == ()
    late = choose(state, fleet, 1, LEAVING_S + 1)
    assert late.uncordon == ("a",)
    assert settle(late.state, fleet, 1, LEAVING_S + 1).unprice == ("a",)


@pytest.mark.parametrize("target", [2, 3])
def test_an_increase_or_no_change_is_applied_at_once(target: int) -> None:
    fleet = replace(Fleet(2, [pod("a", 1), pod("b", 1)]), existing=2)
    assert settle(choose(Shrink(), fleet, target, 0.0).state, fleet, target, 0.0).replicas == target
