"""Random LeaseQueues against a real API server: refused with a message that names the field, or accepted with conditions set.

The operator never crashes, and no queue, however odd, makes it go round faster than its poll.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.operator.lab import CRD, Lab, cluster, eventually
from tests.operator.operating import Operating, account, conditions, login, namespace, node_postgres, rules

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.slow]

HOME, TEAM, PORT, PG_PORT = "ops", "random", 18095, 15433
BATCH, BATCHES, POLL_S = 24, 5, 2
TABLES = [f"t{n}" for n in range(BATCH)]
PATH = f"/apis/leasequeue.dev/v1alpha1/namespaces/{TEAM}/leasequeues"


def _paths(part: dict[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in part.get("properties", {}).items():
        yield (*prefix, name)
        yield from _paths(inner, (*prefix, name))


SCHEMA = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
FIELDS = sorted(_paths(SCHEMA))
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=40)
ODD = st.one_of(
    st.none(), st.booleans(), st.sampled_from([-1, 0, 1, 7, 2**31, 2**53, -(2**63), 10**30]), st.integers(-5, 2000),
    st.floats(allow_nan=False, allow_infinity=False), TEXT,
    st.sampled_from(["", " ", "30", "30s", "1e3", "٣٠", "*/90 * * * *", "@hourly", "a.b:c", "Europe/Berlin", "💥" * 20, "x" * 70_000]),
    st.lists(TEXT, max_size=3), st.dictionaries(TEXT, st.integers(-3, 3), max_size=3),
)  # fmt: skip
# Valid for the CRD, which leaves the template open; whether a pod can be made of it only the API server knows.
TEMPLATES = st.sampled_from([
    {"spec": {"terminationGracePeriodSeconds": "30"}},
    {"spec": {"containers": [{"name": "worker", "ports": [{"containerPort": "8080"}]}]}},
    {"spec": {"containers": [{"name": "worker", "env": [{"name": "A", "value": 1}]}]}},
    {"spec": {"containers": [{"name": "side", "image": 7}]}},
    {"spec": {"containers": "worker"}}, {"spec": {"containers": [{"image": "no-name"}]}},
    {"spec": {"volumes": [{"name": "Not_A_Name", "emptyDir": {}}]}}, {"spec": {"volumes": {"name": "v"}}},
    {"spec": {"nodeSelector": {"a": 1}}}, {"spec": {"tolerations": [{"operator": "Maybe"}]}},
    {"spec": {"noSuchField": True}}, {"spec": ["not", "an", "object"]}, {"spec": None}, {"metadata": "text"},
    {"metadata": {"labels": {"ключ": "значение"}}}, {"metadata": {"annotations": {"a": 5}}},
    {"metadata": {"annotations": {"big": "y" * 200_000}}}, {"metadata": {"labels": {"leasequeue.dev/queue-uid": "mine"}}},
    {"spec": {"priority": 10**12}}, {"spec": {"activeDeadlineSeconds": -1}}, {"spec": {"restartPolicy": "Never"}},
    {"spec": {"serviceAccountName": "default"}}, {"spec": {"hostNetwork": True}}, {"unknown": {"deep": [[[]]]}},
    {"spec": {"topologySpreadConstraints": [{"maxSkew": "1"}]}}, {"spec": {"securityContext": {"runAsUser": "root"}}},
])  # fmt: skip


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Changes of a valid spec: up to three fields, and at times an odd pod template."""
    changes = {draw(st.sampled_from(FIELDS)): draw(ODD) for _ in range(draw(st.integers(0, 3)))}
    if draw(st.booleans()):
        changes["worker", "podTemplate"] = draw(TEMPLATES)
    return {".".join(path): value for path, value in changes.items()}


