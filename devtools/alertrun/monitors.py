"""From PodMonitors and pods to what Prometheus scrapes, as the Prometheus Operator does it. Pure.

Debian's Prometheus is built without Kubernetes discovery, so its targets come from a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]
Target = dict[str, Any]


def targets(monitors: Iterable[Object], pods: Iterable[Object]) -> list[Target]:
    """One file_sd entry for each endpoint of each pod that a PodMonitor selects.

    Raises:
        KeyError: an endpoint names a port that the selected pod has not: the monitor is wrong.
    """
    running = [pod for pod in pods if pod.get("status", {}).get("podIP") and pod["status"].get("phase") == "Running"]
    return [
        _target(monitor, endpoint, pod)
        for monitor in monitors
        for endpoint in monitor["spec"]["podMetricsEndpoints"]
        for pod in running
        if _selects(monitor, pod)
    ]


def _selects(monitor: Object, pod: Object) -> bool:
    spec, meta = monitor["spec"], pod["metadata"]
    namespaces = spec.get("namespaceSelector", {}).get("matchNames") or [monitor["metadata"]["namespace"]]
    labels = meta.get("labels", {})
    return meta["namespace"] in namespaces and all(labels.get(k) == v for k, v in spec["selector"]["matchLabels"].items())


def _target(monitor: Object, endpoint: Object, pod: Object) -> Target:
    ports = {
        port["name"]: (port["containerPort"], container["name"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    }
    port, container = ports[endpoint["port"]]
    of, meta = monitor["metadata"], pod["metadata"]
    return {
        "targets": [f"{pod['status']['podIP']}:{port}"],
        "labels": {
            "__metrics_path__": endpoint.get("path", "/metrics"),
            "job": f"{of['namespace']}/{of['name']}",
            "namespace": meta["namespace"],
            "pod": meta["name"],
            "container": container,
        },
    }
