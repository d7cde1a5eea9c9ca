"""Every alert of the chart fires and resolves: real Prometheus and Alertmanager, real operator and workers; the dashboard from it.

`devtools/alertrun` is the scenario; `python -m devtools.alertrun` runs it by hand and prints when each alert came and went.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from devtools.alertrun.__main__ import run
from devtools.alertrun.draw import draw
from devtools.alertrun.report import has_data, table
from tests.chart.support import CHART
from tests.cluster.marks import own_cluster

pytestmark = own_cluster(2700)
# Long enough for the worker that is frozen and thawed.
LOAD_S = 175.0
ALERTS = sorted(file.stem for file in (CHART / "alerts").glob("*.yaml"))
# Of which queue each is told; the operator's own has none.
EXPECTED = {
    "InflightHigh": "ramp", "InflightCritical": "ramp", "InflightExceeded": "ramp", "AtCeiling": "ceiling",
    "OldestItemTooOld": "starved", "ReclaimerOverdue": "orphans", "LeasesNotReclaimed": "orphans", "NoReadyWorkers": "nobody",
    "RepairGrowing": "faulty", "LaneBlocked": "laned", "LockContention": "locked", "DatabaseUnreachable": "outage",
    "MetricsStale": "outage", "OperatorDown": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def evidence() -> dict[str, Any]:
    """Run the scenario once; every test looks at its evidence."""
    found = run(f"alerts-{os.getpid()}", load_s=LOAD_S)
    print(table(found))
    return found


def test_every_alert_has_a_drill() -> None:
    assert sorted(EXPECTED) == ALERTS


def test_nothing_went_wrong_on_the_way(evidence: dict[str, Any]) -> None:
    assert evidence["problems"] == []


@pytest.mark.parametrize("alert", ALERTS)
def test_it_was_received_and_then_resolved(alert: str, evidence: dict[str, Any]) -> None:
    (told,) = [a for a in evidence["alerts"] if (a["alert"], a["queue"]) == (alert, EXPECTED[alert])]
    assert told["resolved_at"] is not None
    assert told["resolved_at"] > told["fired_at"]
    labels = told["labels"]
    assert labels["severity"] in ("warning", "critical")
    assert labels["team"] == "drill", "prometheusRule.alertLabels"
    if alert != "OperatorDown":
        # The queue's namespace, not the operator's, whatever Prometheus calls `namespace`; nothing of the scrape, which would start
        # the alert anew with each pod.
        assert set(labels) == {"alertname", "severity", "team", "queue_namespace", "queue"}
        assert labels["queue_namespace"] == "drills"
        assert f"drills/{EXPECTED[alert]}" in told["annotations"]["summary"]
    assert told["annotations"]["runbook_url"].endswith(f"/LeaseQueue{alert}")


def test_operator_and_workers_were_scraped_by_their_monitors(evidence: dict[str, Any]) -> None:
    jobs = set(evidence["scraped"])
    assert "leasequeue-system/leasequeue-operator" in jobs
    assert {job for job in jobs if job.startswith("drills/")} >= {
        f"drills/{name}-worker" for name in ("ramp", "orders", "laned")
    }


def test_every_panel_of_the_dashboard_has_data(evidence: dict[str, Any]) -> None:
    assert len(evidence["panels"]) > 25
    assert [panel["title"] for panel in evidence["panels"] if not has_data(panel)] == []


def test_the_dashboard_shows_what_happened(evidence: dict[str, Any]) -> None:
    """A panel of zeros has data too: these must have moved."""
    most = {
        p["title"]: {name: max((v for _, v in points), default=0.0) for name, points in p["series"]} for p in evidence["panels"]
    }
    assert most["Depth by state"]["PENDING"] > 0
    assert most["In flight against the ceiling"]["in flight"] > 0
    assert most["Workers"]["ready"] >= 1
    assert most["Workers"]["busy"] >= 1
    assert most["Outcomes"]["resolved"] > 0
    assert most["Outcomes"]["retried"] > 0
    assert most["Reclaimed"]["to pending"] > 0, "a worker was killed"
    assert most["Lost leases and busy kills"]["lost"] > 0, "a worker was frozen for longer than its lease"
    assert 0 < most["Wait"]["p50"] <= most["Wait"]["p99"]
    assert 0 < most["Handler"]["p50"] <= most["Handler"]["p99"]


def test_it_is_drawn(evidence: dict[str, Any], tmp_path: Path) -> None:
    files = draw(evidence["panels"], tmp_path)
    assert len(files) == 4
    for file in files:
        with Image.open(file) as picture:
            assert picture.width > 1000
            assert len(picture.getcolors() or ()) > 10, "more than an empty frame"
