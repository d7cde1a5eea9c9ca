"""Every decrease on a real database: workers that really claim, an imitated API server, a ReplicaSet controller's order."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from kubernetes.aio.client import ApiClient, Configuration

import leasequeue
from leasequeue import schema
from leasequeue.config import LeaseConfig
from leasequeue.table import Table
from leasequeue.workers import WorkerCounters
from leasequeue_operator import metrics
from leasequeue_operator.cache import Cache
from leasequeue_operator.kube import Kube, KubeError
from leasequeue_operator.observe.database import Hub
from leasequeue_operator.plan.fleet import COST, stand_in
from leasequeue_operator.plan.names import DELETION_COST, labels
from leasequeue_operator.reconcile import Reconciler
from leasequeue_operator.resync import resync
from leasequeue_operator.settings import Settings
from tests.operator import samples
from tests.operator.apiserver import ApiServer, Fault
from tests.operator.samples import UID

pytestmark = pytest.mark.postgres

KEY = ("team", "orders")
QUEUES, DEPLOYMENTS, PODS = "leasequeue.dev/v1alpha1/leasequeues", "apps/v1/deployments", "v1/pods"
SETTINGS = Settings(worker_image="worker:1", reclaimer_image="reclaimer:1")
CONFIG = LeaseConfig(lock_timeout_ms=60_000)
NO_WAIT = {"scaleDownStabilizationSeconds": 0, "pollPeriodSeconds": 2, "drainTargetSeconds": 3600, "maxReplicas": 20}


@dataclass
class Fleet:
    """The queue's table, its pods with their worker processes, and the operator."""

    api: ApiServer
    kube: Kube
    conn: psycopg.Connection[Any]
    table: Table
    hub: Hub
    wall: float = 1_800_000_000.0
    held: dict[str, list[Any]] = field(default_factory=dict)  # pod → its leases
    ended_busy: list[str] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.cache = Cache()
        self.restart()

    def restart(self) -> None:
        """Another process of the operator, which knows what the status says."""
        self.reconciler = Reconciler(
            self.kube, self.cache, self.hub, SETTINGS, metrics.Tally(), clock=lambda: self.wall, wall=lambda: self.wall
        )

    def enqueue(self, count: int) -> None:
        self.conn.execute(f"INSERT INTO jobs (state) SELECT 'PENDING' FROM generate_series(1, {count})")

    def counted(self, state: str) -> int:
        row = self.conn.execute("SELECT count(*) FROM jobs WHERE state = %s", (state,)).fetchone()
        assert row is not None
        return int(row[0])

    @property
    def replicas(self) -> int:
        return int((self.api.stored(DEPLOYMENTS, "team", "orders-worker") or {"spec": {"replicas": 0}})["spec"]["replicas"])

    def spec(self, **change: Any) -> None:
        self.api.objects[QUEUES, *KEY].patch({"spec": change, "metadata": {"resourceVersion": str(int(self.wall))}})

    def status(self) -> dict[str, Any]:
        return dict((self.api.stored(QUEUES, *KEY) or {})["status"])

    def controller(self, *, start: bool = True) -> None:
        """Deployment and ReplicaSet controllers: as many pods as are asked for, removed in their documented order."""
        pods = [self.api.stored(PODS, "team", name) or {} for name in self.api.names(PODS)]
        doomed = sorted(pods, key=lambda p: (self._ready(p), self._cost(p), -int(p["metadata"]["name"][1:])))
        for pod in doomed[: max(0, len(pods) - self.replicas)]:
            name = pod["metadata"]["name"]
            if self.held.pop(name, []):
                self.ended_busy.append(name)
            leasequeue.deregister(self.conn, self.table, name)
            self.api.objects[PODS, "team", name].delete()
        for _ in range(self.replicas - len(pods)):
            self.made += 1
            name = f"p{self.made}"
            self.api.store(PODS, "team", {
                "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels("orders", UID, "worker"),
                             "creationTimestamp": f"2026-03-01T12:{self.made:02d}:00Z"},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if start else "False"}]},
            })  # fmt: skip
            if start:
                self.register(name)

    def register(self, name: str) -> bool:
        beat = leasequeue.register(self.conn, self.table, name, pod_uid=f"uid-{name}", pod_name=name, slots=2)
        self.held[name] = []
        return beat.cordoned

    def _ready(self, pod: dict[str, Any]) -> bool:
        return any(c["status"] == "True" for c in pod["status"]["conditions"])

    def _cost(self, pod: dict[str, Any]) -> int:
        return int((pod["metadata"].get("annotations") or {}).get(DELETION_COST) or 0)

    def claim(self, *names: str, n: int = 1) -> dict[str, str]:
        """Each claims; what the database said to it."""
        said = {}
        for name in names:
            claimed = leasequeue.claim(self.conn, self.table, worker_id=name, n=n, config=CONFIG, registered=True)
            self.held[name] += [item.lease for item in claimed.items]
            said[name] = claimed.admission
        return said

    def finish(self, *names: str) -> None:
        for name in names:
            leasequeue.resolve(self.conn, self.table, [leasequeue.Completion(lease) for lease in self.held[name]])
            self.held[name] = []
            leasequeue.heartbeat(self.conn, self.table, name, WorkerCounters())

    def cordoned(self) -> set[str]:
        return {w.worker_id for w in leasequeue.workers(self.conn, self.table) if w.cordoned}

    async def look(self, times: int = 1, *, start: bool = True) -> Exception | None:
        """Watch, reconcile, controller; the fault of the last look."""
        fault: Exception | None = None
        for _ in range(times):
            self.wall += 2.1
            fault = None
            await resync(self.kube, self.cache, ())
            try:
                await self.reconciler.reconcile(KEY)
            except KubeError as ex:
                fault = ex
            self.controller(start=start)
        return fault


