"""Values of the chart for the run: images of this checkout, monitoring on, and short times. Nothing else about the alerts is changed."""

from __future__ import annotations

from typing import Any

TAG = "dev"
MOMENT = "4s"
# A pod takes seconds to start: less than this would call each start an outage.
POD_START = "30s"

VALUES: dict[str, Any] = {
    "image": {"tag": TAG},
    "worker": {"image": {"tag": TAG}},
    "reclaimer": {"image": {"tag": TAG}},
    "metrics": {"podMonitor": {"enabled": True}},
    "dashboard": {"enabled": True},
    "prometheusRule": {
        "enabled": True,
        "alertLabels": {"team": "drill"},
        "alerts": {
            "InflightHigh": {"for": MOMENT},
            "InflightCritical": {"for": MOMENT},
            "InflightExceeded": {"for": MOMENT},
            "AtCeiling": {"for": MOMENT, "window": "20s"},
            "ReclaimerOverdue": {"for": MOMENT},
            "LeasesNotReclaimed": {"for": MOMENT},
            "OldestItemTooOld": {"for": MOMENT},
            "LockContention": {"for": MOMENT, "window": "30s", "perSecond": 0.1},
            "RepairGrowing": {"for": MOMENT, "window": "5m"},
            "LaneBlocked": {"for": MOMENT},
            "NoReadyWorkers": {"for": POD_START},
            "DatabaseUnreachable": {"for": MOMENT},
            "MetricsStale": {"for": MOMENT, "slackSeconds": 10},
            "OperatorDown": {"for": MOMENT},
        },
    },
}
