"""Why pods do not run, in the words of their own status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leasequeue.dsn import redact
from leasequeue_operator.plan.names import COMPONENT_LABEL
from leasequeue_operator.plan.problem import Problem

# Waiting reasons that do not pass by themselves, worst first.
_STUCK = (
    "InvalidImageName", "ErrImageNeverPull", "ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
)  # fmt: skip
_WAY_OUT = {
    "InvalidImageName": "correct spec.worker.image",
    "ErrImageNeverPull": "load the image onto the node, or set spec.worker.imagePullPolicy IfNotPresent",
    "ImagePullBackOff": "correct spec.worker.image or its pull secret",
    "ErrImagePull": "correct spec.worker.image or its pull secret",
    "CrashLoopBackOff": "see `kubectl logs --previous`",
}
_MESSAGE_LIMIT = 300
_WORD_LIMIT = 600
_JOB_LABEL = "batch.kubernetes.io/job-name"


def of_component(pods: Iterable[Mapping[str, Any]], component: str) -> list[Mapping[str, Any]]:
    """The pods of one component."""
    return [p for p in pods if (p["metadata"].get("labels") or {}).get(COMPONENT_LABEL) == component]


def fault(pods: Sequence[Mapping[str, Any]]) -> Problem | None:
    """The worst fault among pods; None when none is stuck."""
    found = [stuck for pod in pods for stuck in _stuck_containers(pod)]
    if found:
        reason, message, name = min(found, key=lambda f: (_STUCK.index(f[0]), f[2]))
        way_out = _WAY_OUT.get(reason, "see `kubectl describe pod`")
        return Problem(reason, f"Pod {name}: {message or reason}. Way out: {way_out}.")
    for pod in pods:
        unscheduled = _unschedulable(pod)
        if unscheduled is not None:
            return unscheduled
    return None


def last_word(pods: Iterable[Mapping[str, Any]], job: str) -> str:
    """Why the latest pod of a Job failed: the end of its log, in one line; empty where none failed or it said nothing."""
    ended = [
        terminated
        for pod in pods
        if (pod["metadata"].get("labels") or {}).get(_JOB_LABEL) == job
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        if (terminated := (container.get("state") or {}).get("terminated") or {}).get("exitCode")
    ]
    latest = max(ended, key=lambda end: str(end.get("finishedAt") or ""), default={})
    return " ".join(redact(str(latest.get("message") or "")).split())[-_WORD_LIMIT:]


def _stuck_containers(pod: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    status = pod.get("status") or {}
    found = []
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _STUCK:
            text = str(waiting.get("message") or "")[:_MESSAGE_LIMIT]
            found.append((str(waiting["reason"]), text, str(pod["metadata"]["name"])))
    return found


def _unschedulable(pod: Mapping[str, Any]) -> Problem | None:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            text = str(condition.get("message") or "")[:_MESSAGE_LIMIT]
            return Problem("Unschedulable", f"Pod {pod['metadata']['name']}: {text}")
    return None
