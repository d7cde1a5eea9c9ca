"""The worker Deployment.

It never carries `spec.replicas`: the number of pods belongs to the scaler alone (see `apply.py`), so that a new image,
a restart of the operator, or a GitOps sync of the LeaseQueue cannot make it jump.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from leasequeue_operator.plan import names, pod, podtemplate
from leasequeue_operator.plan.spec import Queue

COMPONENT = "worker"
PROGRESS_DEADLINE_S = 600
# Most workers of the queue: part of the template, and no reason to roll it.
BOUND = "LEASEQUEUE_MAX_REPLICAS"
TEMPLATE = "leasequeue.dev/template"
# Time beyond the drain in which the worker hands back what still runs and exits.
HAND_BACK_S = 15


def build(queue: Queue, *, default_image: str, pull_secrets: tuple[str, ...] = ()) -> dict[str, Any]:
    """The Deployment as it should be, without replicas.

    Args:
        queue: the queue.
        default_image: image where the spec names none.
        pull_secrets: names of image pull Secrets to add.
    """
    labels = names.labels(queue.name, queue.uid, COMPONENT)
    template = {
        "metadata": {
            "labels": labels,
            "annotations": {"kubectl.kubernetes.io/default-container": podtemplate.WORKER},
        },
        "spec": _pod_spec(queue, default_image, pull_secrets),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": pod.metadata(queue, names.worker(queue.name), COMPONENT),
        "spec": {
            "selector": {"matchLabels": names.selector(queue.uid, COMPONENT)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": PROGRESS_DEADLINE_S,
            "template": podtemplate.merge(template, queue.spec.worker.pod_template),
        },
    }


def _pod_spec(queue: Queue, default_image: str, pull_secrets: tuple[str, ...]) -> dict[str, Any]:
    spec = {
        **pod.pod_defaults(queue),
        "terminationGracePeriodSeconds": queue.spec.worker.termination_grace_period_seconds + HAND_BACK_S,
        "containers": [_container(queue, default_image)],
        "volumes": pod.volumes(queue.spec.database, queue.spec.database.secret_ref),
    }
    if pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    return spec


def _container(queue: Queue, default_image: str) -> dict[str, Any]:
    worker = queue.spec.worker
    container = {
        "name": podtemplate.WORKER,
        "image": worker.image or default_image,
        "imagePullPolicy": worker.image_pull_policy,
        "command": ["leasequeue-worker"],
        "env": pod.environment(pod.defaults(), worker.env, pod.variables(_settings(queue)), _identity()),
        "ports": [{"name": "metrics", "containerPort": pod.HTTP_PORT, "protocol": "TCP"}],
        "startupProbe": _probe("/healthz", periodSeconds=1, failureThreshold=300),
        "livenessProbe": _probe("/healthz", periodSeconds=10, failureThreshold=6),
        # Short: a drained worker that is about to go says so by turning not ready.
        "readinessProbe": _probe("/readyz", periodSeconds=2, failureThreshold=1),
        "securityContext": pod.restricted(),
        "volumeMounts": pod.mounts(queue.spec.database),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if worker.resources:
        container["resources"] = worker.resources
    return container


def _settings(queue: Queue) -> dict[str, object]:
    worker = queue.spec.worker
    settings: dict[str, object] = {
        **pod.engine_settings(queue),
        **_handler(queue),
        "LEASEQUEUE_CONCURRENCY": worker.concurrency,
        "LEASEQUEUE_ISOLATION": worker.isolation,
        **pod.lanes(queue),
        "LEASEQUEUE_GRACE_S": worker.termination_grace_period_seconds,
        "LEASEQUEUE_HTTP_PORT": pod.HTTP_PORT,
        BOUND: max_replicas(queue),
    }
    if worker.max_runtime_seconds is not None:
        settings["LEASEQUEUE_MAX_RUNTIME_S"] = worker.max_runtime_seconds
    return settings


def kept(manifest: dict[str, Any], live: Mapping[str, Any] | None) -> dict[str, Any]:
    """The Deployment with the fleet bound that its pods run with, as long as nothing else of their template changes.

    Otherwise a person who moves maxReplicas would roll the whole fleet, and lowering it would end what runs instead of
    draining it. The bound only shapes how much workers fetch ahead; it is renewed with the next change of the template.

    Args:
        manifest: what `build` made.
        live: the Deployment as seen.
    """
    digest = _template_digest(manifest["spec"]["template"])
    meta = {**manifest["metadata"], "annotations": {**manifest["metadata"].get("annotations", {}), TEMPLATE: digest}}
    seen = live or {}
    running = _bound((seen.get("spec") or {}).get("template") or {})
    if running is None or (seen["metadata"].get("annotations") or {}).get(TEMPLATE) != digest:
        return {**manifest, "metadata": meta}
    template = copy.deepcopy(manifest["spec"]["template"])
    for variable in _variables(template):
        if variable["name"] == BOUND:
            variable["value"] = running
    return {**manifest, "metadata": meta, "spec": {**manifest["spec"], "template": template}}


def _template_digest(template: Mapping[str, Any]) -> str:
    """Digest of a template, whatever its fleet bound."""
    bare = copy.deepcopy(dict(template))
    for variable in _variables(bare):
        if variable["name"] == BOUND:
            variable["value"] = ""
    return hashlib.sha256(json.dumps(bare, sort_keys=True).encode()).hexdigest()[:16]


def _bound(template: Mapping[str, Any]) -> str | None:
    return next((v.get("value") for v in _variables(template) if v.get("name") == BOUND), None)


def _variables(template: Mapping[str, Any]) -> list[dict[str, Any]]:
    containers = (template.get("spec") or {}).get("containers") or ()
    return next((c.get("env") or [] for c in containers if c["name"] == podtemplate.WORKER), [])


def max_replicas(queue: Queue) -> int:
    """Bound on the pods that workers share max_inflight by: the most the spec can ask for, as the next power of two.

    New pods get it only with another change of their template, see `kept`.
    """
    scaling = queue.spec.scaling
    most = max(scaling.max_replicas, *(s.min_replicas or 0 for s in scaling.schedules), 1)
    # Not spec.replicas in mode Manual: each `kubectl scale` would roll the fleet.
    return 1 << (most - 1).bit_length()


def _handler(queue: Queue) -> dict[str, object]:
    worker = queue.spec.worker
    if worker.exec_ is not None:
        return {"LEASEQUEUE_EXEC": json.dumps(worker.exec_.command, ensure_ascii=False)}
    if worker.http is not None:
        return {"LEASEQUEUE_HTTP_URL": worker.http.url}
    return {"LEASEQUEUE_HANDLER": worker.handler or ""}


def _identity() -> list[dict[str, Any]]:
    return [
        pod.from_field("POD_NAME", "metadata.name"),
        pod.from_field("POD_UID", "metadata.uid"),
        pod.from_field("NODE", "spec.nodeName"),
    ]


def _probe(path: str, **times: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "metrics", "scheme": "HTTP"}, "timeoutSeconds": 5, **times}
