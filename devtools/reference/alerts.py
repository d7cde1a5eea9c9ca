"""The chart's alerts with their defaults, from its rule files and values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from devtools.reference.markdown import code, head, section
from devtools.reference.source import ROOT

CHART = ROOT / "charts/leasequeue"
RUNBOOKS = ROOT / "docs/runbooks"


def page() -> str:
    """The page.

    Raises:
        ValueError: an alert without defaults, without texts or without a runbook.
    """
    rule = yaml.safe_load((CHART / "values.yaml").read_text())["prometheusRule"]
    first = (
        "`prometheusRule.enabled: true` installs them. They compare with thresholds that each LeaseQueue sets (`spec.alerts`, "
        f"`spec.lease`) and the operator exports; `for` and severity are values of the chart. `runbook_url` is "
        f"`{rule['runbookBaseUrl']}/` and the alert's name; `prometheusRule.runbookBaseUrl` changes it."
    )
    parts = [_alert(path, rule["alerts"]) for path in sorted((CHART / "alerts").glob("*.yaml"))]
    return head("Alerts", "charts/leasequeue/alerts and values.yaml", first) + "".join(parts)


def _alert(path: Path, defaults: dict[str, dict[str, Any]]) -> str:
    alert = yaml.safe_load(_filled(path.read_text(), defaults.get(path.stem, {})))
    name, told = alert["alert"], alert.get("annotations", {})
    if path.stem not in defaults:
        raise ValueError(f"values.yaml: prometheusRule.alerts.{path.stem} is missing")
    if not (told.get("summary") and told.get("description")):
        raise ValueError(f"{path.name}: an alert needs summary and description")
    if not (RUNBOOKS / f"{name}.md").exists():
        raise ValueError(f"docs/runbooks/{name}.md is missing")
    default = defaults[path.stem]
    body = (
        f"{_plain(told['summary'])} {_plain(told['description'])}\n\n"
        f"Severity {code(default['severity'])}, after {code(default['for'])} (`prometheusRule.alerts.{path.stem}`). "
        f"[Runbook](../runbooks/{name}.md).\n\n```promql\n{alert['expr'].strip()}\n```"
    )
    return section(name, body)


def _filled(text: str, values: Mapping[str, object]) -> str:
    """A rule with its own values in place of their names (`perSecond` is PER_SECOND in it), as the chart's template does it."""
    for name in set(values) - {"enabled", "for", "severity"}:
        text = text.replace(re.sub("(?=[A-Z])", "_", name).upper(), str(values[name]))
    return text.replace("{OPERATOR_SELECTOR}", "")


def _plain(text: str) -> str:
    """Annotation text with its templates as code."""
    words = " ".join(text.split()).replace("{{ $labels.queue_namespace }}/{{ $labels.queue }}", "`NAMESPACE/NAME`")
    return words.replace("{{", "`{{").replace("}}", "}}`")
