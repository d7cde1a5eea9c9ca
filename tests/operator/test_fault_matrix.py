"""Every kind of call × every fault: afterwards the state equals the plan. What happened is written to build/fault-matrix.md."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kubernetes.aio.client import Configuration

from leasequeue_operator import app
from leasequeue_operator.kube import Kube
from leasequeue_operator.plan import podmonitor
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import read_queue
from leasequeue_operator.rights import ELECTION, single_rights
from tests.operator import faultmatrix, samples
from tests.operator.apiserver import REVIEWS, ApiServer, Fault, used_right
from tests.operator.faultmatrix import FAULTS, Row
from tests.operator.test_app import QUEUES, get, reason, running, until
from tests.operator.test_faults import (
    CRON_JOBS,
    DEPLOYMENTS,
    KEY,
    Bench,
    assert_as_planned,
    bench,
    part_of,
)  # fmt: skip
from tests.operator.test_shrink import Fleet, fleet, four_workers

__all__ = ["bench", "fleet"]

HEALTHY = {"Accepted": ("True", "Accepted"), "DatabaseReachable": ("True", "Connected")}
APPLY, JSON_PATCH = "apply-patch", "json-patch"


@pytest.fixture(scope="module", autouse=True)
def _written() -> Iterator[None]:
    yield
    faultmatrix.write()


@dataclass(frozen=True)
class Call:
    """A kind of call, the path on which it is met, and what brings it about.

    Args:
        verb: as in the rights.
        resource: likewise.
        method, path, content: of the HTTP call.
        prepare: name of the function of this module that leads to it.
    """

    verb: str
    resource: str
    method: str
    path: str
    content: str = ""
    prepare: str = "fresh"

    @property
    def name(self) -> str:
        """As the table shows it."""
        content = {APPLY: " (apply)", JSON_PATCH: " (take over the fields)"}.get(self.content, "")
        return f"{self.verb} {self.resource}{content}"


async def fresh(bench: Bench) -> None:
    """Nothing is there yet."""


async def known(bench: Bench) -> None:
    """Everything is there, made by another process, and found by name alone."""
    await bench.settle(3)
    for path, name in ((DEPLOYMENTS, "orders-worker"), (CRON_JOBS, "orders-reclaimer")):
        bench.api.objects[path, "team", name].patch({"metadata": {"labels": None, "resourceVersion": "9000"}})
        bench.cache.drop("Deployment" if path == DEPLOYMENTS else "CronJob", bench.api.stored(path, "team", name) or {})
    bench.restarted()
    bench.reconciler.monitor = True


async def grown(bench: Bench) -> None:
    """More workers are wanted than there are."""
    bench.database.view = samples.view(pending=3)
    await bench.settle(2)
    bench.database.view = samples.view(pending=3, assigned=900)


async def to_adopt(bench: Bench) -> None:
    """The table has to be adopted first."""
    adopt = {"manageSchema": "Adopt", "confirmTable": "public.jobs"}
    bench.api.objects[QUEUES, *KEY].patch({"spec": {"database": adopt}})
    bench.database.view = replace(samples.view(), unready=Problem("NotAdopted", "x"), stats=None)


CALLS = [
    Call("get", "secrets", "GET", "/secrets/db$"),
    Call("create", "serviceaccounts", "POST", "/serviceaccounts$"),
    Call("get", "serviceaccounts", "GET", "/serviceaccounts/orders-leasequeue$", prepare="known"),
    Call("patch", "serviceaccounts", "PATCH", "/serviceaccounts/orders-leasequeue$", JSON_PATCH),
    Call("patch", "serviceaccounts", "PATCH", "/serviceaccounts/orders-leasequeue$", APPLY),
    Call("create", "deployments", "POST", "/deployments$"),
    Call("get", "deployments", "GET", "/deployments/orders-worker$", prepare="known"),
    Call("patch", "deployments", "PATCH", "/deployments/orders-worker$", JSON_PATCH),
    Call("patch", "deployments", "PATCH", "/deployments/orders-worker$", APPLY),
    Call("patch", "deployments/scale", "PATCH", "/deployments/orders-worker/scale$", prepare="grown"),
    Call("create", "cronjobs", "POST", "/cronjobs$"),
    Call("get", "cronjobs", "GET", "/cronjobs/orders-reclaimer$", prepare="known"),
    Call("patch", "cronjobs", "PATCH", "/cronjobs/orders-reclaimer$", JSON_PATCH),
    Call("patch", "cronjobs", "PATCH", "/cronjobs/orders-reclaimer$", APPLY),
    Call("create", "jobs", "POST", "/jobs$", prepare="to_adopt"),
    Call("get", "jobs", "GET", "/jobs/.+$", prepare="to_adopt"),
    Call("create", "podmonitors", "POST", "/podmonitors$"),
    Call("get", "podmonitors", "GET", "/podmonitors/orders-worker$", prepare="known"),
    Call("patch", "podmonitors", "PATCH", "/podmonitors/orders-worker$", APPLY),
    Call("patch", "leasequeues/status", "PATCH", "/leasequeues/orders/status$"),
    Call("create", "events", "POST", "/events$"),
    *(
        Call("list", plural, "GET", f"/{plural}$")
        for plural in ("leasequeues", "deployments", "cronjobs", "jobs", "pods", "horizontalpodautoscalers")
    ),
]
CELLS = list(itertools.product(CALLS, FAULTS))


def cell_name(cell: tuple[Call, int | str]) -> str:
    return f"{cell[0].name} {cell[1]}"


def test_every_right_that_is_used_is_in_the_matrix() -> None:
    watches = {(verb, right.resource) for right, verb in single_rights() if verb == "watch"}
    elsewhere = watches | {("patch", "pods")} | {(verb, ELECTION.resource) for verb in ELECTION.verbs}
    covered = {(call.verb, call.resource) for call in CALLS}
    assert covered | elsewhere == {(v, r.resource) for r, v in single_rights()} | {
        (v, ELECTION.resource) for v in ELECTION.verbs
    }
    for call in CALLS:
        path = "/api/v1/namespaces/team" + call.path.rstrip("$").replace(".+", "x")
        assert used_right(call.method, path) == (call.verb, call.resource)


async def play(bench: Bench, rounds: int, seen: list[str]) -> set[str]:
    """Rounds of an hour that is out of order; what was told meanwhile."""
    told: set[str] = set()
    for _ in range(rounds):
        ex = await bench.round(after_s=61)
        seen.append("tries again with a back-off" if ex is not None else "goes on")
        status = (bench.api.stored(QUEUES, *KEY) or {}).get("status") or {}
        for c in status.get("conditions", ()):
            if c["type"] in HEALTHY and (c["status"], c["reason"]) != HEALTHY[c["type"]]:
                told.add(f"{c['type']}={c['status']} {c['reason']}")
    return told


@pytest.mark.parametrize("cell", CELLS, ids=[cell_name(cell) for cell in CELLS])
async def test_a_fault_heals(bench: Bench, cell: tuple[Call, int | str]) -> None:
    call, kind = cell
    bench.reconciler.monitor = True
    bench.database.view = samples.view(pending=3, assigned=900)  # so that there is an event to be posted
    await PREPARE[call.prepare](bench)
    if call.verb == "get" and call.resource == "jobs":  # its name is taken by the time it is made
        bench.api.faults.append(Fault("POST", "/jobs$", "lost"))
    bench.api.hit = 0
    fault = Fault(call.method, call.path, kind, 1 if kind == "hang" else 2, call.content, watch=False)
    bench.api.faults.append(fault)
    seen: list[str] = []
    told = await play(bench, 2, seen)
    if call.prepare == "to_adopt":
        told |= await play(bench, 2, seen)
        assert len(bench.api.names("batch/v1/jobs")) == 1
        bench.database.view = samples.view(pending=3, assigned=900)
    await play(bench, 5, [])
    met = bench.api.hit
    assert met >= 1, "the fault was never met"
    assert_as_planned(bench.api, replicas=10)
    monitor = podmonitor.build(read_queue(samples.body()))
    assert part_of(monitor, bench.api.stored("monitoring.coreos.com/v1/podmonitors", "team", monitor["metadata"]["name"]))
    assert bench.condition("Ready")[:2] == ("True", "Ready")
    events = {f"{o.raw['type']} {o.raw['reason']}" for (r, _, _), o in bench.api.objects.items() if r.plural == "events"}
    did = ", ".join(dict.fromkeys(seen)) if len(set(seen)) > 1 else seen[0]
    text = "; ".join([*sorted(told), *(f"event {e}" for e in sorted(events) if e.startswith("Warning"))]) or "nothing"
    faultmatrix.rows.append(Row(call.name, kind, met, did, text, "as planned"))


PREPARE: dict[str, Callable[[Bench], Any]] = {"fresh": fresh, "known": known, "grown": grown, "to_adopt": to_adopt}


# 404 is no fault of this call: it says that the pod is gone already.
@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind != 404])
async def test_a_fault_of_the_deletion_cost_ends_no_work(fleet: Fleet, kind: int | str) -> None:
    await four_workers(fleet)
    fault = Fault("PATCH", "/pods/", kind, 1 if kind == "hang" else 2)
    fleet.api.faults.append(fault)
    fleet.kube._timeout = replace_total(fleet.kube, 1.0 if kind == "hang" else 20.0)
    faults = [await fleet.look() for _ in range(30)]
    assert fault.times == 0
    assert fleet.replicas == 2
    assert fleet.api.names("v1/pods") == ["p1", "p3"]
    assert fleet.ended_busy == []
    did = "tries again with a back-off" if any(faults) else "goes on"
    faultmatrix.rows.append(Row("patch pods", kind, 2, did, "nothing", "as planned; no work ended"))


def replace_total(kube: Kube, seconds: float) -> Any:
    return type(kube._timeout)(total=seconds)


WATCHED = "(leasequeues|deployments|cronjobs|jobs|pods)$"


@pytest.mark.parametrize("kind", FAULTS)
async def test_a_fault_of_the_watches_heals(api: ApiServer, configuration: Configuration, kind: int | str) -> None:
    api.store(QUEUES, "team", samples.body())
    fault = Fault("GET", WATCHED, kind, 5 if kind == "hang" else 10, watch=True)
    api.faults.append(fault)
    async with running(configuration, watch_timeout_s=10) as operator:
        await until("served", lambda: reason(api, "orders") == "SecretNotFound", 90)
        await until("met", lambda: api.hit >= 5, 90)
        api.store(QUEUES, "team", samples.body("silent", uid="u-silent"))  # no watch tells of it
        await until("seen", lambda: reason(api, "silent") == "SecretNotFound", 90)
        assert (await get(operator, "/healthz"))[0] == 200
    faultmatrix.rows.append(
        Row("watch (all kinds)", kind, api.hit, "lists every `resync_s` make up for it", "log", "as planned")
    )


STARTING = [
    ("create selfsubjectaccessreviews", "POST", REVIEWS.rsplit("/", 1)[-1] + "$"),
    ("get /apis/monitoring.coreos.com/v1", "GET", "/apis/monitoring.coreos.com/v1$"),
    ("get leases", "GET", "/leases/leasequeue-operator$"),
    ("create leases", "POST", "/leases$"),
    ("patch leases", "PATCH", "/leases/leasequeue-operator$"),
]


@pytest.mark.parametrize(
    ("name", "method", "path", "kind"),
    [(*call, kind) for call, kind in itertools.product(STARTING, FAULTS)],
    ids=[f"{call[0]} {kind}" for call, kind in itertools.product(STARTING, FAULTS)],
)
async def test_a_fault_at_the_start_heals(
    api: ApiServer,
    configuration: Configuration,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    method: str,
    path: str,
    kind: int | str,
) -> None:
    monkeypatch.setattr(app, "START_RETRY_S", 0.2)
    api.store(QUEUES, "team", samples.body())
    api.faults.append(Fault(method, path, kind, times=1 if kind == "hang" else 2))
    elected = {"leader_election": True, "lease_namespace": "system", "lease_duration_s": 5} if "leases" in name else {}
    with contextlib.suppress(asyncio.CancelledError):
        async with running(configuration, request_timeout_s=1, **elected) as operator:
            await until("served", lambda: reason(api, "orders") == "SecretNotFound")
            await until("met", lambda: api.hit >= 1)
            assert (await get(operator, "/readyz"))[0] == 200
    faultmatrix.rows.append(Row(name, kind, api.hit, "waits and asks again", "/readyz and log", "as planned"))
