"""The Kubernetes objects of the demo: pure builders, settings in, dicts out."""

from __future__ import annotations

from typing import Any

from demo.settings import HANDLER, QUEUE, TABLE, Settings

Manifest = dict[str, Any]
DEMO_LABEL = "leasequeue.dev/demo"
RUN, NODE, SYSTEM = "run", "node", "system"
POSTGRES = "postgres"
PORT = 5432
# Each slot of each worker may hold a transaction open.
CONNECTIONS = 300
DATABASE_SECRET = "review-database"  # noqa: S105 the name, not the password
RESTRICTED = {
    f"pod-security.kubernetes.io/{mode}{suffix}": value
    for mode in ("enforce", "warn")
    for suffix, value in (("", "restricted"), ("-version", "latest"))
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def namespace(name: str, use: str) -> Manifest:
    """A namespace that enforces Pod Security *restricted*; `use` is RUN, which later runs remove, or SYSTEM."""
    labels = RESTRICTED | {DEMO_LABEL: use}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def database_uri(settings: Settings, password: str) -> str:
    """Connection string of the demo's PostgreSQL, for pods; `password` of letters and digits alone."""
    return f"postgresql://{POSTGRES}:{password}@{POSTGRES}.{settings.namespace}.svc:{PORT}/{POSTGRES}"


def secret(settings: Settings, password: str) -> Manifest:
    """The Secret that the LeaseQueue names, and that the server takes its password from."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": DATABASE_SECRET, "namespace": settings.namespace},
        "stringData": {"uri": database_uri(settings, password), "password": password},
    }


def postgres_service(settings: Settings) -> Manifest:
    """The name that pods reach the server by."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": POSTGRES, "namespace": settings.namespace},
        "spec": {"selector": {"app": POSTGRES}, "ports": [{"name": POSTGRES, "port": PORT}]},
    }


def postgres_pod(settings: Settings, image: str) -> Manifest:
    """One PostgreSQL server; its data lives as long as the pod, which is the demo."""
    mounts = [{"name": "data", "mountPath": "/var/lib/postgresql/data"}, {"name": "run", "mountPath": "/tmp"}]  # noqa: S108
    container = {
        "name": POSTGRES,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["postgres", "-c", f"max_connections={CONNECTIONS}"],
        "ports": [{"name": POSTGRES, "containerPort": PORT}],
        "env": [
            {
                "name": "POSTGRES_PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": DATABASE_SECRET, "key": "password"}},
            }
        ],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1, "failureThreshold": 60},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POSTGRES, "namespace": settings.namespace, "labels": {"app": POSTGRES}},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": POD_SECURITY,
            "containers": [container],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "run", "emptyDir": {}}],
        },
    }


def lease_queue(settings: Settings, worker_image: str) -> Manifest:
    """The LeaseQueue over the published table, which it adopts."""
    return {
        "apiVersion": "leasequeue.dev/v1alpha1",
        "kind": "LeaseQueue",
        "metadata": {"name": QUEUE, "namespace": settings.namespace},
        "spec": {
            "database": {
                "secretRef": {"name": DATABASE_SECRET, "key": "uri"},
                "schema": "public",
                "table": TABLE,
                "manageSchema": "Adopt",
                "confirmTable": f"public.{TABLE}",
            },
            "lease": {
                "lockTimeoutMs": settings.lease_seconds * 1000,
                "reclaimAfterSeconds": settings.reclaim_after_seconds,
                "maxInflight": settings.max_inflight,
                "maxInflightPolicy": "Enforce",
            },
            "worker": worker(settings, worker_image),
            "scaling": {
                "minReplicas": 0,
                "maxReplicas": settings.max_replicas,
                "pollPeriodSeconds": 2,
                "drainTargetSeconds": settings.drain_target_seconds,
                "scaleDownStabilizationSeconds": settings.stabilization_seconds,
            },
            "reclaimer": {"sweepIntervalSeconds": settings.sweep_seconds},
            "alerts": {"inflightWarningPercent": settings.warning_percent},
        },
    }


def worker(settings: Settings, image: str) -> Manifest:
    """`spec.worker`: the example's handler, in as many slots as the settings say."""
    return {
        "image": image,
        "handler": HANDLER,
        "concurrency": settings.concurrency,
        "terminationGracePeriodSeconds": 15,
        "env": [{"name": "DEMO_HANDLER_SECONDS", "value": str(settings.handler_seconds)}],
    }
