"""deploy/operator and deploy/monitoring: what the chart renders by default, for `kubectl apply -k`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from devtools.sync_programs import helm

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts/leasequeue"
DEPLOY = ROOT / "deploy"
NAMESPACE = "leasequeue-system"
MONITORING = ("metrics.podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboard.enabled=true")
MONITORING_KINDS = ("PodMonitor", "PrometheusRule", "ConfigMap")

_HEAD = "# Made from charts/leasequeue by `python -m devtools.sync`: change the chart, or patch this in an overlay.\n"
# Labels that tell of Helm; an object applied by kubectl is not Helm's.
_HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")


def template(*arguments: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Objects that the chart renders as release `leasequeue`.

    Args:
        arguments: more arguments of `helm template`, such as `--set`, `key=value`.
        namespace: namespace of the release.
    Raises:
        subprocess.CalledProcessError: Helm refused; stderr has its words.
    """
    command = [helm(), "template", "leasequeue", str(CHART), "--namespace", namespace, *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return [document for document in yaml.safe_load_all(output) if document]


def without_helm(document: Any) -> Any:
    """The object without Helm's own labels, also inside a pod template."""
    if isinstance(document, dict):
        return {k: without_helm(v) for k, v in document.items() if k not in _HELM_LABELS}
    if isinstance(document, list):
        return [without_helm(item) for item in document]
    return document


def installed() -> list[dict[str, Any]]:
    """The objects of the default installation, less the CRD (deploy/crd has it) and the hooks of `helm test`."""
    objects = template("--set", "crds.enabled=false", "--skip-tests")
    return [without_helm(document) for document in objects]


def monitoring() -> list[dict[str, Any]]:
    """PodMonitor, PrometheusRule and the dashboard."""
    objects = template(*(part for value in MONITORING for part in ("--set", value)))
    return [without_helm(o) for o in objects if o["kind"] in MONITORING_KINDS]


def render() -> dict[Path, str]:
    """All generated files of deploy/, by their paths."""
    return _folder("operator", installed()) | _folder("monitoring", monitoring())


def _folder(name: str, objects: list[dict[str, Any]]) -> dict[Path, str]:
    files: dict[Path, str] = {}
    for document in objects:
        path = DEPLOY / name / f"{_file_name(document)}.yaml"
        files[path] = _HEAD + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120)
    kinds = "\n".join(f"  - {path.name}" for path in sorted(files))
    head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
    return files | {DEPLOY / name / "kustomization.yaml": f"{_HEAD}{head}{kinds}\n"}


def _file_name(document: dict[str, Any]) -> str:
    """`clusterrole`, or `clusterrole-view` where an installation has several of the kind."""
    kind, name = document["kind"].lower(), document["metadata"]["name"]
    suffix = name.rpartition(f".{NAMESPACE}")[2].removeprefix(".")
    return f"{kind}-{suffix}" if suffix and suffix != name else kind


class _Dumper(yaml.SafeDumper):
    """Lists indented below their key and multi-line texts as blocks, as people write them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's signature
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