@pytest.fixture
async def fleet(api: ApiServer, configuration: Configuration, conn: psycopg.Connection[Any], dsn: str) -> AsyncIterator[Fleet]:
    # The database calls of the tests block the loop that also serves the API: patience instead of the usual second.
    kube = Kube(ApiClient(configuration), timeout_s=20.0)
    schema.create(conn, "jobs")
    hub = Hub()
    made = Fleet(api, kube, conn, Table.load(conn, "jobs"), hub)
    made.hub = Hub(clock=lambda: made.wall, wall=lambda: made.wall)
    made.restart()
    api.store("v1/secrets", "team", {"metadata": {"name": "db"}, "data": {"uri": base64.b64encode(dsn.encode()).decode()}})
    api.store(QUEUES, "team", samples.body(scaling=NO_WAIT))
    yield made
    await made.hub.close()
    await kube.close()


async def four_workers(fleet: Fleet) -> None:
    """Four pods; p1 and p3 hold an item each, nothing waits."""
    fleet.enqueue(4)
    await fleet.look(3)
    assert fleet.replicas == 4
    fleet.claim("p1", "p2", "p3", "p4")
    fleet.finish("p2", "p4")


async def test_a_decision_to_shrink_takes_the_idle_pods(fleet: Fleet) -> None:
    await four_workers(fleet)
    await fleet.look(14)
    assert fleet.replicas == 2
    assert fleet.api.names(PODS) == ["p1", "p3"]
    assert fleet.ended_busy == []


DECREASES: dict[str, tuple[dict[str, Any], int]] = {
    "lowered maximum": ({"scaling": {"maxReplicas": 1}}, 1),
    "kubectl scale": ({"scaling": {"mode": "Manual"}, "replicas": 1}, 1),
    "a schedule": (
        {"scaling": {"schedules": [{"name": "quiet", "start": "* * * * *", "end": "0 0 1 1 *", "maxReplicas": 1}]}}, 1,
    ),
    "suspend": ({"suspend": True}, 0),
}  # fmt: skip


@pytest.mark.parametrize("cause", DECREASES)
async def test_every_decrease_waits_for_the_work(fleet: Fleet, cause: str) -> None:
    change, target = DECREASES[cause]
    await four_workers(fleet)
    fleet.claim("p1", "p2", "p3", "p4")
    fleet.enqueue(10)
    fleet.claim("p1", "p2", "p3", "p4")
    fleet.spec(**change)
    await fleet.look(6)
    assert fleet.replicas == 4
    assert len(fleet.cordoned()) == 4 - target
    told = fleet.status()
    assert (told["desiredReplicas"], told["scaling"]["draining"]) == (target, 4 - target)
    said = fleet.claim("p1", "p2", "p3", "p4")
    assert sorted(said.values()) == ["cordoned"] * (4 - target) + ["open"] * target
    fleet.finish("p1", "p2", "p3", "p4")
    await fleet.look(8)
    assert fleet.replicas == target
    assert fleet.ended_busy == []
    assert fleet.status()["scaling"]["busyKills"] == 0


async def test_load_that_returns_lifts_the_cordon_and_starts_no_pod(fleet: Fleet) -> None:
    await four_workers(fleet)
    fleet.claim("p2", "p4")
    fleet.enqueue(6)
    fleet.claim("p1", "p2", "p3", "p4")
    fleet.spec(scaling={"maxReplicas": 1})
    await fleet.look(3)
    assert len(fleet.cordoned()) == 3
    fleet.spec(scaling={"maxReplicas": 4})
    await fleet.look(2)
    assert fleet.cordoned() == set()
    assert (fleet.replicas, fleet.made) == (4, 4)
    assert set(fleet.claim("p1", "p2", "p3", "p4").values()) == {"open"}


