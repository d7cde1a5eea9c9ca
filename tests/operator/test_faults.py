"""Faults of the API server at each call: afterwards the state equals the plan, whatever went wrong on the way."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from leasequeue_operator import metrics
from leasequeue_operator.cache import Cache
from leasequeue_operator.kinds import DEPLOYMENT, Kind
from leasequeue_operator.kube import Kube, KubeError
from leasequeue_operator.observe.group import Wanted
from leasequeue_operator.observe.secret import Connection
from leasequeue_operator.observe.view import DatabaseView
from leasequeue_operator.plan import cronjob, deployment, serviceaccount
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import read_queue
from leasequeue_operator.reconcile import Reconciler
from leasequeue_operator.resync import resync
from leasequeue_operator.settings import Settings
from tests.operator import samples
from tests.operator.apiserver import ApiServer, Fault
from tests.operator.samples import NOW, UID

KEY = ("team", "orders")
QUEUES, DEPLOYMENTS, CRON_JOBS = "leasequeue.dev/v1alpha1/leasequeues", "apps/v1/deployments", "batch/v1/cronjobs"
SETTINGS = Settings(worker_image="worker:1", reclaimer_image="reclaimer:1")


class Database:
    """Stands for the hub: a view that the test sets."""

    def __init__(self) -> None:
        self.view: DatabaseView = samples.view(pending=3)
        self.forgotten: list[str] = []
        self.taken: list[tuple[str, str]] = []
        self.seen_at: float | None = None  # by the wall clock; now unless set

    async def look(self, _connection: Connection, _wanted: Wanted, _max_age_s: float) -> DatabaseView:
        at = self.seen_at or Bench.wall
        return replace(self.view, at=at, stats_at=at)

    async def forget(self, uid: str) -> None:
        self.forgotten.append(uid)

    async def take_over(self, uid: str, from_uid: str) -> None:
        self.taken.append((uid, from_uid))


@dataclass
class Bench:
    """A reconciler on an imitated API server, with clocks of its own."""

    api: ApiServer
    kube: Kube
    wall: float = NOW.timestamp()
    clock: float = 1000.0

    def __post_init__(self) -> None:
        self.cache, self.database = Cache(), Database()
        self.reconciler = self.restarted()

    def restarted(self) -> Reconciler:
        made = Reconciler(
            self.kube, self.cache, self.database, SETTINGS, metrics.Tally(),  # type: ignore[arg-type]
            clock=lambda: self.clock, wall=lambda: self.wall,
        )  # fmt: skip
        self.reconciler = made
        return made

    async def round(self, after_s: float = 5.0) -> Exception | None:
        """Lists, then one reconciliation; the fault that it met."""
        self.clock += after_s
        self.wall += after_s
        Bench.wall = self.wall
        try:
            await resync(self.kube, self.cache, ())
            await self.reconciler.reconcile(KEY)
        except KubeError as ex:
            return ex
        return None

    async def settle(self, rounds: int = 5) -> None:
        for _ in range(rounds):
            await self.round(after_s=61)

    def condition(self, kind: str) -> tuple[str, str, str]:
        found = self.api.stored(QUEUES, *KEY)
        assert found is not None
        told = {c["type"]: c for c in found["status"]["conditions"]}
        return told[kind]["status"], told[kind]["reason"], told[kind]["message"]


@pytest.fixture
async def bench(api: ApiServer, kube: Kube) -> Bench:
    made = Bench(api, kube)
    api.store(QUEUES, "team", samples.body())
    data = {"uri": base64.b64encode(b"postgresql://u:p@db.example/x").decode()}
    api.store("v1/secrets", "team", {"metadata": {"name": "db"}, "data": data})
    return made


def part_of(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and part_of(v, whole[k]) for k, v in part.items())
    return bool(part == whole)


def assert_as_planned(api: ApiServer, replicas: int = 3) -> None:
    """All children are there as planned, once."""
    queue = read_queue(samples.body())
    planned = {
        DEPLOYMENTS: deployment.build(queue, default_image="worker:1"),
        CRON_JOBS: cronjob.build(queue, image="reclaimer:1", pull_policy="IfNotPresent"),
        "v1/serviceaccounts": serviceaccount.build(queue),
    }
    for path, manifest in planned.items():
        assert api.names(path) == [manifest["metadata"]["name"]]
        live = api.stored(path, "team", manifest["metadata"]["name"])
        assert part_of(manifest, live), (manifest, live)
    workers = api.stored(DEPLOYMENTS, "team", "orders-worker")
    assert workers is not None
    assert workers["spec"]["replicas"] == replicas


CALLS = [
    ("GET", "/secrets/db$"),
    ("POST", "/serviceaccounts$"),
    ("PATCH", "/serviceaccounts/orders-leasequeue$"),
    ("POST", "/deployments$"),
    ("PATCH", "/deployments/orders-worker$"),
    ("POST", "/cronjobs$"),
    ("PATCH", "/cronjobs/orders-reclaimer$"),
    ("PATCH", "/leasequeues/orders/status$"),
    ("POST", "/events$"),
]
LISTS = ["leasequeues", "deployments", "cronjobs", "jobs", "pods", "horizontalpodautoscalers"]
KINDS: list[int | str] = [403, 404, 409, 410, 422, 429, 500, 503, "hang", "lost"]


async def check_that_it_heals(bench: Bench, method: str, path: str, kind: int | str) -> None:
    bench.database.view = samples.view(pending=3, assigned=900)  # so that there is an event to be posted
    bench.api.faults.append(Fault(method, path, kind, times=1 if kind == "hang" else 2))
    await bench.settle()
    assert bench.api.hit >= 1, "the fault was never met"
    assert_as_planned(bench.api, replicas=10)
    assert bench.condition("Ready")[:2] == ("True", "Ready")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("method", "path"), CALLS, ids=[f"{m}{p.rstrip('$')}" for m, p in CALLS])
async def test_a_fault_heals(bench: Bench, method: str, path: str, kind: int | str) -> None:
    await check_that_it_heals(bench, method, path, kind)


@pytest.mark.parametrize("kind", [403, 410, 429, 500, "hang"])
@pytest.mark.parametrize("plural", LISTS)
async def test_a_fault_of_a_list_heals(bench: Bench, plural: str, kind: int | str) -> None:
    await check_that_it_heals(bench, "GET", f"/{plural}$", kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fault_of_the_scale_heals(bench: Bench, kind: int | str) -> None:
    await bench.settle(2)
    bench.database.view = samples.view(pending=7)
    bench.api.faults.append(Fault("PATCH", "/deployments/orders-worker/scale$", kind, times=1 if kind == "hang" else 2))
    await bench.settle(5)
    assert bench.api.hit >= 1
    assert_as_planned(bench.api, replicas=7)


async def test_a_fault_of_one_child_does_not_keep_the_status_from_being_told(bench: Bench) -> None:
    bench.api.faults.append(Fault("POST", "/deployments$", 500, times=99))
    assert await bench.round() is not None
    assert bench.condition("DatabaseReachable")[:2] == ("True", "Connected")


async def test_a_refused_child_is_told_and_tried_again_slowly(bench: Bench) -> None:
    bench.api.faults.append(Fault("POST", "/deployments$", 403, times=99))
    for _ in range(24):
        await bench.round(after_s=5)
    assert bench.condition("Accepted")[:2] == ("False", "Forbidden")
    assert 2 <= bench.api.hit <= 8
    bench.api.faults.clear()
    await bench.settle(3)
    assert_as_planned(bench.api)
    assert bench.condition("Accepted")[0] == "True"


async def test_a_foreign_object_is_left_alone_until_it_goes(bench: Bench) -> None:
    foreign: dict[str, Any] = {"metadata": {"name": "orders-worker"}, "spec": {"replicas": 1, "theirs": True}}
    bench.api.store(DEPLOYMENTS, "team", foreign)
    await bench.settle(3)
    live = bench.api.stored(DEPLOYMENTS, "team", "orders-worker")
    assert live is not None
    assert live["spec"] == {"replicas": 1, "theirs": True}
    assert "labels" not in live["metadata"]
    status, reason, message = bench.condition("Accepted")
    assert (status, reason) == ("False", "ChildNameTaken")
    assert "Deployment orders-worker" in message
    bench.api.objects[DEPLOYMENTS, "team", "orders-worker"].delete()
    await bench.settle(3)
    assert_as_planned(bench.api)
    assert bench.condition("Ready")[0] == "True"


async def test_our_own_object_without_its_labels_is_found_again(bench: Bench) -> None:
    await bench.settle(2)
    bench.api.objects[DEPLOYMENTS, "team", "orders-worker"].patch({"metadata": {"labels": None, "resourceVersion": "900"}})
    bench.restarted()
    bench.cache.drop("Deployment", bench.api.stored(DEPLOYMENTS, "team", "orders-worker") or {})
    await bench.settle(3)
    assert_as_planned(bench.api)


async def test_a_quiet_queue_costs_one_read_a_round(bench: Bench) -> None:
    await bench.settle(2)
    bench.api.calls.clear()
    for _ in range(5):
        bench.clock += 5
        await bench.reconciler.reconcile(KEY)
    assert bench.api.calls == [("GET", "/api/v1/namespaces/team/secrets/db")] * 5


async def test_an_hour_in_which_nothing_happens_writes_nothing(bench: Bench) -> None:
    bench.api.objects[QUEUES, *KEY].patch({"spec": {"reclaimer": {"suspend": True}}})
    bench.database.view = samples.view()
    await bench.settle(5)
    bench.api.calls.clear()
    for n in range(72):
        bench.database.view = samples.view(now=NOW + timedelta(seconds=50 * n))
        await bench.round(after_s=50)
    assert [(m, p) for m, p in bench.api.calls if m != "GET"] == []
    assert ("GET", "/api/v1/namespaces/team/serviceaccounts/orders-leasequeue") in bench.api.calls


@pytest.mark.parametrize(
    ("path", "name"),
    [(DEPLOYMENTS, "orders-worker"), (CRON_JOBS, "orders-reclaimer"), ("v1/serviceaccounts", "orders-leasequeue")],
)
async def test_a_label_that_somebody_takes_away_comes_back(bench: Bench, path: str, name: str) -> None:
    await bench.settle(3)
    taken = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}, "resourceVersion": "5000"}}
    bench.api.objects[path, "team", name].patch(taken)
    await bench.settle(12)
    assert_as_planned(bench.api)


async def test_a_label_that_a_webhook_takes_away_is_not_fought_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bench.kube.apply

    async def without_label(kind: Kind, manifest: Any, *rest: Any) -> Any:
        answer = await plain(kind, manifest, *rest)
        if kind is not DEPLOYMENT:
            return answer
        labels = {k: v for k, v in answer["metadata"]["labels"].items() if not k.endswith("managed-by")}
        stripped = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
        bench.api.objects[DEPLOYMENTS, "team", "orders-worker"].patch(stripped)
        return {**answer, "metadata": {**answer["metadata"], "labels": labels}}

    monkeypatch.setattr(bench.kube, "apply", without_label)
    await bench.settle(3)
    bench.api.calls.clear()
    await bench.settle(10)
    assert [(m, p) for m, p in bench.api.calls if m != "GET" and "/deployments" in p] == []


async def test_a_restart_changes_nothing(bench: Bench) -> None:
    await bench.settle(2)
    before = bench.api.stored(DEPLOYMENTS, "team", "orders-worker")
    bench.restarted()
    await bench.settle(2)
    after = bench.api.stored(DEPLOYMENTS, "team", "orders-worker")
    assert before is not None
    assert after is not None
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["spec"] == before["spec"]


async def test_a_new_image_keeps_the_number_of_pods(bench: Bench) -> None:
    await bench.settle(2)
    bench.api.objects[QUEUES, *KEY].patch({"spec": {"worker": {"image": "mine:2"}}, "metadata": {"resourceVersion": "999"}})
    seen: list[int] = []
    for _ in range(4):
        await bench.round()
        live = bench.api.stored(DEPLOYMENTS, "team", "orders-worker")
        assert live is not None
        seen.append(live["spec"]["replicas"])
    assert seen == [3, 3, 3, 3]
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "mine:2"


async def test_no_fault_of_the_database_scales_down(bench: Bench) -> None:
    await bench.settle(2)
    for fault in ("AuthenticationFailed", "HostUnreachable", "DatabaseReadOnly"):
        bench.database.view = replace(samples.view(), unreachable=Problem(fault, fault), stats=None)
        for _ in range(10):
            await bench.round(after_s=90)
        assert_as_planned(bench.api)
        assert bench.condition("DatabaseReachable")[:2] == ("False", fault)
    bench.database.view = replace(samples.view(), unready=Problem("TableMissing", "x"))
    for _ in range(10):
        await bench.round(after_s=90)
    assert_as_planned(bench.api)


async def test_a_secret_that_goes_leaves_the_workers_as_they_are_and_its_return_heals(bench: Bench) -> None:
    await bench.settle(2)
    bench.api.objects["v1/secrets", "team", "db"].delete()
    bench.api.objects[QUEUES, *KEY].patch({"spec": {"worker": {"image": "mine:2"}}, "metadata": {"resourceVersion": "999"}})
    await bench.settle(2)
    assert_as_planned(bench.api)  # with the old image: nothing is rolled towards a Secret that is not there
    assert bench.condition("Ready")[:2] == ("False", "SecretNotFound")
    data = {"uri": base64.b64encode(b"postgresql://u:p@db.example/x").decode()}
    bench.api.objects["v1/secrets", "team", "db"].create({"metadata": {"name": "db", "namespace": "team"}, "data": data})
    await bench.round()
    assert bench.condition("Ready")[0] == "True"


async def test_a_refused_spec_lets_the_last_valid_one_go_on(bench: Bench) -> None:
    await bench.settle(2)
    change = {"spec": {"worker": {"podTemplate": {"spec": {"hostNetwork": True}}}}, "metadata": {"resourceVersion": "999"}}
    bench.api.objects[QUEUES, *KEY].patch(change)
    bench.database.view = samples.view(pending=6)
    await bench.settle(2)
    assert bench.condition("Accepted")[:2] == ("False", "PodTemplateRefused")
    assert "hostNetwork" in bench.condition("Accepted")[2]
    assert_as_planned(bench.api, replicas=6)


async def test_an_unreadable_spec_is_told(bench: Bench) -> None:
    bench.api.objects[QUEUES, *KEY].patch({"spec": {"lease": {"batchSize": "many"}}})
    await bench.round()
    status, reason, message = bench.condition("Accepted")
    assert (status, reason) == ("False", "InvalidSpec")
    assert "spec.lease.batchSize" in message
    assert bench.api.names(DEPLOYMENTS) == []


async def test_another_autoscaler_makes_the_operator_stand_down(bench: Bench) -> None:
    await bench.settle(2)
    target = {"kind": "Deployment", "name": "orders-worker"}
    autoscaler = {"metadata": {"name": "hpa"}, "spec": {"scaleTargetRef": target}}
    bench.api.store("autoscaling/v2/horizontalpodautoscalers", "team", autoscaler)
    bench.database.view = samples.view(pending=9)
    await bench.settle(3)
    assert_as_planned(bench.api, replicas=3)
    assert bench.condition("ScalingActive")[:2] == ("False", "ReplicasManagedElsewhere")
    bench.api.objects["autoscaling/v2/horizontalpodautoscalers", "team", "hpa"].delete()
    await bench.settle(2)
    assert_as_planned(bench.api, replicas=9)


async def test_a_queue_that_goes_is_forgotten(bench: Bench) -> None:
    await bench.settle(1)
    bench.api.objects[QUEUES, *KEY].delete()
    await bench.settle(1)
    assert bench.reconciler.memories == {}
    assert bench.database.forgotten == [UID]


async def test_a_queue_made_anew_under_its_name_starts_afresh(bench: Bench) -> None:
    await bench.settle(1)
    bench.api.objects[QUEUES, *KEY].delete()
    bench.api.store(QUEUES, "team", samples.body(uid="another"))
    for name in ("orders-worker",):
        bench.api.objects[DEPLOYMENTS, "team", name].delete()
    await bench.settle(1)
    assert bench.database.forgotten == [UID]
    assert bench.reconciler.memories[KEY].uid == "another"


async def test_counts_are_written_once_a_minute(bench: Bench) -> None:
    await bench.settle(2)
    bench.api.calls.clear()
    for n in range(24):
        bench.database.view = samples.view(pending=3, resolved=n)
        await bench.round(after_s=5)
    assert len([path for _, path in bench.api.calls if path.endswith("/status")]) == 2


async def test_the_schema_job_is_made_only_while_it_is_needed(bench: Bench) -> None:
    adopt = {"manageSchema": "Adopt", "confirmTable": "public.jobs"}
    bench.api.objects[QUEUES, *KEY].patch({"spec": {"database": adopt}})
    bench.database.view = replace(samples.view(), unready=Problem("NotAdopted", "x"), stats=None)
    await bench.settle(3)
    (job,) = bench.api.names("batch/v1/jobs")
    assert bench.condition("SchemaReady")[:2] == ("False", "SchemaJobRunning")
    assert job in bench.condition("SchemaReady")[2]
    assert bench.api.names(DEPLOYMENTS) == []
    bench.database.view = samples.view(pending=3)
    await bench.settle(2)
    assert bench.api.names("batch/v1/jobs") == [job]
    assert bench.condition("Ready")[0] == "True"


async def test_an_owner_that_is_gone_is_followed(bench: Bench) -> None:
    assert bench.database.view.owner is not None
    theirs = replace(bench.database.view.owner, cr_uid="gone", mine=False)
    bench.database.view = replace(samples.view(pending=3), owner=theirs)
    await bench.round()
    assert bench.condition("Accepted")[:2] == ("False", "Conflict")
    assert bench.api.names(DEPLOYMENTS) == []
    assert bench.database.taken == [(UID, "gone")]


async def test_the_next_look_comes_when_the_sample_is_one_period_old(bench: Bench) -> None:
    await bench.settle(1)
    assert await bench.reconciler.reconcile(KEY) == 5.0
    bench.database.seen_at = bench.wall
    bench.wall += 2  # an event between two polls
    assert await bench.reconciler.reconcile(KEY) == 3.0
    bench.wall += 8  # a database that does not answer for longer than a period
    assert await bench.reconciler.reconcile(KEY) == 5.0


async def test_a_host_that_never_answers_is_told_once(bench: Bench) -> None:
    """B05: ten minutes of an unreachable database are one event, not one a poll."""
    bench.database.view = replace(samples.view(), unreachable=Problem("HostUnreachable", "no answer"), stats=None)
    for _ in range(120):
        await bench.round(after_s=5)
    events = [o.raw["reason"] for (r, _, _), o in bench.api.objects.items() if r.plural == "events"]
    assert events.count("HostUnreachable") == 1


@pytest.mark.parametrize("kind", ["deployments/orders-worker", "cronjobs/orders-reclaimer"])
async def test_an_update_that_can_never_succeed_is_tried_once_a_minute(bench: Bench, kind: str) -> None:
    """B61: a field that cannot change (the selector of an older release) is told, and not fought over."""
    bench.api.faults.append(Fault("PATCH", f"/{kind}$", 422, times=10**6))
    for _ in range(60):
        await bench.round(after_s=20)
    status, reason, message = bench.condition("Accepted")
    assert (status, reason) == ("False", "ChildRefused")
    assert kind.split("/")[1] in message
    assert 15 <= bench.api.hit <= 26  # twenty minutes


async def test_a_reclaimer_that_cannot_be_made_is_told(bench: Bench) -> None:
    """B07: without it leases would never come back."""
    bench.api.faults.append(Fault("POST", "/cronjobs$", 422, times=10**6))
    await bench.settle(3)
    assert bench.condition("Accepted")[:2] == ("False", "ChildRefused")
    assert "CronJob orders-reclaimer" in bench.condition("Accepted")[2]
    assert bench.condition("Ready")[0] == "False"
    assert bench.api.names(DEPLOYMENTS) == ["orders-worker"]


class Killed(BaseException):
    """The process ends here."""


class Mortal(Kube):
    """Calls until the process is killed: before a write is sent, or after it was done but not seen."""

    writes_left = 10**6
    unseen = False

    async def call(self, method: str, path: str, **rest: Any) -> dict[str, Any]:
        if method == "GET":
            return await super().call(method, path, **rest)
        self.writes_left -= 1
        if self.writes_left < 0 and not self.unseen:
            raise Killed
        done = await super().call(method, path, **rest)
        if self.writes_left < 0:
            raise Killed
        return done


@pytest.mark.parametrize("unseen", [False, True], ids=["before", "after"])
async def test_killed_at_any_write_the_next_process_ends_where_the_plan_is(
    bench: Bench, api: ApiServer, configuration: Configuration, *, unseen: bool
) -> None:
    """Between any two writes, so also between apply and status."""
    mortal = Mortal(ApiClient(configuration), timeout_s=5.0)
    writes = 0
    while True:
        for path in (DEPLOYMENTS, CRON_JOBS, "v1/serviceaccounts", "v1/events"):
            for name in api.names(path):
                api.objects[path, "team", name].delete()
        api.store(QUEUES, "team", samples.body())
        bench.cache, bench.kube = Cache(), mortal
        bench.restarted()
        mortal.writes_left, mortal.unseen = writes, unseen
        try:
            await bench.round()
        except Killed:
            mortal.writes_left = 10**6
            bench.restarted()
            await bench.settle(3)
            assert_as_planned(api)
            assert bench.condition("Ready")[:2] == ("True", "Ready")
            writes += 1
        else:
            break
    await mortal.close()
    assert writes >= 8
