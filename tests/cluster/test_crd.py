"""Every rule and bound of the CRD against a real API server: a case that is taken and one that is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from leasequeue.config import SETTINGS
from tests.operator.lab import Lab, cluster
from tests.operator.samples import merged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PATH = "/apis/leasequeue.dev/v1alpha1/namespaces/default/leasequeues"
LEAST: dict[str, Any] = {
    "database": {"secretRef": {"name": "db"}, "table": "jobs"},
    "worker": {"handler": "pkg.mod:fn"},
}


def at(path: str, value: Any) -> dict[str, Any]:
    """A spec with one value at a dotted path."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


def bounds(path: str, low: int, high: int) -> list[tuple[dict[str, Any], str | None]]:
    """Both ends are taken, both neighbours are refused with the field named."""
    taken: list[tuple[dict[str, Any], str | None]] = [(at(path, low), None), (at(path, high), None)]
    return [*taken, (at(path, low - 1), f"spec.{path}"), (at(path, high + 1), f"spec.{path}")]


def schedule(**values: Any) -> dict[str, Any]:
    plain = {"name": "office", "start": "0 8 * * *", "end": "0 18 * * *", "minReplicas": 1}
    plain.update(values)
    return at("scaling.schedules", [{k: v for k, v in plain.items() if v is not None}])


