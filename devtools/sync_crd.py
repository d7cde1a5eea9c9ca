"""The chart's copy of the CustomResourceDefinition, made from deploy/crd."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "deploy/crd/leasequeues.leasequeue.dev.yaml"
TARGET = ROOT / "charts/leasequeue/templates/crd.yaml"

_NAME = "metadata:\n  name: leasequeues.leasequeue.dev\n"
_HEAD = """{{- /* Made from deploy/crd by `python -m devtools.sync`: edit that file. */ -}}
{{- $v := include "leasequeue.values" . | fromYaml -}}
{{- if $v.crds.enabled }}
"""
_METADATA = """metadata:
  name: leasequeues.leasequeue.dev
  labels:
    {{- include "leasequeue.labels" . | nindent 4 }}
  {{- $annotations := deepCopy $v.commonAnnotations }}
  {{- if $v.crds.keep }}
  {{- $_ := set $annotations "helm.sh/resource-policy" "keep" }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
"""


def render() -> dict[Path, str]:
    """The chart's template of the CRD, by its path.

    Raises:
        ValueError: the source has a form that cannot be wrapped (another head, or text that Helm would read).
    """
    source = SOURCE.read_text()
    if source.count(_NAME) != 1:
        raise ValueError(f"{SOURCE}: wants exactly one {_NAME!r}, without labels or annotations")
    if "{{" in source or "\n---" in source:
        raise ValueError(f"{SOURCE}: '{{{{' and a second document cannot go into a Helm template")
    body = "".join(line for line in source.splitlines(keepends=True) if not line.startswith("#"))
    return {TARGET: _HEAD + body.replace(_NAME, _METADATA) + "{{- end }}\n"}
