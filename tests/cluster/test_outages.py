"""The main job under outages of operator and database, on a real Kubernetes; `outages.py` beside this is the scenario."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from demo import images
from devcluster.paths import cluster_paths
from examples.review_queue.dataset import load
from tests.cluster.marks import OWN_CLUSTER
from tests.cluster.outages import INSIDE, SETTINGS

pytestmark = OWN_CLUSTER
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def evidence() -> Iterator[dict[str, Any]]:
    """Run the scenario once; every test looks at its evidence."""
    name = f"outages-{os.getpid()}"
    devcluster = [sys.executable, "-m", "devcluster"]
    subprocess.run([*devcluster, "up", "--name", name, "--with-parent", str(os.getpid())], cwd=ROOT, check=True, timeout=1500)
    try:
        built = images.build_and_load(cluster_paths(name), print)
        load()  # inside the cluster's network nothing can be fetched
        done = subprocess.run(
            [*devcluster, "exec", "--name", name, "--", sys.executable, "-m", "tests.cluster.outages"],
            env={**os.environ, INSIDE: json.dumps(asdict(built)), "PYTHONPATH": str(ROOT)},
            cwd=ROOT, capture_output=True, text=True, timeout=1500, check=False,
        )  # fmt: skip
        print(done.stdout, done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("EVIDENCE ")]
        assert lines, f"the scenario ended without evidence: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        yield json.loads(lines[0].removeprefix("EVIDENCE "))
    finally:
        subprocess.run([*devcluster, "down", "--name", name], cwd=ROOT, check=False, timeout=120)


def test_nothing_is_lost_or_doubled(evidence: dict[str, Any]) -> None:
    assert evidence["problems"] == []
    assert evidence["resolved"] == evidence["postings"] == SETTINGS.items
    assert evidence["executions"] >= SETTINGS.items


def test_without_the_operator_workers_and_reclaimer_go_on(evidence: dict[str, Any]) -> None:
    assert evidence["resolved_after_operator_stop"] > evidence["resolved_before_operator_stop"] + 100
    assert evidence["left_by_killed_worker"] > 0
    assert evidence["reclaimed_without_operator"] == evidence["left_by_killed_worker"]


def test_on_the_operators_return_nothing_rolls_and_state_equals_plan(evidence: dict[str, Any]) -> None:
    assert evidence["template_after"] == evidence["template_before"]
    assert set(evidence["pods_before_return"]) <= set(evidence["pods_after_return"])
    assert evidence["plan_equals_state"]


def test_a_database_outage_never_scales_down_and_is_told(evidence: dict[str, Any]) -> None:
    assert len(evidence["replicas_during_outage"]) > 10
    assert set(evidence["replicas_during_outage"]) == {SETTINGS.max_replicas}
    assert evidence["database_reachable_status"] == "False"
    assert evidence["database_reachable_reason"]
    assert evidence["resumed"]


def test_kubectl_shows_and_scales_the_queue(evidence: dict[str, Any]) -> None:
    assert evidence["to_zero"]
    assert evidence["scale"] == [2, 0]
    assert "PENDING" in evidence["get"]
    for condition in ("DatabaseReachable", "SchemaReady", "ReclaimerHealthy", "InflightWithinLimit"):
        assert condition in evidence["describe"]


def test_uninstall_leaves_queues_and_rows(evidence: dict[str, Any]) -> None:
    assert evidence["left_after_uninstall"] == {"queues": 1, "rows": SETTINGS.items}
