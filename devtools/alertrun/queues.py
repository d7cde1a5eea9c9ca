"""The queues of the drills as Kubernetes objects. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Manifest = dict[str, Any]
NAMESPACE = "drills"
HANDLERS = "handlers"
MODULE = "handler"
MOUNT = "/handlers"
YEARLY, EACH_MINUTE = "0 0 1 1 *", "* * * * *"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def namespace() -> Manifest:
    """Their namespace, restricted as a user's should be."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": RESTRICTED}}


def handlers() -> Manifest:
    """The handler's source, mounted by every worker."""
    source = (Path(__file__).parent / "handler.py").read_text()
    meta = {"name": HANDLERS, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {f"{MODULE}.py": source}}


def secret(name: str, uri: str) -> Manifest:
    """A connection."""
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"uri": uri}}


def lease_queue(name: str, database: str, **spec: dict[str, Any]) -> Manifest:
    """A LeaseQueue over the table of its name: one worker, seconds instead of minutes; `spec` goes over it, section by section.

    Args:
        name: of queue and table.
        database: name of its Secret.
        spec: sections of the spec.
    """
    plain: dict[str, dict[str, Any]] = {
        "database": {"secretRef": {"name": database, "key": "uri"}, "table": name},
        "lease": {"maxInflight": 100, "reclaimAfterSeconds": 10, "lockTimeoutMs": 10_000},
        "worker": {
            "handler": f"{MODULE}:handle",
            "terminationGracePeriodSeconds": 5,
            # Pods that ask for nothing get nothing while the machine is busy with anything else.
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "env": [{"name": "PYTHONPATH", "value": MOUNT}],
            "podTemplate": {
                "spec": {
                    "containers": [{"name": "worker", "volumeMounts": [{"name": HANDLERS, "mountPath": MOUNT}]}],
                    "volumes": [{"name": HANDLERS, "configMap": {"name": HANDLERS}}],
                }
            },
        },
        "scaling": {"maxReplicas": 1, "pollPeriodSeconds": 1, "scaleDownStabilizationSeconds": 20},
        # Where no drill is about reclaiming: ten Jobs that start in one second would be most of the load.
        "reclaimer": {"schedule": YEARLY},
    }
    merged = {key: {**plain.get(key, {}), **spec.get(key, {})} for key in {**plain, **spec}}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "leasequeue.dev/v1alpha1", "kind": "LeaseQueue", "metadata": meta, "spec": merged}
