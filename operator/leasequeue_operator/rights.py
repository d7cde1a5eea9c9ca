"""Every right the operator uses, and no other: the manifests are checked against this list, and so is the cluster at start.

Secrets are read by `get` alone: a list would hand the operator every Secret of the namespace at once.
Nothing is deleted: children go with their owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on one resource (`resource` or `resource/subresource`). `optional`: only an extra goes without it."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    optional: bool = False


RIGHTS = (
    Right("leasequeue.dev", "leasequeues", ("list", "watch"), "read the queues"),
    Right("leasequeue.dev", "leasequeues/status", ("patch",), "write their status"),
    Right("apps", "deployments", ("get", "list", "watch", "create", "patch"), "make and watch the workers"),
    Right("apps", "deployments/scale", ("patch",), "set the number of workers"),
    Right("batch", "cronjobs", ("get", "list", "watch", "create", "patch"), "make and watch the reclaimer"),
    Right("batch", "jobs", ("get", "list", "watch", "create"), "make the schema Job, see runs of the reclaimer"),
    Right("", "pods", ("list", "watch", "patch"), "say why workers do not start, mark those that may go (deletion cost)"),
    Right("", "serviceaccounts", ("get", "create", "patch"), "make the pods' ServiceAccount, which has no rights"),
    Right("", "secrets", ("get",), "read the database connection"),
    Right("", "events", ("create",), "tell about transitions", optional=True),
    Right("autoscaling", "horizontalpodautoscalers", ("list",), "stand down where another autoscaler acts", optional=True),
    Right("monitoring.coreos.com", "podmonitors", ("get", "create", "patch"), "make the PodMonitor", optional=True),
)


# In the operator's own namespace, where it is one of several replicas.
ELECTION = Right("coordination.k8s.io", "leases", ("get", "create", "patch"), "elect the replica that acts")


def needed_to_start(right: Right, verb: str) -> bool:
    """Whether the operator waits for it: what it cannot see it must not act on. Without any other right it does what it can."""
    return verb in ("list", "watch") and not right.optional


def single_rights() -> Iterator[tuple[Right, str]]:
    """Each right with each of its verbs."""
    for right in RIGHTS:
        for verb in right.verbs:
            yield right, verb
