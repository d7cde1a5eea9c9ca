"""The PodMonitor of the workers, made where the cluster has that API (Prometheus operator)."""

from __future__ import annotations

from typing import Any

from leasequeue_operator.plan import names, pod
from leasequeue_operator.plan.deployment import COMPONENT
from leasequeue_operator.plan.spec import Queue


def build(queue: Queue) -> dict[str, Any]:
    """The PodMonitor as it should be. `honorLabels`: our series carry queue and queue_namespace themselves."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": pod.metadata(queue, names.pod_monitor(queue.name), COMPONENT),
        "spec": {
            "selector": {"matchLabels": names.selector(queue.uid, COMPONENT)},
            "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics", "honorLabels": True}],
        },
    }
