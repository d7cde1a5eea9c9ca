"""The ServiceAccount of a queue's pods: it has no rights, and its token is not mounted."""

from __future__ import annotations

from typing import Any

from leasequeue_operator.plan import names, pod
from leasequeue_operator.plan.spec import Queue


def build(queue: Queue) -> dict[str, Any]:
    """The ServiceAccount as it should be."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": pod.metadata(queue, names.service_account(queue.name), "identity"),
        "automountServiceAccountToken": False,
    }
