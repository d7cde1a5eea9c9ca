"""Installing on a real Kubernetes: by Helm and by kustomize, in namespaces that enforce Pod Security *restricted*.

One cluster for the module; the tests build on each other only through the fixture that removes what was installed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.marks import ANY_CLUSTER

pytestmark = ANY_CLUSTER

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = f"install-{os.getpid()}"
CHART = "charts/leasequeue"
SYSTEM = "leasequeue-system"
TAG = "dev"
IMAGES = {"image": {"tag": TAG}, "worker": {"image": {"tag": TAG}}, "reclaimer": {"image": {"tag": TAG}}}
OPERATOR = "deployment/leasequeue-operator"


def devcluster(*args: str, stdin: str | None = None, timeout: float = 800) -> subprocess.CompletedProcess[str]:
    """Run `python -m devcluster` on this module's cluster."""
    command = [sys.executable, "-m", "devcluster", args[0], "--name", CLUSTER, *args[1:]]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, cwd=ROOT)


def run(*command: str, stdin: str | None = None, timeout: float = 120) -> str:
    """Output of a command on the cluster, which must succeed."""
    result = devcluster("exec", "--", *command, stdin=stdin, timeout=timeout)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stdout}{result.stderr}"
    return result.stdout


def get(*args: str) -> Any:
    """What `kubectl get` finds; None where there is nothing."""
    result = devcluster("exec", "--", "kubectl", "get", *args, "-o", "json", timeout=60)
    if "NotFound" in result.stderr or "not found" in result.stderr:
        return None
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def wait_until(condition: Callable[[], object], seconds: float, what: Callable[[], object] | str) -> None:
    """Poll `condition` until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        shown = what if isinstance(what, str) else what()
        assert time.monotonic() < deadline, f"not within {seconds} s: {shown}"
        time.sleep(0.5)


def apply(objects: list[dict[str, Any]], namespace: str | None = None) -> None:
    where = ["--namespace", namespace] if namespace else []
    run("kubectl", "apply", *where, "-f", "-", stdin=yaml.safe_dump_all(objects))


def restricted_namespace(name: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}])


def values_arguments(tmp_path: Path, *values: dict[str, Any]) -> list[str]:
    arguments = []
    for number, part in enumerate((IMAGES, *values)):
        file = tmp_path / f"values-{number}.yaml"
        file.write_text(yaml.safe_dump(part))
        arguments += ["--values", str(file)]
    return arguments


def install(tmp_path: Path, *values: dict[str, Any]) -> None:
    """`helm install --wait` into the system namespace."""
    arguments = values_arguments(tmp_path, *values)
    run("helm", "install", "leasequeue", CHART, "-n", SYSTEM, "--wait", "--timeout", "120s", *arguments, timeout=180)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    for args in (("up", "--with-parent", str(os.getpid())), ("images",)):
        result = devcluster(*args)
        assert result.returncode == 0, result.stderr
    yield
    assert devcluster("down").returncode == 0


@pytest.fixture
def clean() -> Iterator[None]:
    """The system namespace, restricted; afterwards nothing of an installation is left."""
    restricted_namespace(SYSTEM)
    yield
    devcluster("exec", "--", "helm", "uninstall", "leasequeue", "-n", SYSTEM, "--ignore-not-found", timeout=120)
    run("kubectl", "delete", "crd", "leasequeues.leasequeue.dev", "--ignore-not-found")
    run("kubectl", "delete", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/part-of=leasequeue")
    run("kubectl", "delete", "namespace", SYSTEM, "team-a", "team-b", "--ignore-not-found", "--timeout=120s", timeout=180)


def example(name: str) -> list[dict[str, Any]]:
    """Objects of deploy/examples, with the images of this checkout."""
    text = (ROOT / "deploy/examples" / name).read_text()
    return list(yaml.safe_load_all(re.sub(r"(image: leasequeue-\w+):\S+", rf"\1:{TAG}", text)))


def queue() -> dict[str, Any]:
    found = get("leasequeue", "review", "-n", "team-a")
    return found if isinstance(found, dict) else {}


def resolved() -> str:
    """Rows by state in the example's table."""
    sql = "SELECT state, count(*) FROM review_queue_item GROUP BY state ORDER BY state"
    return run("kubectl", "-n", "team-a", "exec", "deployment/postgres", "--", "env", "PGPASSWORD=change-me", "psql",
               "-h", "localhost", "-U", "postgres", "-qtAc", sql)  # fmt: skip


def metrics() -> str:
    """The operator's /metrics, asked through the API server."""
    path = f"/api/v1/namespaces/{SYSTEM}/services/leasequeue-metrics:http/proxy/metrics"
    return run("kubectl", "get", "--raw", path)


