"""Names and labels of a queue's children.

Limits: label values 63 (RFC 1123), CronJob 52 since its controller appends 11 characters
(kubernetes/kubernetes#50850), Deployment 46 so that pod names (`-<10>-<5>`) keep to 63 and can serve as host names.
A name that does not fit, or has dots, is cut and gets a hash of the whole name, so that two queues never share a child.
"""

from __future__ import annotations

import hashlib

MANAGER = "leasequeue-operator"
# Annotation of a pod; the ReplicaSet controller removes the lowest first.
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
UID_LABEL = "leasequeue.dev/queue-uid"
QUEUE_LABEL = "leasequeue.dev/queue"
COMPONENT_LABEL = "leasequeue.dev/component"

_DEPLOYMENT_LIMIT = 46
_CRONJOB_LIMIT = 52
_LABEL_LIMIT = 63
_HASH = 8


def short_hash(text: str) -> str:
    """First 8 hex digits of SHA-256: names one of some thousand objects, protects nothing."""
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]


def cut(name: str, suffix: str, limit: int) -> str:
    """`name + suffix`, cut and hashed where that is longer than `limit` or where `name` has dots.

    Args:
        name: a DNS subdomain.
        suffix: kept whole.
        limit: most characters of the result, at least len(suffix) + 10.
    """
    whole = name + suffix
    if len(whole) <= limit and "." not in name:
        return whole
    room = limit - len(suffix) - _HASH - 1
    head = name.replace(".", "-")[:room].rstrip("-")
    return f"{head}-{short_hash(name)}{suffix}"


def worker(queue: str) -> str:
    """Name of the worker Deployment."""
    return cut(queue, "-worker", _DEPLOYMENT_LIMIT)


def reclaimer(queue: str) -> str:
    """Name of the reclaimer CronJob."""
    return cut(queue, "-reclaimer", _CRONJOB_LIMIT)


def service_account(queue: str) -> str:
    """Name of the ServiceAccount of all pods of the queue."""
    return cut(queue, "-leasequeue", _CRONJOB_LIMIT)


def pod_monitor(queue: str) -> str:
    """Name of the PodMonitor."""
    return cut(queue, "-worker", _CRONJOB_LIMIT)


def schema_job(queue: str, inputs: str) -> str:
    """Name of the schema Job: other `inputs` (image, spec, Secret version) make another Job."""
    return cut(queue, f"-schema-{short_hash(inputs)}", _CRONJOB_LIMIT)


def label_value(text: str) -> str:
    """`text` as a label value, cut and hashed where it is longer than 63."""
    if len(text) <= _LABEL_LIMIT:
        return text
    return f"{text[: _LABEL_LIMIT - _HASH - 1].rstrip('-_.')}-{short_hash(text)}"


def selector(uid: str, component: str) -> dict[str, str]:
    """Labels that select a queue's pods. Immutable in a Deployment, so nothing that ever changes is among them."""
    return {UID_LABEL: uid, COMPONENT_LABEL: component}


def labels(queue: str, uid: str, component: str) -> dict[str, str]:
    """Labels of a child and of its pods: ours alone, none copied from the user's object."""
    return {
        **selector(uid, component),
        QUEUE_LABEL: label_value(queue),
        "app.kubernetes.io/name": "leasequeue",
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": MANAGER,
    }


def selector_text(uid: str, component: str) -> str:
    """The selector as text, for `status.selector` and list calls."""
    return ",".join(f"{k}={v}" for k, v in selector(uid, component).items())
