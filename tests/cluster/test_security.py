"""Security on a real Kubernetes: TLS in every pod, *restricted* under any user id, and a password that shows up nowhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.marks import ANY_CLUSTER
from tests.operator.lab import Lab, cluster, eventually
from tests.support.leaks import ODD, PLAIN, leaks
from tests.support.tls import Authority

pytestmark = ANY_CLUSTER

SYSTEM, TEAM = "leasequeue-system", "team"
ANY_UID = 1000660000
# What every process of the node shows of itself.
PROCESSES = """
from pathlib import Path
for entry in Path("/proc").iterdir():
    if entry.name.isdigit():
        for name in ("cmdline", "environ"):
            try:
                print((entry / name).read_text(errors="replace").replace("\\0", "\\n"))
            except OSError:
                pass
"""
SECURE = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, "fsGroup": 10001}


def namespace(name: str) -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def secret(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": TEAM}, "stringData": data}


def postgres(authority: Authority) -> list[dict[str, Any]]:
    """PostgreSQL that takes TLS connections alone from outside its pod; its certificate is for pg, the name in the Secret."""
    certificate, key = authority.issue("DNS:pg")
    container = {
        "name": "pg", "image": "leasequeue-postgres:dev",
        "args": ["postgres", "-c", "ssl=on", "-c", "ssl_cert_file=/tls/tls.crt", "-c", "ssl_key_file=/tls/tls.key"],
        "env": [{"name": "POSTGRES_PASSWORD_FILE", "value": "/password/password"}],
        "readinessProbe": {"tcpSocket": {"port": 5432}, "periodSeconds": 1},
        "securityContext": SECURE,
        "volumeMounts": [
            {"name": "data", "mountPath": "/var/lib/postgresql"}, {"name": "tmp", "mountPath": "/tmp"},
            {"name": "tls", "mountPath": "/tls"}, {"name": "password", "mountPath": "/password"},
        ],
    }  # fmt: skip
    volumes = [
        {"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}},
        {"name": "tls", "secret": {"secretName": "pg-tls", "defaultMode": 0o640}},
        {"name": "password", "secret": {"secretName": "pg-password"}},
    ]  # fmt: skip
    spec = {"securityContext": POD, "automountServiceAccountToken": False, "containers": [container], "volumes": volumes}
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "pg", "namespace": TEAM},
        "spec": {
            "selector": {"matchLabels": {"app": "pg"}}, "template": {"metadata": {"labels": {"app": "pg"}}, "spec": spec},
        },
    }  # fmt: skip
    services = [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": TEAM},
            "spec": {"selector": {"app": "pg"}, "ports": [{"port": 5432}]},
        }
        for name in ("pg", "alias")
    ]  # fmt: skip
    tls = secret("pg-tls", **{"tls.crt": certificate.read_text(), "tls.key": key.read_text()})
    return [tls, secret("pg-password", password=ODD), deployment, *services]


def parts(**changes: str) -> dict[str, str]:
    return {"host": "pg", "port": "5432", "user": "postgres", "password": ODD, "dbname": "postgres", **changes}


def queue(name: str, secret_name: str, **database: Any) -> dict[str, Any]:
    table = name.replace("-", "_")
    given = {"sslMode": "verify-full", "caSecretRef": {"name": "ca"}, **database}
    return {
        "apiVersion": "leasequeue.dev/v1alpha1", "kind": "LeaseQueue", "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "database": {
                "secretRef": {"name": secret_name}, "table": table, "manageSchema": "Create", "confirmTable": f"public.{table}",
                **{key: value for key, value in given.items() if value is not None},
            },
            "worker": {
                "exec": {"command": ["cat"]}, "terminationGracePeriodSeconds": 5,
                "podTemplate": {"spec": {"securityContext": {"runAsUser": ANY_UID, "runAsGroup": 0}}},
            },
            "scaling": {"pollPeriodSeconds": 1, "minReplicas": 1, "maxReplicas": 1},
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A cluster with the chart under an arbitrary user id, and a PostgreSQL with TLS."""
    authority = Authority(tmp_path_factory.mktemp("tls"), "team authority")
    with cluster("security", "operator", "worker", "reclaimer", "postgres") as made:
        made.apply(namespace(SYSTEM), namespace(TEAM))
        made.apply(*postgres(authority), secret("ca", **{"ca.crt": authority.ca.read_text()}), secret("good", **parts()))
        values = {
            "crds": {"enabled": False}, "podSecurityContext": {"runAsUser": ANY_UID, "runAsGroup": 0}, "logLevel": "debug",
            **{name: {"image": {"tag": "dev"}} for name in ("worker", "reclaimer")}, "image": {"tag": "dev"},
        }  # fmt: skip
        made.run(
            "helm", "install", "leasequeue", "charts/leasequeue", "-n", SYSTEM, "--wait", "--timeout", "120s", "-f", "-",
            stdin=json.dumps(values), timeout_s=180,
        )  # fmt: skip
        made.kubectl("-n", TEAM, "rollout", "status", "deployment/pg", "--timeout=120s")
        yield made


