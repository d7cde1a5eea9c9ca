"""A queue, pods with slots, and the ReplicaSet controller's order of removal, in steps of one second.

Inside a step items start at the moment a slot is free. A removed pod stops claiming, finishes what ends within its grace and
is cut off after it; an item that was cut off can be claimed again when its lease has ended and been reclaimed.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field

GRACE_S = 30.0
LEASE_S, RECLAIM_S = 30.0, 45.0
HEARTBEAT_S = 5
NEVER = float("inf")


@dataclass
class Job:
    """One execution: when its item arrived, when it began, when it ends, whether it is the item's first."""

    arrived: float
    began: float
    ends: float
    first: bool


@dataclass
class SimPod:
    """One worker pod."""

    name: str
    number: int
    ready_at: float
    jobs: list[Job] = field(default_factory=list)
    cordoned_until: float = -1.0
    priced: bool = False
    stops_at: float = NEVER


@dataclass
class Result:
    """What a run cost and what the items met."""

    pod_seconds: float = 0.0
    idle_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    first_claim_s: float | None = None
    cut_off: int = 0
    peak: int = 0
    changes: int = 0
    replicas: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    left: int = 0

    def wait(self, share: float) -> float:
        """Quantile of the waits until the first claim, seconds."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def late(self, limit_s: float) -> float:
        """Share of items that waited longer than `limit_s`; those never started count too."""
        total = len(self.waits) + self.left
        return (sum(w > limit_s for w in self.waits) + self.left) / total if total else 0.0


@dataclass
class World:
    """The present. Autoscalers read it and call `scale`, `cordon` and `price`.

    Args:
        rng: of the run.
        slots: of a pod.
        start_s: how long a pod takes until it claims.
        ceiling: most items in flight.
        service_s: mean of a job, which takes half to one and a half of it.
    """

    rng: random.Random
    slots: int
    start_s: float
    ceiling: int
    service_s: float
    now: float = 0.0
    replicas: int = 0
    pods: dict[str, SimPod] = field(default_factory=dict)
    leaving: list[SimPod] = field(default_factory=list)
    queue: deque[tuple[float, bool]] = field(default_factory=deque)
    cut: list[tuple[float, float]] = field(default_factory=list)  # lease taken back at, item arrived at
    finished: int = 0
    busy_s: float = 0.0
    reported: tuple[int, float] = (0, 0.0)  # finished and busy seconds as of the last heartbeats
    blind: bool = False
    made: int = 0
    result: Result = field(default_factory=Result)

    @property
    def running(self) -> int:
        """Items in flight, those of pods on their way out included."""
        return sum(len(p.jobs) for p in (*self.pods.values(), *self.leaving))

    @property
    def oldest_age_s(self) -> float | None:
        """Age of the item that has waited longest."""
        return self.now - self.queue[0][0] if self.queue else None

    def ready(self, pod: SimPod) -> bool:
        """Ready as the ReplicaSet controller sees it: started, and not drained under a cordon."""
        return pod.ready_at <= self.now and (bool(pod.jobs) or pod.cordoned_until <= self.now)

    def scale(self, replicas: int) -> None:
        """Set the number of pods; those that go are taken in the controller's order."""
        if replicas != self.replicas:
            self.result.changes += 1
        self.replicas = replicas
        for _ in range(replicas - len(self.pods)):
            self.made += 1
            name = f"p{self.made}"
            self.pods[name] = SimPod(name, self.made, self.now + self.start_s)
        doomed = sorted(self.pods.values(), key=lambda p: (self.ready(p), not p.priced, -p.number))
        for pod in doomed[: len(self.pods) - replicas]:
            del self.pods[pod.name]
            pod.stops_at = self.now + GRACE_S
            self.leaving.append(pod)

    def step(self, arrivals: list[float]) -> None:
        """One second: items arrive at `arrivals`, jobs end, others begin."""
        self.queue.extend((at, True) for at in arrivals)
        self._take_back()
        if not self.blind:
            self._end_jobs(self.now)
            self._begin_jobs(self.now + 1.0)
            self._end_jobs(self.now + 1.0)
        self.now += 1.0
        self._let_go()
        self._account()
        if int(self.now) % HEARTBEAT_S == 0 and not self.blind:
            running_s = sum(self.now - j.began for p in self.pods.values() for j in p.jobs)
            self.reported = (self.finished, self.busy_s + running_s)

    def _take_back(self) -> None:
        while self.cut and self.cut[0][0] <= self.now:
            self.queue.appendleft((heapq.heappop(self.cut)[1], False))

    def _end_jobs(self, until: float) -> None:
        for pod in (*self.pods.values(), *self.leaving):
            ended = [j for j in pod.jobs if j.ends <= until]
            if ended:
                self.finished += len(ended)
                self.busy_s += sum(j.ends - j.began for j in ended)
                pod.jobs = [j for j in pod.jobs if j.ends > until]

    def _begin_jobs(self, until: float) -> None:
        free = [
            (max(self.now, pod.ready_at), self.rng.random(), pod)
            for pod in self.pods.values()
            if pod.ready_at < until and pod.cordoned_until <= self.now
            for _ in range(self.slots - len(pod.jobs))
        ]
        heapq.heapify(free)
        room = self.ceiling - self.running
        while free and self.queue and room > 0:
            at, tie, pod = heapq.heappop(free)
            arrived, first = self.queue[0]
            began = max(at, arrived)
            if began >= until:
                break
            self.queue.popleft()
            job = Job(arrived, began, began + self.service_s * self.rng.uniform(0.5, 1.5), first)
            pod.jobs.append(job)
            if first:
                self._waited(began - arrived)
            if job.ends < until:
                heapq.heappush(free, (job.ends, tie, pod))
            else:
                room -= 1

    def _waited(self, seconds: float) -> None:
        if self.result.first_claim_s is None:
            self.result.first_claim_s = seconds
        self.result.waits.append(seconds)

    def _let_go(self) -> None:
        for pod in list(self.leaving):
            if pod.jobs and self.now >= pod.stops_at:
                self.result.cut_off += len(pod.jobs)
                for job in pod.jobs:
                    heapq.heappush(self.cut, (self.now + LEASE_S + RECLAIM_S, job.arrived))
                pod.jobs = []
            if not pod.jobs:
                self.leaving.remove(pod)

    def _account(self) -> None:
        alive = [*self.pods.values(), *self.leaving]
        self.result.pod_seconds += len(alive)
        self.result.idle_seconds += sum(not p.jobs for p in alive)
        self.result.peak = max(self.result.peak, len(alive))
        self.result.replicas.append(len(alive))
        self.result.depth.append(len(self.queue))