NO_HANDLER: dict[str, Any] = {"handler": None}
CASES: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    *itertools.chain.from_iterable(bounds(s.cr, s.low, s.high) for s in SETTINGS.values()),
    *bounds("worker.concurrency", 1, 256),
    *bounds("worker.maxRuntimeSeconds", 1, 604800),
    *bounds("worker.terminationGracePeriodSeconds", 5, 86400),
    *bounds("scaling.pollPeriodSeconds", 1, 300),
    *bounds("scaling.drainTargetSeconds", 1, 86400),
    *bounds("scaling.latencyTargetSeconds", 1, 86400),
    *bounds("scaling.scaleDownStabilizationSeconds", 0, 3600),
    *bounds("replicas", 0, 1000),
    *bounds("reclaimer.sweepIntervalSeconds", 0, 60),
    *bounds("reclaimer.retention.resolvedAfterSeconds", 60, 3155760000),
    *bounds("alerts.oldestPendingSeconds", 1, 31536000),
    # values of the wrong kind are refused, never taken and ignored
    (at("lease.lockTimeoutMs", "30s"), "spec.lease.lockTimeoutMs"),
    (at("lease.lockTimeoutMs", "1e3"), "spec.lease.lockTimeoutMs"),
    (at("lease.lockTimeoutMs", " 30"), "spec.lease.lockTimeoutMs"),
    (at("suspend", "yes"), "spec.suspend"),
    (at("database.secretRef.namespace", "kube-system"), "unknown field"),
    (at("lease.leaseSeconds", 5), "unknown field"),
    # names: any characters, at most 63 bytes
    (at("database.table", 'my "odd" $(HOME) 50%_täble'), None),
    (at("database.table", "x" * 63), None),
    (at("database.table", "x" * 64), "spec.database.table"),
    (at("database.table", "ä" * 31), None),
    (at("database.table", "ä" * 32), "longer than 63 bytes"),
    (at("database.schema", "ä" * 32), "longer than 63 bytes"),
    (at("database.table", ""), "spec.database.table"),
    (at("database.table", None), "spec.database.table"),
    (at("database.secretRef", {"name": "Not_A_Name"}), "spec.database.secretRef.name"),
    (at("database.secretRef", {"name": "db", "key": "a/b"}), "spec.database.secretRef.key"),
    # TLS
    (at("database.sslMode", "require"), None),
    (at("database.sslMode", "prefer"), "spec.database.sslMode"),
    (at("database.sslMode", "disable"), "spec.database.sslMode"),
    (at("database", {"sslMode": "verify-full", "caSecretRef": {"name": "ca"}}), None),
    (at("database", {"sslMode": "verify-ca", "caSecretRef": {"name": "ca", "key": "root.pem"}}), None),
    (at("database", {"sslMode": "verify-full", "systemCA": True}), None),
    (at("database", {"caSecretRef": {"name": "ca"}}), None),
    (at("database", {"systemCA": True}), None),
    (at("database.sslMode", "verify-full"), "need to know whom to trust"),
    (at("database", {"sslMode": "verify-ca", "systemCA": False}), "need to know whom to trust"),
    (at("database", {"sslMode": "verify-ca", "systemCA": True}), "must be verify-full with systemCA"),
    (at("database", {"sslMode": "require", "caSecretRef": {"name": "ca"}}), "require checks no certificate"),
    (at("database", {"systemCA": True, "caSecretRef": {"name": "ca"}}), "exclude each other"),
    (at("database", {"systemCA": False, "caSecretRef": {"name": "ca"}}), None),
    (at("database.caSecretRef", {"name": "ca", "namespace": "kube-system"}), "unknown field"),
    (at("database.caSecretRef", {"name": "ca", "key": "a/b"}), "spec.database.caSecretRef.key"),
    (at("database.schemaSecretRef", {"name": "db", "namespace": "kube-system"}), "unknown field"),
    # confirmTable
    (at("database", {"manageSchema": "Adopt", "confirmTable": "public.jobs"}), None),
    (at("database", {"manageSchema": "Create", "schema": "s", "confirmTable": "s.jobs"}), None),
    (at("database", {"manageSchema": "Adopt"}), "database.confirmTable must repeat"),
    (at("database", {"manageSchema": "Create", "confirmTable": "jobs"}), "database.confirmTable must repeat"),
    (at("database", {"manageSchema": "Verify", "confirmTable": "whatever"}), None),
    (at("database.manageSchema", "Drop"), "spec.database.manageSchema"),
    # one handler
    (at("worker", {**NO_HANDLER, "exec": {"command": ["./run"]}}), None),
    (at("worker", {**NO_HANDLER, "http": {"url": "https://svc.example/x"}}), None),
    (at("worker", NO_HANDLER), "exactly one of handler, exec and http"),
    (at("worker.exec", {"command": ["./run"]}), "exactly one of handler, exec and http"),
    (at("worker", {**NO_HANDLER, "exec": {"command": []}}), "spec.worker.exec.command"),
    (at("worker", {**NO_HANDLER, "http": {"url": "ftp://x"}}), "spec.worker.http.url"),
    (at("worker.handler", "no colon"), "spec.worker.handler"),
    (at("worker.handler", "a.b:C.method"), None),
    (at("worker.isolation", "process"), None),
    (at("worker", {**NO_HANDLER, "exec": {"command": ["x"]}, "isolation": "process"}), "isolation process is for handler"),
    (at("worker.image", "has space"), "spec.worker.image"),
    (at("worker.lanes", ["a", "b"]), None),
    (at("worker.lanes", ["a", "a"]), "Duplicate"),
    (at("worker.env", [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "x"}}}]), None),
    (at("worker.env", [{"name": "LEASEQUEUE_TABLE", "value": "x"}]), "begin with LEASEQUEUE_"),
    (at("worker.env", [{"name": "A"}, {"name": "A"}]), "Duplicate"),
    (at("worker.resources", {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": "500m"}}), None),
    (at("worker.podTemplate", {"spec": {"nodeSelector": {"a": "b"}}}), None),
    # ordered pairs
    (at("scaling", {"minReplicas": 3, "maxReplicas": 3}), None),
    (at("scaling", {"minReplicas": 4, "maxReplicas": 3}), "minReplicas must not be above scaling.maxReplicas"),
    (at("scaling", {"minReplicas": 11}), "minReplicas must not be above scaling.maxReplicas"),
    (at("scaling", {"minReplicas": 1000, "maxReplicas": 1000}), None),
    (at("scaling", {"maxReplicas": 0}), "spec.scaling.maxReplicas"),
    (at("scaling", {"maxReplicas": 1001}), "spec.scaling.maxReplicas"),
    (at("scaling", {"minReplicas": -1}), "spec.scaling.minReplicas"),
    (at("scaling.mode", "Sometimes"), "spec.scaling.mode"),
    (at("alerts", {"inflightWarningPercent": 95, "inflightCriticalPercent": 95}), None),
    (at("alerts", {"inflightWarningPercent": 96}), "inflightWarningPercent must not be above"),
    (at("alerts", {"inflightWarningPercent": 1, "inflightCriticalPercent": 100}), None),
    (at("alerts", {"inflightCriticalPercent": 101}), "spec.alerts.inflightCriticalPercent"),
    (at("alerts", {"inflightWarningPercent": 0}), "spec.alerts.inflightWarningPercent"),
    # schedules
    (schedule(), None),
    (schedule(minReplicas=None, maxReplicas=0), None),
    (schedule(minReplicas=None), "a schedule needs minReplicas, maxReplicas, or both"),
    (schedule(minReplicas=5, maxReplicas=4), "minReplicas must not be above maxReplicas"),
    (schedule(start="0 8 * *"), "start"),
    (schedule(timeZone="bad zone"), "timeZone"),
    (schedule(name="Bad Name"), "name"),
    (at("reclaimer.schedule", "*/5 * * * *"), None),
    (at("reclaimer.schedule", "@hourly"), None),
    (at("reclaimer.schedule", "every minute"), "spec.reclaimer.schedule"),
    (at("lease.maxInflightPolicy", "Enforce"), None),
    (at("lease.maxInflightPolicy", "Maybe"), "spec.lease.maxInflightPolicy"),
    (at("lease.lanes", {"strict": True, "onBlockedHead": "Pass"}), None),
    (at("lease.lanes", {"onBlockedHead": "Jump"}), "spec.lease.lanes.onBlockedHead"),
]
# Changes of an existing queue.
CHANGES: list[tuple[dict[str, Any], str | None]] = [
    (at("database.table", "other"), "database.table cannot change"),
    (at("database.schema", "other"), "database.schema cannot change"),
    (at("database.secretRef.name", "other"), None),
    (at("worker.handler", "other.mod:fn"), None),
    (at("lease.maxInflight", 500), None),
    ({"replicas": 5}, None),
    ({"suspend": True}, None),
]


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_none(v) for k, v in value.items() if v is not None}
    return value


def resource(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "leasequeue.dev/v1alpha1", "kind": "LeaseQueue",
        "metadata": {"name": name, "namespace": "default"}, "spec": without_none(merged(LEAST, spec)),
    }  # fmt: skip


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with cluster("crd") as made:
        yield made


@pytest.fixture(scope="module")
def created(lab: Lab) -> list[tuple[int, str]]:
    dry = {"dryRun": "All", "fieldValidation": "Strict"}
    return lab.post_all(
        [{"method": "POST", "path": PATH, "query": dry, "body": resource(f"q{n}", spec)} for n, (spec, _) in enumerate(CASES)]
    )


@pytest.fixture(scope="module")
def changed(lab: Lab) -> list[tuple[int, str]]:
    merge = {"method": "PATCH", "path": f"{PATH}/kept", "content_type": "application/merge-patch+json"}
    answers = lab.post_all(
        [
            {"method": "POST", "path": PATH, "body": resource("kept", {})},
            *({**merge, "query": {"dryRun": "All"}, "body": {"spec": change}} for change, _ in CHANGES),
        ]
    )
    assert answers[0][0] == 200
    return answers[1:]


def judge(answer: tuple[int, str], fault: str | None) -> None:
    status, message = answer
    if fault is None:
        assert status == 200, message
    else:
        assert status in (400, 422), message or "taken"
        assert fault in message


@pytest.mark.parametrize("n", range(len(CASES)), ids=lambda n: f"{n}-{CASES[n][0]}"[:80])
def test_a_new_queue(created: list[tuple[int, str]], n: int) -> None:
    judge(created[n], CASES[n][1])


@pytest.mark.parametrize("n", range(len(CHANGES)), ids=lambda n: f"{n}-{CHANGES[n][0]}")
def test_a_change_of_a_queue(changed: list[tuple[int, str]], n: int) -> None:
    judge(changed[n], CHANGES[n][1])


def test_every_default_is_filled_in(lab: Lab, changed: list[tuple[int, str]]) -> None:
    assert len(changed) == len(CHANGES)
    found = lab.get("default", "leasequeue", "kept")
    assert found is not None
    spec = found["spec"]
    for setting in SETTINGS.values():
        section, _, name = setting.cr.rpartition(".")
        assert spec[section][name] == setting.default
    assert spec["scaling"] == {
        "mode": "Auto", "minReplicas": 0, "maxReplicas": 10, "pollPeriodSeconds": 5, "drainTargetSeconds": 120,
        "scaleDownStabilizationSeconds": 30,
    }  # fmt: skip
    assert spec["alerts"] == {"inflightWarningPercent": 80, "inflightCriticalPercent": 95, "oldestPendingSeconds": 600}
    assert (spec["replicas"], spec["suspend"]) == (1, False)


def test_short_name_category_and_scale(lab: Lab, changed: list[tuple[int, str]]) -> None:
    assert len(changed) == len(CHANGES)
    assert "kept" in lab.kubectl("get", "lq", "-o", "name")
    assert "kept" in lab.kubectl("get", "leasequeue", "-o", "name")
    lab.kubectl("scale", "lq/kept", "--replicas=4")
    found = lab.get("default", "leasequeue", "kept")
    assert found is not None
    assert found["spec"]["replicas"] == 4


def test_the_table_names_its_columns(lab: Lab, changed: list[tuple[int, str]]) -> None:
    assert len(changed) == len(CHANGES)
    header = lab.kubectl("get", "lq").splitlines()[0].split()
    assert header == [
        "NAME", "READY", "STATE", "DESIRED", "WORKERS", "PENDING", "ASSIGNED", "MAX", "OLDEST", "RECLAIMED", "AGE",
    ]  # fmt: skip
    assert "MESSAGE" in lab.kubectl("get", "lq", "-o", "wide").splitlines()[0]