def condition(lab: Lab, name: str, kind: str) -> dict[str, Any]:
    found = lab.get(TEAM, "leasequeue", name) or {}
    told = {c["type"]: c for c in (found.get("status") or {}).get("conditions", ())}
    return dict(told.get(kind, {}))


def becomes(lab: Lab, name: str, kind: str, reason: str, within_s: float = 120) -> dict[str, Any]:
    """The condition once it has that reason; all of them when it never does."""
    try:
        eventually(f"{name}: {kind} {reason}", lambda: condition(lab, name, kind).get("reason") == reason, within_s)
    except AssertionError as missed:
        raise AssertionError(f"{missed}\n{lab.kubectl('-n', TEAM, 'describe', 'leasequeue', name)}") from None
    return condition(lab, name, kind)


def sql(lab: Lab, statement: str) -> str:
    """What psql in the database's pod prints."""
    inside = ["psql", "-h", "/var/lib/postgresql/data", "-U", "postgres", "-qtA"]
    command = ["sh", "-c", 'PGPASSWORD=$(cat /password/password) exec "$@"', "sh", *inside]
    return lab.kubectl("-n", TEAM, "exec", "-i", "deployment/pg", "--", *command, stdin=statement).strip()


def run_job(lab: Lab, name: str, template: dict[str, Any]) -> dict[str, Any]:
    """Run a pod template as a Job under an arbitrary user id; its pod when it ended well."""
    spec = template["spec"]
    spec["securityContext"] |= {"runAsUser": ANY_UID, "runAsGroup": 0}
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": TEAM},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {"uid-test": name}}, "spec": spec}},
    }  # fmt: skip
    lab.apply(job)
    eventually(f"job {name}", lambda: ((lab.get(TEAM, "job", name) or {}).get("status") or {}).get("succeeded"), 120)
    (pod,) = json.loads(lab.kubectl("-n", TEAM, "get", "pod", "-l", f"uid-test={name}", "-o", "json"))["items"]
    return dict(pod)


def test_every_pod_speaks_tls_to_a_server_it_knows_under_any_user_id(lab: Lab) -> None:
    lab.apply(queue("orders", "good"))
    assert becomes(lab, "orders", "TLSNotVerified", "Verified")["status"] == "False"
    becomes(lab, "orders", "Ready", "Ready")
    sql(lab, "INSERT INTO orders (idempotency_key) SELECT 'k' || i FROM generate_series(1, 20) AS i")
    eventually("all done", lambda: sql(lab, "SELECT count(*) FROM orders WHERE state = 'RESOLVED'") == "20", 120)
    becomes(lab, "orders", "ReclaimerHealthy", "Running", 180)
    kinds = sql(
        lab,
        "SELECT DISTINCT split_part(a.application_name, ' ', 1), s.ssl FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid)"
        " WHERE a.application_name LIKE 'leasequeue-%' ORDER BY 1",
    )
    seen = set(kinds.split())
    assert {"leasequeue-operator|t", "leasequeue-worker|t"} <= seen
    assert not any(line.endswith("|f") for line in seen)

    (worker,) = json.loads(lab.kubectl("-n", TEAM, "get", "pod", "-l", "leasequeue.dev/component=worker", "-o", "json"))[
        "items"
    ]
    assert lab.kubectl("-n", TEAM, "exec", worker["metadata"]["name"], "--", "id", "-u").strip() == str(ANY_UID)
    assert lab.kubectl("-n", SYSTEM, "exec", "deployment/leasequeue-operator", "--", "id", "-u").strip() == str(ANY_UID)
    cron = lab.get(TEAM, "cronjob", "orders-reclaimer") or {}
    reclaimer = run_job(lab, "reclaim-any-uid", cron["spec"]["jobTemplate"]["spec"]["template"])
    job = schema_job(lab)
    schema = run_job(lab, "schema-any-uid", job["spec"]["template"])
    for pod in (worker, reclaimer, schema):
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            env = {e["name"]: e.get("value") for e in container["env"]}
            assert env["LEASEQUEUE_SSL_ROOT_CERT"] == "/etc/leasequeue/ca/ca.crt"
    lab.run("helm", "test", "leasequeue", "-n", SYSTEM, "--timeout", "120s", timeout_s=180)


