"""The operator as a process against a real API server, PostgreSQL, and kubelet, with no right beyond `rights.py`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasequeue_operator.rights import RIGHTS
from tests.operator.lab import ROOT, Lab, cluster, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.slow]

PORT = "18081"
DSN = "host=pg.db.svc user=postgres password=word dbname=postgres"


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def postgres() -> list[dict[str, Any]]:
    container = {
        "name": "pg",
        "image": "leasequeue-postgres:dev",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "POSTGRES_PASSWORD", "value": "word"}],
        "readinessProbe": {"tcpSocket": {"port": 5432}, "periodSeconds": 1},
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/postgresql/data"}],
    }
    template = {
        "metadata": {"labels": {"app": "pg"}},
        "spec": {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]},
    }
    return [
        namespace("db"),
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pg", "namespace": "db"},
            "spec": {"selector": {"matchLabels": {"app": "pg"}}, "template": template},
        },
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "pg", "namespace": "db"},
            "spec": {"selector": {"app": "pg"}, "ports": [{"port": 5432}]},
        },
    ]  # fmt: skip


def account() -> list[dict[str, Any]]:
    """A ServiceAccount with the operator's rights and no other."""
    rules = [{"apiGroups": [r.group], "resources": [r.resource], "verbs": list(r.verbs)} for r in RIGHTS]
    meta = {"name": "operator-under-test"}
    subject = {"kind": "ServiceAccount", "name": meta["name"], "namespace": "db"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": meta["name"]}
    group = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**meta, "namespace": "db"}},
        {"apiVersion": group, "kind": "ClusterRole", "metadata": meta, "rules": rules},
        {"apiVersion": group, "kind": "ClusterRoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]},
    ]


class Process:
    """The operator, started and stopped by the test."""

    def __init__(self, lab: Lab, kubeconfig: Path, log: Path) -> None:
        self._lab, self._kubeconfig, self._log = lab, kubeconfig, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = str(Path(sys.executable).parent / "leasequeue-operator")
        images = ["--worker-image", "leasequeue-worker:dev", "--reclaimer-image", "leasequeue-reclaimer:dev"]
        command = ["env", f"KUBECONFIG={self._kubeconfig}", program, "--http-port", PORT, "--resync-s", "10", *images]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._lab.command(*command), stdout=log, stderr=log, cwd=ROOT)
        eventually("operator ready", lambda: self.get("/readyz").returncode == 0, 60)

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def get(self, path: str) -> subprocess.CompletedProcess[str]:
        read = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{PORT}{path}', timeout=5).read().decode())"
        return self._lab.run(sys.executable, "-c", read, check=False)

    def log(self) -> str:
        return self._log.read_text(errors="replace")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with cluster("operator", "worker", "reclaimer", "postgres") as made:
        made.apply(*postgres(), *account())
        made.kubectl("-n", "db", "rollout", "status", "deployment/pg", "--timeout=120s")
        yield made


