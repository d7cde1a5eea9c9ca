"""The Grafana dashboard: its ConfigMap, its form, and that nothing in it asks for what nobody exports."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools import dashboard
from devtools.alertrun.panels import filled
from devtools.reference import metrics as exported
from tests.chart.support import CHART, ROOT, Render, kinds, one

VALUES = {"queue_namespace": "team-a", "queue": "orders", "__rate_interval": "1m"}
RULES = sorted((CHART / "alerts").glob("*.yaml"))
HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    """The dashboard's file; that the chart installs it is a test of its own."""
    found = json.loads((CHART / "dashboards/leasequeue.json").read_text())
    assert isinstance(found, dict)
    return found


def queries(board: dict[str, Any]) -> list[tuple[str, str]]:
    """(panel, expression) of every query."""
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", ())]


def families(expression: str) -> dict[str, set[str]]:
    """Metrics of an expression, each with the labels that its selectors name. Histograms by their family's name."""
    found: dict[str, set[str]] = {}
    for name, selector in re.findall(r"\b(leasequeue_[a-z_]+)(?:\{([^}]*)\})?", expression):
        found.setdefault(HISTOGRAM.sub("", name), set()).update(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selector))
    return found


def exported_labels() -> dict[str, set[str]]:
    """What the collectors of operator and worker export, with its labels."""
    rows = [*exported._rows(exported.of_operator()), *exported.of_worker()]
    return {name: set(labels) for name, _, labels, _ in rows}


def test_it_is_off_by_default(render: Render) -> None:
    assert "ConfigMap" not in kinds(render())


def test_label_annotation_and_namespace_are_values(render: Render) -> None:
    values = {"enabled": True, "namespace": "grafana", "labels": {"team": "a"}, "annotations": {"grafana_folder": "Queues"}}
    made = one(render({"dashboard": values}), "ConfigMap")["metadata"]
    assert made["namespace"] == "grafana"
    assert made["labels"].items() >= {"grafana_dashboard": "1", "team": "a", "app.kubernetes.io/part-of": "leasequeue"}.items()
    assert made["annotations"] == {"grafana_folder": "Queues"}


def test_the_config_map_has_the_file_and_the_file_the_panels(board: dict[str, Any], render: Render) -> None:
    (text,) = one(render({"dashboard": {"enabled": True}}), "ConfigMap")["data"].values()
    assert json.loads(text) == board == json.loads(json.dumps(dashboard.dashboard()))


def test_panels_neither_overlap_nor_leave_the_grid(board: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_every_panel_says_what_it_shows_and_takes_the_chosen_source(board: dict[str, Any]) -> None:
    for panel in (p for p in board["panels"] if p["type"] != "row"):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert all(legends)
        assert len(set(legends)) == len(legends)


def test_it_shows_what_a_queue_is_watched_by(board: dict[str, Any]) -> None:
    text = "\n".join(expression for _, expression in queries(board))
    for metric in (
        "items", "oldest_pending_timestamp_seconds", "assigned", "max_inflight", "workers_desired", "workers_ready",
        "workers_busy", "workers_cordoned", "scaling_limiter", "wait_duration_seconds_bucket", "handler_duration_seconds_bucket",
        "finished_total", "reclaimed_total", "lost_total", "database_up", "reconcile_total",
    ):  # fmt: skip
        assert re.search(rf"\bleasequeue_{metric}\b", text), metric


def test_every_query_is_of_the_chosen_queue_or_of_the_operator(board: dict[str, Any]) -> None:
    """A selector that misses one of the two labels would mix queues."""
    for title, expression in queries(board):
        labels = exported_labels()
        for name, used in families(expression).items():
            per_queue = {"queue_namespace", "queue"} <= labels[name]
            assert {"queue_namespace", "queue"} <= used or not per_queue or title == "Queues", (title, name)


@pytest.mark.parametrize("source", ["dashboard", "alerts"])
def test_everything_asked_for_is_exported_with_those_labels(source: str, board: dict[str, Any]) -> None:
    """By the collectors themselves: a renamed metric would leave its alert silent and its panel empty for ever."""
    expressions = (
        [expression for _, expression in queries(board)]
        if source == "dashboard"
        else [yaml.safe_load(file.read_text())["expr"].replace("{OPERATOR_SELECTOR}", "") for file in RULES]
    )
    known, used = exported_labels(), 0
    for expression in expressions:
        for name, labels in families(expression).items():
            assert name in known, f"{name} is exported by nobody"
            assert labels <= known[name], (name, labels - known[name])
            used += 1
    assert used > 20


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text()
    assert {name for name in exported_labels() if f"| `{name}` |" not in page} == set()


def test_metrics_named_in_the_docs_exist() -> None:
    known = set(exported_labels())
    named: dict[str, str] = {}
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        for name in re.findall(r"\bleasequeue_(?!worker\b|operator\b|reclaimer\b)[a-z_]+", page.read_text()):
            named[name] = page.name
    wrong = {name: page for name, page in named.items() if HISTOGRAM.sub("", name) not in known and not name.endswith("_")}
    assert wrong == {}


def test_promtool_takes_every_query(board: dict[str, Any], tmp_path: Path, promtool_path: str) -> None:
    """As recording rules, since promtool has no other way to parse an expression without a server."""
    expressions = [filled(expression, VALUES) for _, expression in queries(board)]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    result = subprocess.run(
        [promtool_path, "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(expressions)} rules found" in result.stdout