def schema_job(lab: Lab) -> dict[str, Any]:
    items = json.loads(lab.kubectl("-n", TEAM, "get", "job", "-l", "leasequeue.dev/component=schema", "-o", "json"))["items"]
    return dict(items[0])


def test_a_server_that_is_not_who_it_should_be(lab: Lab, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another authority")
    lab.apply(
        secret("alias", **parts(host="alias")),
        secret("other-ca", **{"ca.crt": other.ca.read_text()}),
        queue("wrong-host", "alias"),
        queue("wrong-authority", "good", caSecretRef={"name": "other-ca"}),
        queue("unverified", "alias", sslMode="require", caSecretRef=None),
    )
    assert 'does not match host name "alias"' in becomes(lab, "wrong-host", "DatabaseReachable", "TlsHostMismatch")["message"]
    becomes(lab, "wrong-authority", "DatabaseReachable", "TlsNotTrusted")
    assert becomes(lab, "unverified", "TLSNotVerified", "NotVerified")["status"] == "True"


def test_the_password_is_nowhere(lab: Lab) -> None:
    """Wrong in many ways, in every pod; then everything that can be read of the cluster is searched."""
    wrong = {
        "swapped": parts(user=ODD, password="postgres"), "as-host": parts(host=PLAIN), "as-port": parts(port=PLAIN),
        "as-name": parts(dbname=PLAIN), "unreachable": parts(port="1"), "refused": parts(password=PLAIN),
        "uri": {"uri": f"postgresql://postgres:{ODD}@pg:5432/postgres"}, "half": {"uri": f"postgresql://{PLAIN}@pg:5432/postgres"},
        "no-tls": {"uri": f"postgresql://postgres:{PLAIN}@pg:5432/postgres?sslmode=disable"},
    }  # fmt: skip
    lab.apply(*(secret(name, **data) for name, data in wrong.items()))
    lab.apply(*(queue(f"q-{name}", name) for name in wrong))
    # The operator can look, the schema Job cannot log in.
    lab.apply(queue("q-job", "good", schemaSecretRef={"name": "refused"}))
    eventually(
        "all are told", lambda: all(condition(lab, f"q-{n}", "DatabaseReachable").get("status") == "False" for n in wrong), 120
    )
    becomes(lab, "q-job", "SchemaReady", "SchemaJobFailing", 180)
    # One session: the test's own would be refused as well afterwards.
    sql(
        lab,
        "ALTER ROLE postgres PASSWORD 'changed';"
        " SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leasequeue-%'",
    )
    eventually(
        "workers are refused",
        lambda: "authentication failed" in lab.kubectl("-n", TEAM, "logs", "deployment/orders-worker"),
        60,
    )
    becomes(lab, "orders", "DatabaseReachable", "AuthenticationFailed")
    out = everything(lab)
    told = {who: found for who, text in out.items() if (found := leaks(text))}
    assert not told, json.dumps(told, indent=1)
    assert all(len(text) > 200 for text in out.values()), {who: len(text) for who, text in out.items()}


def everything(lab: Lab) -> dict[str, str]:
    """All that can be read of the cluster, but for Secrets."""
    kinds = "leasequeues,deployments,replicasets,cronjobs,jobs,pods,services,serviceaccounts,configmaps,events"
    found = {
        "describe": lab.kubectl("describe", kinds, "-n", TEAM),
        "yaml": lab.kubectl("get", kinds, "-n", TEAM, "-o", "yaml", "--show-managed-fields"),
        "table": lab.kubectl("get", "leasequeues", "-n", TEAM, "-o", "wide"),
        "operator": lab.kubectl("-n", SYSTEM, "logs", "deployment/leasequeue-operator"),
        "metrics": lab.kubectl("get", "--raw", f"/api/v1/namespaces/{SYSTEM}/services/leasequeue-metrics:http/proxy/metrics"),
        "processes": lab.run(sys.executable, "-c", PROCESSES).stdout,
    }
    names = lab.kubectl("-n", TEAM, "get", "pods", "-o", "name").split()
    logs = {name: lab.kubectl("-n", TEAM, "logs", name, "--all-containers", check=False) for name in names}
    found["logs"] = "\n".join(text for name, text in logs.items() if "/pg-" not in name)
    (worker,) = [name for name in names if "orders-worker" in name]
    proxied = f"/api/v1/namespaces/{TEAM}/pods/{worker.removeprefix('pod/')}:8080/proxy/metrics"
    found["worker metrics"] = lab.kubectl("get", "--raw", proxied)
    return found