def test_the_api_server_takes_every_object(clean: None, tmp_path: Path) -> None:
    everything = {"networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 5432, "protocol": "TCP"}]}]}}
    arguments = values_arguments(tmp_path, everything)
    rendered = run("helm", "template", "r" * 53, CHART, "-n", SYSTEM, *arguments)
    output = run("kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered)
    assert len(output.splitlines()) >= 10
    assert "Warning" not in output


def test_helm_install_runs_the_example_and_uninstall_leaves_it(clean: None, tmp_path: Path) -> None:
    install(tmp_path)
    run("helm", "test", "leasequeue", "-n", SYSTEM, "--timeout", "120s", timeout=180)
    restricted_namespace("team-a")
    for file in ("postgres.yaml", "review-queue.yaml"):
        apply(example(file), "team-a")
    run("kubectl", "-n", "team-a", "wait", "job/review-table", "--for=condition=Complete", "--timeout=120s", timeout=150)
    wait_until(lambda: resolved().split() == ["RESOLVED|200"], 240, lambda: (resolved(), queue().get("status")))
    ready = {c["type"]: c["status"] for c in queue()["status"]["conditions"]}
    assert ready["Ready"] == "True"

    used = set()
    for rule in (ROOT / CHART / "alerts").glob("*.yaml"):
        used |= set(re.findall(r"\bleasequeue_[a-z_]+", yaml.safe_load(rule.read_text())["expr"]))
    exported = set(re.findall(r"^# TYPE (\S+)", metrics(), re.MULTILINE))
    # What the workers export themselves, and what is rightly absent while nothing waits or is overdue.
    assert used - exported == {"leasequeue_database_errors_total"}

    before = get("deployment", "review-worker", "-n", "team-a")
    run("helm", "uninstall", "leasequeue", "-n", SYSTEM, "--wait")
    assert get(OPERATOR, "-n", SYSTEM) is None
    assert "deletionTimestamp" not in queue()["metadata"]
    assert get("cronjob", "review-reclaimer", "-n", "team-a")
    assert get("deployment", "review-worker", "-n", "team-a")["metadata"]["uid"] == before["metadata"]["uid"]
    assert resolved().split() == ["RESOLVED|200"]

    install(tmp_path)
    generation = queue()["metadata"]["generation"]
    wait_until(lambda: "leasequeue_info{" in metrics(), 60, "the operator serves the queue again")
    after = get("deployment", "review-worker", "-n", "team-a")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["template"] == before["spec"]["template"], "no rollout"
    assert queue()["metadata"]["generation"] == generation


def test_kustomize_gives_a_running_operator(clean: None, tmp_path: Path) -> None:
    base = os.path.relpath(ROOT / "deploy", tmp_path)
    images = [{"name": "leasequeue-operator", "newTag": TAG}]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [base], "images": images}))
    run("kubectl", "delete", "namespace", SYSTEM, "--timeout=60s")  # deploy/ brings it
    run("kubectl", "apply", "-k", str(tmp_path))
    run("kubectl", "-n", SYSTEM, "rollout", "status", OPERATOR, "--timeout=120s", timeout=150)
    labels = get("namespace", SYSTEM)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_a_namespaced_operator_has_all_the_rights_it_needs(clean: None, tmp_path: Path) -> None:
    for name in ("team-a", "team-b"):
        restricted_namespace(name)
    values = {"watchNamespaces": ["team-a", "team-b"], "rbac": {"aggregateClusterRoles": False}}
    install(tmp_path, values)
    assert "right_missing" not in run("kubectl", "-n", SYSTEM, "logs", OPERATOR)
    assert get("clusterrole", "-l", "app.kubernetes.io/part-of=leasequeue")["items"] == []
    account = f"--as=system:serviceaccount:{SYSTEM}:leasequeue-operator"
    for namespace, allowed in (("team-a", "yes"), ("team-b", "yes"), ("default", "no")):
        answer = devcluster("exec", "--", "kubectl", "auth", "can-i", "get", "secrets", account, "-n", namespace, timeout=60)
        assert answer.stdout.strip() == allowed, namespace


def test_any_uid_and_read_only_root(clean: None, tmp_path: Path) -> None:
    values = {"podSecurityContext": {"runAsUser": 1000660000, "runAsGroup": 0}}
    install(tmp_path, values)
    assert run("kubectl", "-n", SYSTEM, "exec", OPERATOR, "--", "id", "-u").strip() == "1000660000"
    (pod,) = get("pod", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator")["items"]
    assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0]
