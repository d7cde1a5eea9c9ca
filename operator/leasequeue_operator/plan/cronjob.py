"""The reclaimer CronJob: independent of the operator, the workers and `spec.suspend`.

`Forbid` alone lets one hung run stop all later ones (kubernetes/kubernetes#58748), so each run has a deadline shorter
than two periods; sidecars would keep the Job alive for ever (istio/istio#11659), so the usual injectors are told to
stay out.
"""

from __future__ import annotations

from typing import Any

from leasequeue.config import SETTINGS
from leasequeue_operator.plan import names, pod
from leasequeue_operator.plan.spec import Queue, SecretRef

COMPONENT = "reclaimer"
STARTING_DEADLINE_S = 300
ACTIVE_DEADLINE_S = 110
TTL_S = 300
# A run sweeps for this long, so that it is over when the next minute starts its own.
RUN_FOR_S = 50

NO_SIDECARS_ANNOTATIONS = {
    "sidecar.istio.io/inject": "false",
    "linkerd.io/inject": "disabled",
    "consul.hashicorp.com/connect-inject": "false",
}
NO_SIDECARS_LABELS = {"sidecar.istio.io/inject": "false", "kuma.io/sidecar-injection": "disabled"}


def build(queue: Queue, *, image: str, pull_policy: str, pull_secrets: tuple[str, ...] = ()) -> dict[str, Any]:
    """The CronJob as it should be.

    Args:
        queue: the queue.
        image: image of the reclaimer.
        pull_policy: when the kubelet pulls it.
        pull_secrets: names of image pull Secrets to add.
    """
    reclaimer = queue.spec.reclaimer
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": pod.metadata(queue, names.reclaimer(queue.name), COMPONENT),
        "spec": {
            "schedule": reclaimer.schedule,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": STARTING_DEADLINE_S,
            "suspend": reclaimer.suspend,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {
                "metadata": {"labels": names.labels(queue.name, queue.uid, COMPONENT)},
                "spec": {
                    "activeDeadlineSeconds": ACTIVE_DEADLINE_S,
                    "backoffLimit": 0,
                    "ttlSecondsAfterFinished": TTL_S,
                    "template": job_template(
                        queue,
                        COMPONENT,
                        _container(queue, image, pull_policy),
                        queue.spec.database.secret_ref,
                        pull_secrets,
                    ),
                },
            },
        },
    }


def job_template(
    queue: Queue, component: str, container: dict[str, Any], secret: SecretRef, pull_secrets: tuple[str, ...]
) -> dict[str, Any]:
    """Pod template of a Job of ours: one container, no sidecars, no restart in place."""
    spec = {
        **pod.pod_defaults(queue),
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": pod.volumes(queue.spec.database, secret),
    }
    if pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
    return {
        "metadata": {
            "labels": {**names.labels(queue.name, queue.uid, component), **NO_SIDECARS_LABELS},
            "annotations": dict(NO_SIDECARS_ANNOTATIONS),
        },
        "spec": spec,
    }


def _container(queue: Queue, image: str, pull_policy: str) -> dict[str, Any]:
    return {
        "name": "reclaimer",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["leasequeue-reclaimer"],
        "env": pod.environment(pod.defaults(), pod.variables(_settings(queue)), [pod.from_field("POD_NAME", "metadata.name")]),
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": pod.restricted(),
        "volumeMounts": pod.mounts(queue.spec.database),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _settings(queue: Queue) -> dict[str, object]:
    reclaimer = queue.spec.reclaimer
    settings: dict[str, object] = {
        **pod.engine_settings(queue),
        SETTINGS["reclaim_batch"].env: reclaimer.batch,
        "LEASEQUEUE_SWEEP_INTERVAL_S": reclaimer.sweep_interval_seconds,
        "LEASEQUEUE_RUN_FOR_S": RUN_FOR_S if reclaimer.sweep_interval_seconds else 0,
    }
    if reclaimer.retention.resolved_after_seconds is not None:
        settings["LEASEQUEUE_RETENTION_RESOLVED_AFTER_S"] = reclaimer.retention.resolved_after_seconds
    return settings
