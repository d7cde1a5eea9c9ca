"""The PodMonitor of the workers, made where the cluster has that API (Prometheus operator)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leasequeue_operator.plan import names, pod
from leasequeue_operator.plan.deployment import COMPONENT
from leasequeue_operator.plan.spec import Queue


def build(queue: Queue, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The PodMonitor as it should be. `honorLabels`: our series carry queue and queue_namespace themselves.

    Args:
        queue: the queue.
        labels: what a Prometheus selects monitors by; our own labels win.
    """
    meta = pod.metadata(queue, names.pod_monitor(queue.name), COMPONENT)
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {**meta, "labels": {**(labels or {}), **meta["labels"]}},
        "spec": {
            "selector": {"matchLabels": names.selector(queue.uid, COMPONENT)},
            "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics", "honorLabels": True}],
        },
    }
