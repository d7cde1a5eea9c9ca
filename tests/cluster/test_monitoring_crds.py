"""Monitors and rules against the real CRDs of the Prometheus Operator: validated strictly by an API server that has them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools import monitoring_crds
from leasequeue_operator.plan import podmonitor
from tests.chart.support import CHART, run_helm
from tests.cluster.marks import ANY_CLUSTER
from tests.operator import samples
from tests.operator.lab import Lab, cluster

pytestmark = ANY_CLUSTER
NAMESPACE = "monitoring-crds"
RELABELING = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node", "action": "replace"}
MONITOR = {
    "enabled": True, "labels": {"release": "prometheus"}, "interval": "30s", "scrapeTimeout": "5s",
    "relabelings": [RELABELING], "metricRelabelings": [{"regex": "pod_template_hash", "action": "labeldrop"}],
}  # fmt: skip
RULE = {"enabled": True, "labels": {"release": "prometheus"}, "alertLabels": {"team": "a"}, "operatorSelector": 'job="a/b"'}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    files = monitoring_crds.files()  # before: inside the cluster's network nothing can be fetched
    with cluster("crds") as made:
        for file in files:
            made.kubectl("apply", "--server-side", "-f", str(file))
        names = [f"crd/{name}.monitoring.coreos.com" for name in monitoring_crds.NAMES]
        made.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
        made.kubectl("create", "namespace", NAMESPACE)
        yield made


def validated(lab: Lab, objects: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """What the API server says to `objects`; nothing is stored."""
    documents = "\n---\n".join(json.dumps(o) for o in objects)
    arguments = ("kubectl", "apply", "--dry-run=server", "--validate=strict", "-n", NAMESPACE, "-f", "-")
    return lab.run(*arguments, stdin=documents, check=False)


def rendered(tmp_path: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The chart's objects of monitoring."""
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    result = run_helm("template", "r" * 53, str(CHART), "--namespace", NAMESPACE, "--values", str(tmp_path / "values.yaml"))
    assert result.returncode == 0, result.stderr
    found = [document for document in yaml.safe_load_all(result.stdout) if document]
    return [o for o in found if o["apiVersion"].startswith("monitoring.coreos.com/")]


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ({"metrics": {"serviceMonitor": MONITOR}}, ["ServiceMonitor"]),
        ({"metrics": {"podMonitor": MONITOR}}, ["PodMonitor"]),
        ({"metrics": {"podMonitor": {"enabled": True}}, "prometheusRule": {"enabled": True}}, ["PodMonitor", "PrometheusRule"]),
        ({"prometheusRule": RULE}, ["PrometheusRule"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_the_charts_objects_are_taken(values: dict[str, Any], kinds: list[str], lab: Lab, tmp_path: Path) -> None:
    objects = rendered(tmp_path, values)
    assert sorted(o["kind"] for o in objects) == kinds
    done = validated(lab, objects)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(server dry run)") == len(objects)
    assert "Warning" not in done.stderr


def test_the_operators_pod_monitor_is_taken(lab: Lab) -> None:
    made = podmonitor.build(samples.queue())
    made["metadata"]["namespace"] = NAMESPACE
    done = validated(lab, [made])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("values", "change", "field"),
    [
        ({"metrics": {"serviceMonitor": MONITOR}}, {"endpoints": [{"port": "http", "interval": "soon"}]}, "interval"),
        ({"metrics": {"podMonitor": MONITOR}}, {"podMetricsEndpoint": []}, "podMetricsEndpoint"),
        ({"prometheusRule": RULE}, {"groups": [{"name": "x", "rules": [{"expr": "1", "for": "5 minutes"}]}]}, "for"),
    ],
)
def test_a_wrong_object_is_refused(
    values: dict[str, Any], change: dict[str, Any], field: str, lab: Lab, tmp_path: Path
) -> None:
    """Else the tests above would show nothing."""
    (made,) = rendered(tmp_path, values)
    made["spec"] |= change
    done = validated(lab, [made])
    assert done.returncode != 0
    assert field in done.stderr
