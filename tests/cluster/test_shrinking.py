"""Making a fleet smaller ends no running job, whatever the cause, on a real Kubernetes; `shrinking.py` beside this is the scenario."""

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
from tests.cluster.marks import OWN_CLUSTER
from tests.cluster.shrinking import INSIDE

pytestmark = OWN_CLUSTER
ROOT = Path(__file__).resolve().parents[2]
SCENES = ("zero-n-zero", "lowered-max", "kubectl-scale", "suspend", "from-zero", "operator-killed")


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, dict[str, Any]]]:
    """Run all scenes once; every test looks at what came of its own."""
    name = f"shrinking-{os.getpid()}"
    devcluster = [sys.executable, "-m", "devcluster"]
    subprocess.run([*devcluster, "up", "--name", name, "--with-parent", str(os.getpid())], cwd=ROOT, check=True, timeout=1500)
    try:
        built = images.build_and_load(cluster_paths(name), print)
        done = subprocess.run(
            [*devcluster, "exec", "--name", name, "--", sys.executable, "-m", "tests.cluster.shrinking"],
            env={**os.environ, INSIDE: json.dumps(asdict(built)), "PYTHONPATH": str(ROOT)},
            cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        print(done.stdout, done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("EVIDENCE ")]
        assert lines, f"the scenario ended without evidence: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        yield {found["name"]: found for found in json.loads(lines[0].removeprefix("EVIDENCE "))}
    finally:
        subprocess.run([*devcluster, "down", "--name", name], cwd=ROOT, check=False, timeout=120)


@pytest.mark.parametrize("scene", SCENES)
def test_no_running_job_is_ended(outcomes: dict[str, dict[str, Any]], scene: str) -> None:
    found = outcomes[scene]
    assert found["problems"] == []
    assert found["items"] == found["resolved"] > 0
    assert (found["again"], found["crashes"], found["busy_kills"], found["unended"]) == (0, 0, 0, 0)
    # The jobs' own lines, from the logs of every pod that ever was.
    assert found["began"] == found["ended"] == found["items"]


def test_the_cordons_of_a_dead_operator_lapse_and_its_workers_go_on(outcomes: dict[str, dict[str, Any]]) -> None:
    assert "cordons lapsed" in outcomes["operator-killed"]["facts"]