@pytest.fixture(scope="module")
def process(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("operator")
    token = lab.kubectl("-n", "db", "create", "token", "operator-under-test", "--duration=2h").strip()
    config = json.loads(lab.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    made = Process(lab, kubeconfig, folder / "operator.log")
    made.start()
    yield made
    made.stop()
    text = made.log()
    assert "reconcile_crashed" not in text, text[-4000:]
    assert "word" not in text.replace("password", ""), "the log shows the password"


@pytest.fixture
def team(lab: Lab, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, with the Secret of the database."""
    name = request.node.name.replace("_", "-").removeprefix("test-")[:50].strip("-")
    parts = {"host": "pg.db.svc", "port": "5432", "user": "postgres", "password": "word", "dbname": "postgres"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": name}, "stringData": parts}
    lab.apply(namespace(name), secret)
    yield name
    lab.kubectl("delete", "namespace", name, "--wait=false")


def queue(team: str, table: str, **spec: Any) -> dict[str, Any]:
    """A LeaseQueue that makes its table, polls each second and shrinks soon."""
    database = {
        "secretRef": {"name": "db"}, "table": table, "manageSchema": "Create", "confirmTable": f"public.{table}",
    }  # fmt: skip
    plain: dict[str, Any] = {
        "database": database,
        "worker": {"handler": "tests.support.handlers:nothing", "terminationGracePeriodSeconds": 5},
        "scaling": {"pollPeriodSeconds": 1, "scaleDownStabilizationSeconds": 5, "maxReplicas": 3},
    }
    return {
        "apiVersion": "leasequeue.dev/v1alpha1", "kind": "LeaseQueue",
        "metadata": {"name": "q", "namespace": team}, "spec": {**plain, **spec},
    }  # fmt: skip


def condition(lab: Lab, team: str, kind: str) -> tuple[str, str, str]:
    found = lab.get(team, "leasequeue", "q") or {}
    told = {c["type"]: c for c in (found.get("status") or {}).get("conditions", ())}
    c = told.get(kind, {})
    return c.get("status", ""), c.get("reason", ""), c.get("message", "")


def becomes(lab: Lab, team: str, kind: str, status: str, reason: str, within_s: float = 60) -> str:
    def is_so() -> bool:
        return condition(lab, team, kind)[:2] == (status, reason)

    eventually(f"{kind} {status} {reason}, now {condition(lab, team, kind)}", is_so, within_s)
    return condition(lab, team, kind)[2]


def run_sql(lab: Lab, statement: str) -> None:
    code = "import psycopg, sys; psycopg.connect(sys.argv[1], autocommit=True).execute(sys.argv[2])"
    lab.run(sys.executable, "-c", code, DSN, statement)


def workers(lab: Lab, team: str) -> dict[str, Any]:
    found = lab.get(team, "deployment", "q-worker")
    assert found is not None
    return found


def test_a_queue_comes_about_and_goes_away(lab: Lab, process: Process, team: str) -> None:
    lab.apply(queue(team, "whole"))
    becomes(lab, team, "SchemaReady", "True", "Adopted", 120)
    becomes(lab, team, "Ready", "True", "Ready", 120)
    for kind, name in (("deployment", "q-worker"), ("cronjob", "q-reclaimer"), ("serviceaccount", "q-leasequeue")):
        child = lab.get(team, kind, name)
        assert child is not None
        assert child["metadata"]["ownerReferences"][0]["name"] == "q"
    meta = (lab.get(team, "leasequeue", "q") or {})["metadata"]
    assert not meta.get("finalizers")
    assert not meta.get("annotations")
    assert f'queue_namespace="{team}"' in process.get("/metrics").stdout
    lab.kubectl("-n", team, "delete", "lq", "q", "--timeout=30s")
    eventually("children gone", lambda: lab.get(team, "deployment", "q-worker") is None, 60)
    eventually("series gone", lambda: f'queue_namespace="{team}"' not in process.get("/metrics").stdout, 60)


def test_workers_from_zero_up_and_back(lab: Lab, process: Process, team: str) -> None:
    # A handler that does not exist: what matters here is the number of pods, which start all the same.
    lab.apply(queue(team, "updown"))
    becomes(lab, team, "Ready", "True", "Ready", 120)
    assert workers(lab, team)["spec"]["replicas"] == 0
    run_sql(lab, "INSERT INTO updown (state) SELECT 'PENDING' FROM generate_series(1, 50)")
    eventually("three pods", lambda: workers(lab, team)["spec"]["replicas"] == 3, 30)
    message = becomes(lab, team, "ScalingLimited", "True", "MaxReplicas")
    assert "scaling.maxReplicas" in message
    run_sql(lab, "DELETE FROM updown")
    eventually("none", lambda: workers(lab, team)["spec"]["replicas"] == 0, 90)
    told = lab.kubectl("-n", team, "get", "events", "--field-selector=reason=Scaled", "-o", "jsonpath={.items[*].message}")
    assert "0 → 3" in told


def test_a_new_template_rolls_and_a_field_that_goes_is_removed(lab: Lab, process: Process, team: str) -> None:
    lab.apply(queue(team, "rolls", scaling={"mode": "Manual"}, replicas=0))
    becomes(lab, team, "Ready", "True", "Ready", 120)
    overlay = {"podTemplate": {"metadata": {"annotations": {"mark": "1"}}}, "env": [{"name": "EXTRA", "value": "1"}]}
    lab.patch(team, "lq", "q", {"spec": {"worker": overlay, "replicas": 2}})

    def template() -> dict[str, Any]:
        return dict(workers(lab, team)["spec"]["template"])

    eventually("annotation", lambda: template()["metadata"]["annotations"].get("mark") == "1", 30)
    eventually("two", lambda: workers(lab, team)["spec"]["replicas"] == 2, 30)
    lab.patch(team, "lq", "q", {"spec": {"worker": {"podTemplate": None, "env": None}}})
    eventually("annotation gone", lambda: "mark" not in template()["metadata"]["annotations"], 30)
    assert "EXTRA" not in [e["name"] for e in template()["spec"]["containers"][0]["env"]]
    assert workers(lab, team)["spec"]["replicas"] == 2


def test_a_restart_of_the_operator_rolls_nothing(lab: Lab, process: Process, team: str) -> None:
    lab.apply(queue(team, "restarts"))
    becomes(lab, team, "Ready", "True", "Ready", 120)
    before = {kind: (lab.get(team, kind, name) or {})["metadata"]["generation"] for kind, name in CHILDREN}
    assert process.stop() == 0
    process.start()
    run_sql(lab, "INSERT INTO restarts (state) VALUES ('REPAIR')")
    lab.patch(team, "lq", "q", {"spec": {"alerts": {"oldestPendingSeconds": 60}}})

    def observed() -> bool:
        found = lab.get(team, "leasequeue", "q") or {}
        return bool(found["status"]["observedGeneration"] == found["metadata"]["generation"])

    eventually("seen by the new process", observed, 60)
    after = {kind: (lab.get(team, kind, name) or {})["metadata"]["generation"] for kind, name in CHILDREN}
    assert after == before


CHILDREN = (("deployment", "q-worker"), ("cronjob", "q-reclaimer"))


def test_a_secret_that_comes_later_and_one_that_is_wrong(lab: Lab, process: Process, team: str) -> None:
    lab.kubectl("-n", team, "delete", "secret", "db")
    lab.apply(queue(team, "secrets"))
    assert "Secret db" in becomes(lab, team, "Ready", "False", "SecretNotFound")
    good = {"host": "pg.db.svc", "port": "5432", "user": "postgres", "password": "word", "dbname": "postgres"}
    wrong = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": team}}
    lab.apply({**wrong, "stringData": {**good, "password": "no"}})
    becomes(lab, team, "Ready", "False", "AuthenticationFailed")
    lab.apply({**wrong, "stringData": good})
    becomes(lab, team, "Ready", "True", "Ready", 120)


def test_a_foreign_deployment_of_the_same_name_is_left_alone(lab: Lab, process: Process, team: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x", "image": "leasequeue-worker:dev"}]}}
    theirs = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "q-worker", "namespace": team},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }  # fmt: skip
    lab.apply(theirs)
    before = workers(lab, team)
    lab.apply(queue(team, "foreign"))
    assert "Deployment q-worker" in becomes(lab, team, "Accepted", "False", "ChildNameTaken", 120)
    assert workers(lab, team)["metadata"]["generation"] == before["metadata"]["generation"]
    lab.kubectl("-n", team, "delete", "deployment", "q-worker")
    becomes(lab, team, "Ready", "True", "Ready", 120)


def test_a_quota_is_told_and_what_runs_goes_on(lab: Lab, process: Process, team: str) -> None:
    lab.apply(queue(team, "quota", scaling={"mode": "Manual"}, replicas=0))
    becomes(lab, team, "Ready", "True", "Ready", 120)
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods", "namespace": team},
        "spec": {"hard": {"pods": "1"}},
    }  # fmt: skip
    lab.apply(quota)
    lab.kubectl("-n", team, "scale", "lq/q", "--replicas=3")
    assert "exceeded quota" in becomes(lab, team, "WorkersAvailable", "False", "FailedCreate", 90)
    assert workers(lab, team)["spec"]["replicas"] == 3
    lab.kubectl("-n", team, "delete", "resourcequota", "pods")
    lab.kubectl("-n", team, "scale", "lq/q", "--replicas=0")
    becomes(lab, team, "WorkersAvailable", "True", "ScaledToZero", 90)


def test_an_image_that_cannot_be_had_is_told(lab: Lab, process: Process, team: str) -> None:
    spec = queue(team, "image", scaling={"mode": "Manual"}, replicas=1)
    spec["spec"]["worker"] |= {"image": "no-such-image:1", "imagePullPolicy": "Never"}
    lab.apply(spec)
    message = becomes(lab, team, "WorkersAvailable", "False", "ErrImageNeverPull", 120)
    assert "no-such-image:1" in message
    assert condition(lab, team, "Ready")[:2] == ("False", "ErrImageNeverPull")


def test_a_second_queue_on_the_same_table_is_a_conflict(lab: Lab, process: Process, team: str) -> None:
    lab.apply(queue(team, "twice"))
    becomes(lab, team, "Ready", "True", "Ready", 120)
    second = queue(team, "twice")
    second["metadata"]["name"] = "second"
    lab.apply(second)

    def reason() -> str:
        found = lab.get(team, "leasequeue", "second") or {}
        told = {c["type"]: c for c in (found.get("status") or {}).get("conditions", ())}
        return str(told.get("Accepted", {}).get("reason"))

    eventually("conflict", lambda: reason() == "Conflict", 60)
    assert lab.get(team, "deployment", "second-worker") is None
    lab.kubectl("-n", team, "delete", "lq", "q")
    eventually("the second takes over", lambda: reason() == "Accepted", 120)


@pytest.mark.skipif("KUBECONFIG" in os.environ, reason="stops the database of a cluster that is ours")
def test_an_outage_of_the_database_leaves_the_workers(lab: Lab, process: Process, team: str) -> None:
    lab.apply(queue(team, "outage"))
    becomes(lab, team, "Ready", "True", "Ready", 120)
    run_sql(lab, "INSERT INTO outage (state, run_at) SELECT 'PENDING', now() FROM generate_series(1, 50)")
    eventually("three", lambda: workers(lab, team)["spec"]["replicas"] == 3, 30)
    lab.kubectl("-n", "db", "scale", "deployment/pg", "--replicas=0")
    try:
        assert "held at 3" in becomes(lab, team, "DatabaseReachable", "False", "HostUnreachable", 60)
        assert workers(lab, team)["spec"]["replicas"] == 3
        assert process.get("/healthz").returncode == 0
    finally:
        lab.kubectl("-n", "db", "scale", "deployment/pg", "--replicas=1")
        lab.kubectl("-n", "db", "rollout", "status", "deployment/pg", "--timeout=120s")
