"""values.yaml and its schema: every key is known to both, unknown keys are refused, missing ones fall back."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.support import CHART, Refusal, Render, container, kinds, nested, one, run_helm, walk

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
# Maps that belong to Kubernetes or to the user: their inner keys are not the chart's.
FREE = ("resources", "podSecurityContext", "securityContext", "livenessProbe", "readinessProbe", "dashboard.labels")
STRUCTURE = [path for path, _ in walk(VALUES) if not path.startswith(tuple(f"{free}." for free in FREE))]


def schema_at(path: str) -> dict[str, Any]:
    """The part of the schema for a dotted path of values.yaml."""
    part = SCHEMA
    for key in path.split("."):
        part = resolved(part)["properties"][key]
    return resolved(part)


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    reference = part.get("$ref")
    return SCHEMA["definitions"][reference.rpartition("/")[2]] if reference else part


@pytest.mark.parametrize("path", STRUCTURE)
def test_every_key_is_in_the_schema(path: str) -> None:
    assert schema_at(path)


def is_closed(part: dict[str, Any]) -> bool:
    """Whether a part of the schema lists all of its keys by name."""
    return part.get("additionalProperties") is False and "patternProperties" not in part


def test_every_key_of_the_schema_is_in_values() -> None:
    def paths(part: dict[str, Any], prefix: str = "") -> set[str]:
        inner = resolved(part)["properties"] if is_closed(resolved(part)) else {}
        return {f"{prefix}{k}" for k in inner} | {p for k, v in inner.items() for p in paths(v, f"{prefix}{k}.")}

    assert paths(SCHEMA) - {path for path, _ in walk(VALUES)} == {"global", "enabled"}


@pytest.mark.parametrize("parent", ["", *(p for p in STRUCTURE if is_closed(schema_at(p)))])
def test_an_unknown_key_is_refused(parent: str, refusal: Refusal) -> None:
    path = f"{parent}.unknwon" if parent else "unknwon"
    assert "'unknwon' not allowed" in refusal(nested(path, 1))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("replicaCount", 2),
        ("image.pullPolicy", "Sometimes"),
        ("image.tag", "two words"),
        ("image.digest", "sha256:123"),
        ("image.repository", "Upper/case"),
        ("httpPort", 80),
        ("httpPort", "8080"),
        ("logLevel", "trace"),
        ("watchNamespaces", "team-a"),
        ("watchNamespaces", ["Team_A"]),
        ("crds.enabled", "true"),
        ("commonLabels", {"a": "no spaces here"}),
        ("commonLabels", {"a": 1}),
        ("fullnameOverride", "a" * 64),
        ("fullnameOverride", "Upper"),
        ("prometheusRule.alerts.InflightHigh.for", "5 minutes"),
        ("prometheusRule.alerts.InflightHigh.severity", ""),
        ("prometheusRule.alerts.InflightHigh.window", "5m"),
        ("prometheusRule.alerts.AtCeiling.window", "five"),
        ("prometheusRule.alerts.LockContention.perSecond", "0.2"),
        ("prometheusRule.alerts.MetricsStale.slackSeconds", -1),
        ("prometheusRule.alertLabels.severity", "page"),
        ("prometheusRule.operatorSelector", '{job="x"}'),
        ("prometheusRule.runbookBaseUrl", "runbooks"),
        ("prometheusRule.operatorSelector", 'job="a",\nb="c"'),
        ("prometheusRule.alertLabels.queue", "every alert of every queue would be one"),
        ("prometheusRule.alertLabels.queue_namespace", "x"),
        ("prometheusRule.alertLabels.alertname", "x"),
        ("prometheusRule.alerts.InflightHigh.for", "30s5m"),
        ("prometheusRule.alerts.InflightHigh.for", "5m5m"),
        ("prometheusRule.alerts.InflightHigh.for", ""),
        ("prometheusRule.alerts.AtCeiling.window", "0s"),
        ("metrics.podMonitor.interval", "0s"),
        ("metrics.serviceMonitor.scrapeTimeout", "0m0s"),
        ("image.repository", "leasequeue-operator:1.0"),
        ("worker.image.repository", "registry.example/leasequeue-worker:1.0"),
        ("reclaimer.image.repository", "reclaimer@sha256"),
        ("image.repository", "https://registry.example/operator"),
        ("imagePullSecrets", [{"nmae": "x"}]),
        ("extraEnv", [{"value": "without a name"}]),
        ("extraEnv", [{"name": "A", "value": 1}]),
    ],
)
def test_a_bad_value_is_refused_by_its_place(path: str, value: object, refusal: Refusal) -> None:
    message = refusal(nested(path, value))
    assert path.split(".")[-1] in message
    assert "schema" in message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.repository", "localhost:5000/team/lease_queue/operator"),
        ("image.repository", "o"),
        ("prometheusRule.alerts.InflightHigh.for", "0s"),
        ("prometheusRule.alerts.InflightHigh.for", "1d2h30m"),
        ("prometheusRule.alerts.MetricsStale.slackSeconds", 0),
        ("prometheusRule.alerts.LockContention.perSecond", 0),
        ("prometheusRule.alertLabels.team", "{{ $labels.queue_namespace }}"),
        ("extraEnv", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]),
    ],
)
def test_an_odd_but_good_value_is_taken(path: str, value: object, render: Render) -> None:
    assert render({**nested(path, value)})


def test_global_is_allowed_as_in_any_dependency(render: Render) -> None:
    assert render({"global": {"anything": 1}}) == render()


def test_it_can_be_a_dependency_with_a_condition(tmp_path: Path, render: Render) -> None:
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts/leasequeue")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    dependency = {"name": "leasequeue", "version": version, "condition": "leasequeue.enabled"}
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(chart))
    given = {"enabled": True, "image": None, "dashboard": {"enabled": True}, "prometheusRule": None}
    (parent / "values.yaml").write_text(yaml.safe_dump({"leasequeue": given, "global": {"x": 1}}))
    result = run_helm("template", "leasequeue", str(parent), "--namespace", "leasequeue-system")
    assert result.returncode == 0, result.stderr
    made = [o for o in yaml.safe_load_all(result.stdout) if o]
    assert sorted(made, key=str) == sorted(render({"dashboard": {"enabled": True}}), key=str)


def test_all_top_level_keys_null_give_the_defaults(render: Render) -> None:
    assert render(dict.fromkeys(VALUES)) == render()


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_missing_keys_give_their_defaults(depth: int, render: Render) -> None:
    """As after an upgrade with --reuse-values from a chart that did not have them: all keys of one depth at a time."""
    everything: dict[str, Any] = {
        "metrics": {"podMonitor": {"enabled": True}},
        "prometheusRule": {"enabled": True},
        "networkPolicy": {"enabled": True},
    }
    kept = {path for path, _ in walk(everything)}
    gone = [path for path in STRUCTURE if path.count(".") == depth - 1 and path not in kept]
    assert gone
    values = copy.deepcopy(everything)
    for path in gone:
        set_null(values, path)
    assert render(values) == render(everything)


def set_null(values: dict[str, Any], path: str) -> None:
    """Set the dotted `path` to null, making the maps above it."""
    *parents, last = path.split(".")
    for key in parents:
        values = values.setdefault(key, {})
    values[last] = None


def test_null_inside_a_kubernetes_map_removes_a_default(render: Render) -> None:
    values = {"podSecurityContext": {"seccompProfile": None}, "livenessProbe": {"httpGet": None, "exec": {"command": ["x"]}}}
    objects = render(values)
    pod = next(o for o in objects if o["kind"] == "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True}
    assert "httpGet" not in container(objects)["livenessProbe"]


def test_null_inside_the_dashboards_labels_removes_the_default(render: Render) -> None:
    """A sidecar that looks for another label must not leave one that a second Grafana finds."""
    values = {"dashboard": {"enabled": True, "labels": {"grafana_dashboard": None, "our-dashboards": "yes"}}}
    labels = one(render(values), "ConfigMap")["metadata"]["labels"]
    assert "grafana_dashboard" not in labels
    assert labels["our-dashboards"] == "yes"


def test_false_and_empty_override_defaults(render: Render) -> None:
    alert = {"InflightHigh": {"enabled": False}}
    objects = render(
        {"crds": {"enabled": False}, "rbac": {"create": False}, "prometheusRule": {"enabled": True, "alerts": alert}}
    )
    assert not kinds(objects) & {"CustomResourceDefinition", "ClusterRole"}
    names = {rule["alert"] for rule in one(objects, "PrometheusRule")["spec"]["groups"][0]["rules"]}
    assert "LeaseQueueInflightCritical" in names
    assert "LeaseQueueInflightHigh" not in names


def test_lint() -> None:
    result = run_helm("lint", "--strict", str(CHART))
    assert result.returncode == 0, result.stdout + result.stderr
