"""A chart of an earlier version is upgraded to this one while a queue works; then it is uninstalled and installed again.

The earlier chart is a package in `tests/chart/earlier`. Its images are this checkout's, or, where `LEASEQUEUE_UPGRADE_FROM` names a
checkout of the earlier version, built from there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.marks import ANY_CLUSTER
from tests.operator.lab import ROOT, Lab, devcluster, eventually

pytestmark = ANY_CLUSTER

SYSTEM, TEAM = "leasequeue-system", "team"
EARLIER = sorted((ROOT / "tests/chart/earlier").glob("*.tgz"))[0]
ITEMS = 400
IMAGES = ("operator", "worker", "reclaimer", "postgres")


def build(lab: Lab, checkout: Path) -> dict[str, str]:
    """Build and load the images of a checkout; tag by name (content keys, so that two versions are apart)."""
    command = [sys.executable, "-m", "devcluster", "images", "--json", "--name", lab.name, *IMAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, cwd=checkout, env=without_path(checkout))
    assert done.returncode == 0, done.stderr
    return {name.removeprefix("leasequeue-"): full.partition(":")[2] for name, full in json.loads(done.stdout).items()}


def without_path(checkout: Path) -> dict[str, str]:
    """The environment in which `devcluster` is the checkout's own."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = Lab(f"upgrade-{os.getpid()}")
    devcluster("up", "--name", made.name, "--with-parent", str(os.getpid()))
    try:
        yield made
    finally:
        devcluster("down", "--name", made.name)


def values(tags: dict[str, str]) -> str:
    images = {"image": {"tag": tags["operator"]}, "reclaimer": {"image": {"tag": tags["reclaimer"]}}}
    return json.dumps({**images, "worker": {"image": {"tag": tags["worker"]}}})


def helm(lab: Lab, *words: str, stdin: str | None = None) -> str:
    return lab.run("helm", *words, "-n", SYSTEM, stdin=stdin, timeout_s=240).stdout


def example(tags: dict[str, str]) -> list[dict[str, Any]]:
    """The example of deploy/, with more items and a handler that takes a while."""
    text = "\n---\n".join((ROOT / "deploy/examples" / name).read_text() for name in ("postgres.yaml", "review-queue.yaml"))
    text = text.replace("generate_series(1, 200)", f"generate_series(1, {ITEMS})")
    text = text.replace("    from decimal import Decimal\n", "    import time\n    from decimal import Decimal\n")
    text = text.replace('        if item["match_decision"]', '        time.sleep(1)\n        if item["match_decision"]')
    assert f"generate_series(1, {ITEMS})" in text
    assert "time.sleep(1)" in text
    found = [o for o in yaml.safe_load_all(text) if o]
    for o in found:
        o["metadata"]["namespace"] = TEAM
        for container in o.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
            if container["image"].startswith("leasequeue-postgres:"):
                container["image"] = f"leasequeue-postgres:{tags['postgres']}"
    return found


def review(lab: Lab) -> dict[str, Any]:
    return lab.get(TEAM, "leasequeue", "review") or {}


def rows(lab: Lab) -> dict[str, int]:
    """Items by state and attempts."""
    sql = "SELECT state || ' ' || attempt, count(*) FROM review_queue_item GROUP BY 1"
    command = ["env", "PGPASSWORD=change-me", "psql", "-h", "localhost", "-U", "postgres", "-qtAc", sql]
    printed = lab.run("kubectl", "-n", TEAM, "exec", "deployment/postgres", "--", *command, check=False).stdout
    return {name: int(count) for name, _, count in (line.partition("|") for line in printed.split("\n") if "|" in line)}


def resolved(lab: Lab) -> int:
    return sum(count for name, count in rows(lab).items() if name.startswith("RESOLVED"))


def children(lab: Lab) -> dict[str, Any]:
    """What must not change without cause: identities and pod templates, and which worker pods there are."""
    found: dict[str, Any] = {}
    for kind, name in (("deployment", "review-worker"), ("cronjob", "review-reclaimer")):
        body = lab.get(TEAM, kind, name)
        assert body is not None
        found[kind] = (body["metadata"]["uid"], body["spec"].get("template"))
    sets = json.loads(lab.kubectl("-n", TEAM, "get", "replicaset", "-l", "leasequeue.dev/component=worker", "-o", "json"))
    found["replicasets"] = sorted(item["metadata"]["uid"] for item in sets["items"])
    return found


def test_upgrade_uninstall_and_back(lab: Lab) -> None:
    earlier_checkout = Path(os.environ.get("LEASEQUEUE_UPGRADE_FROM", ROOT))
    before = build(lab, earlier_checkout)
    now = build(lab, ROOT)
    namespace: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace"}
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    lab.apply(*({**namespace, "metadata": {"name": name, "labels": labels}} for name in (SYSTEM, TEAM)))

    print(helm(lab, "install", "leasequeue", str(EARLIER), "--wait", "--timeout", "120s", "-f", "-", stdin=values(before)))
    lab.apply(*example(now))
    eventually("work is under way", lambda: resolved(lab) > ITEMS // 20, 240)
    first = children(lab)

    # The worker's default image stays: nothing of the queue's pods may change.
    chosen = ["--set", f"image.tag={now['operator']}", "--set", f"reclaimer.image.tag={now['reclaimer']}"]
    print(helm(lab, "upgrade", "leasequeue", "charts/leasequeue", "--reuse-values", "--wait", "--timeout", "120s", *chosen))
    assert resolved(lab) < ITEMS, "the upgrade came too late to show anything"
    print(helm(lab, "test", "leasequeue", "--timeout", "120s"))
    eventually("all is resolved", lambda: resolved(lab) == ITEMS, 240)
    assert set(rows(lab)) == {"RESOLVED 1"}, "no item was started twice"
    assert {c["type"]: c["status"] for c in review(lab)["status"]["conditions"]}["Ready"] == "True"
    after = children(lab)
    assert after["deployment"] == first["deployment"], "a worker was rolled without a cause"
    assert after["replicasets"] == first["replicasets"]

    print(helm(lab, "uninstall", "leasequeue", "--wait"))
    assert lab.get(SYSTEM, "deployment", "leasequeue-operator") is None
    assert "deletionTimestamp" not in review(lab)["metadata"]
    assert lab.get("default", "crd", "leasequeues.leasequeue.dev") is not None
    assert rows(lab) == {"RESOLVED 1": ITEMS}
    assert children(lab)["deployment"] == after["deployment"]

    generation = review(lab)["metadata"]["generation"]
    print(
        helm(
            lab,
            "install",
            "leasequeue",
            "charts/leasequeue",
            "--wait",
            "--timeout",
            "120s",
            "-f",
            "-",
            stdin=values(now | {"worker": before["worker"]}),
        )
    )
    eventually("it is served again", lambda: serves(lab), 60)
    assert children(lab)["deployment"] == after["deployment"], "it is adopted without a rollout"
    assert review(lab)["metadata"]["generation"] == generation


def serves(lab: Lab) -> bool:
    path = f"/api/v1/namespaces/{SYSTEM}/services/leasequeue-metrics:http/proxy/metrics"
    return "leasequeue_info{" in lab.kubectl("get", "--raw", path, check=False)