async def test_an_operator_that_dies_in_between_is_followed_by_one_that_goes_on(fleet: Fleet) -> None:
    await four_workers(fleet)
    fleet.enqueue(4)
    fleet.claim("p1", "p2", "p3", "p4")
    fleet.spec(scaling={"minReplicas": 2, "maxReplicas": 2})
    await fleet.look(3)
    before = fleet.cordoned()
    fleet.restart()
    await fleet.look(2)
    assert fleet.cordoned() == before
    assert fleet.status()["desiredReplicas"] == 2
    fleet.finish("p1", "p2", "p3", "p4")
    await fleet.look(5)
    assert (fleet.replicas, fleet.ended_busy) == (2, [])


async def test_cordons_of_an_operator_that_stays_dead_lapse(fleet: Fleet) -> None:
    await four_workers(fleet)
    fleet.claim("p1", "p2", "p3", "p4")
    fleet.spec(scaling={"maxReplicas": 1})
    await fleet.look(2)
    row = fleet.conn.execute(
        "SELECT max(extract(epoch FROM cordoned_until - clock_timestamp())) FROM leasequeue.worker"
    ).fetchone()
    assert row is not None
    assert 30 < float(row[0]) <= 60


async def test_a_pod_whose_process_registers_while_it_is_given_up_cannot_claim(fleet: Fleet) -> None:
    fleet.enqueue(3)
    await fleet.look(2, start=False)
    assert fleet.replicas == 3
    fleet.spec(scaling={"maxReplicas": 1})
    await fleet.look(1)
    given_up = {name.removeprefix("stand-in/uid-") for name in fleet.cordoned()}
    assert len(given_up) == 2
    assert all(fleet.register(name) for name in given_up)
    assert set(fleet.claim(*given_up).values()) == {"cordoned"}
    await fleet.look(4, start=False)
    assert fleet.replicas == 1
    assert fleet.ended_busy == []


async def test_a_stand_in_goes_when_its_pod_is_wanted_again(fleet: Fleet) -> None:
    fleet.enqueue(3)
    await fleet.look(2, start=False)
    fleet.spec(scaling={"maxReplicas": 1})
    await fleet.look(1)
    assert stand_in("uid-p3") in fleet.cordoned()
    fleet.spec(scaling={"maxReplicas": 3})
    await fleet.look(1)
    assert leasequeue.workers(fleet.conn, fleet.table) == []
    assert fleet.replicas == 3


async def test_a_pod_killed_by_others_meanwhile(fleet: Fleet) -> None:
    await four_workers(fleet)
    fleet.claim("p1", "p2", "p3", "p4")
    fleet.enqueue(4)
    fleet.claim("p2", "p4")
    fleet.spec(scaling={"maxReplicas": 2})
    await fleet.look(2)
    victim = sorted(fleet.cordoned())[0]
    fleet.held.pop(victim)
    fleet.api.objects[PODS, "team", victim].delete()
    fleet.controller()  # its ReplicaSet makes another
    await fleet.look(6)
    assert fleet.ended_busy == []
    fleet.finish(*fleet.held)
    await fleet.look(6)
    assert (fleet.replicas, fleet.ended_busy) == (2, [])


@pytest.mark.parametrize("kind", [403, 409, 500, "lost"])
async def test_a_pod_that_cannot_be_marked_holds_the_decrease(fleet: Fleet, kind: int | str) -> None:
    await four_workers(fleet)
    fleet.api.faults.append(Fault("PATCH", "/pods/", kind, times=6))
    fleet.spec(scaling={"maxReplicas": 2})
    fault = await fleet.look(2)
    told = {c["reason"] for c in fleet.status()["conditions"]}
    assert "Forbidden" in told if kind == 403 else fault is not None
    assert fleet.replicas == 4
    await fleet.look(10)
    assert (fleet.replicas, fleet.ended_busy) == (2, [])


async def test_a_database_that_is_gone_holds_the_decrease(fleet: Fleet) -> None:
    await four_workers(fleet)
    fleet.spec(scaling={"maxReplicas": 2})
    await fleet.look(1)
    fleet.conn.execute("ALTER TABLE leasequeue.worker RENAME TO worker_away")
    await fleet.look(5)
    assert fleet.replicas == 4
    fleet.conn.execute("ALTER TABLE leasequeue.worker_away RENAME TO worker")
    await fleet.look(40)
    assert (fleet.replicas, fleet.ended_busy) == (2, [])


async def test_marks_are_taken_off_pods_that_stay(fleet: Fleet) -> None:
    await four_workers(fleet)
    fleet.spec(scaling={"maxReplicas": 2})
    await fleet.look(1)
    marked = [n for n in fleet.api.names(PODS) if fleet._cost(fleet.api.stored(PODS, "team", n) or {}) == int(COST)]
    assert sorted(marked) == ["p2", "p4"]
    fleet.spec(scaling={"maxReplicas": 20, "minReplicas": 4})
    await fleet.look(2)
    assert {fleet._cost(fleet.api.stored(PODS, "team", n) or {}) for n in fleet.api.names(PODS)} == {0}