def resource(n: int, changes: dict[str, Any]) -> dict[str, Any]:
    """The n-th LeaseQueue of a batch."""
    spec: dict[str, Any] = {
        "database": {"secretRef": {"name": "db"}, "table": TABLES[n]}, "worker": {"handler": "a.b:c"},
        "scaling": {"pollPeriodSeconds": POLL_S}, "reclaimer": {"suspend": True},
    }  # fmt: skip
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = spec
        for parent in parents:
            inner = place.get(parent)
            place[parent] = inner if isinstance(inner, dict) else {}
            place = place[parent]
        place[last] = value
    meta = {"name": f"q{n}", "namespace": TEAM}
    return {"apiVersion": "leasequeue.dev/v1alpha1", "kind": "LeaseQueue", "metadata": meta, "spec": spec}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with cluster("random") as made, node_postgres(made, PG_PORT, *TABLES) as uri:
        made.apply(namespace(HOME), namespace(TEAM))
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": TEAM}}
        made.apply({**secret, "stringData": {"uri": uri}}, *account(HOME, "operator", rules()))
        yield made


@pytest.fixture(scope="module")
def operator(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operating]:
    folder = tmp_path_factory.mktemp("random")
    made = Operating(lab, login(lab, HOME, "operator", folder), folder / "log", PORT)
    made.start()
    yield made
    assert made.stop() == 0


def names_a_field(message: str, changes: dict[str, Any]) -> bool:
    """Whether a refusal says which field it is about."""
    known = {part for path in FIELDS for part in path}
    return "spec" in message or "unknown field" in message or any(name in message for name in (known & set(message.split('"'))))


def told(lab: Lab) -> dict[str, dict[str, tuple[str, str, str]]]:
    """Conditions of all queues."""
    listed = yaml.safe_load(lab.kubectl("-n", TEAM, "get", "leasequeues", "-o", "json"))["items"]
    return {item["metadata"]["name"]: conditions(item) for item in listed}


@settings(max_examples=BATCHES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(specs(), min_size=BATCH, max_size=BATCH))
def check(lab: Lab, operator: Operating, batch: list[dict[str, Any]]) -> None:
    """One batch of queues, made and removed."""
    began, reconciled = time.monotonic(), operator.metric("leasequeue_reconcile_total")
    answers = lab.post_all([{"method": "POST", "path": PATH, "body": resource(n, spec)} for n, spec in enumerate(batch)])
    taken = 0
    for (status, message), changes in zip(answers, batch, strict=True):
        assert status in (200, 400, 413, 422), (status, message, changes)
        if status == 200:
            taken += 1
        else:
            assert names_a_field(message, changes), (message, changes)

    def all_told() -> bool:
        found = told(lab)
        return len(found) == taken and all(len(c) == len(next(iter(found.values()))) >= 11 for c in found.values())

    if taken:
        eventually("conditions of all", all_told, 60)
    time.sleep(3 * POLL_S)
    for name, found in told(lab).items():
        accepted, reason, message = found["Accepted"]
        changes = batch[int(name.removeprefix("q"))]
        assert accepted in ("True", "False"), (found, changes)
        if accepted == "False":
            assert reason == "Conflict" or "spec." in message or " q" in message, (reason, message, changes)
    rounds = operator.metric("leasequeue_reconcile_total") - reconciled
    # A change of the queue or a child brings a round of its own; a dozen of them come with the birth of a queue.
    assert rounds <= taken * ((time.monotonic() - began) / 1.0 + 20), (rounds, taken)
    assert operator.metric('leasequeue_reconcile_total{outcome="crashed"}') == 0
    assert "reconcile_crashed" not in operator.log(), operator.log()[-4000:]
    assert operator.answer("/healthz")[0] == 200
    lab.kubectl("-n", TEAM, "delete", "leasequeues", "--all", "--timeout=60s")


def test_random_queues_are_refused_by_field_or_accepted_with_conditions(lab: Lab, operator: Operating) -> None:
    check(lab, operator)
    eventually("their series are gone", lambda: f'queue_namespace="{TEAM}"' not in operator.answer("/metrics")[1], 60)
