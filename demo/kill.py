"""Killing one worker from its node, as an out-of-memory killer would: SIGKILL, without warning and without grace.

A worker is process 1 of its container and immune to SIGKILL from inside. So a pod that sees the node's processes sends it,
in a namespace of its own that allows this; the worker's namespace stays restricted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from demo import kube
from demo.errors import DemoError
from demo.manifests import DEMO_LABEL, NODE, Manifest

WORKER_CONTAINER = "worker"
NODE_NAMESPACE = "leasequeue-demo-node"
WAIT_SECONDS = 60.0
# Finds the container's processes by its id in their cgroup, as every container runtime writes it.
KILL_SCRIPT = """
import os, signal, sys
container, killed = sys.argv[1], []
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        if container in open(f"/proc/{name}/cgroup").read():
            os.kill(int(name), signal.SIGKILL)
            killed.append(name)
    except (FileNotFoundError, ProcessLookupError):
        pass
print("SIGKILL sent to", *killed)
sys.exit(0 if killed else 1)
"""


@dataclass(frozen=True, slots=True)
class Victim:
    """A worker to kill: its pod, node, container and identity, and the leases it held when it was chosen."""

    pod: str
    node: str
    container_id: str
    worker_id: str
    leases: int


@dataclass(frozen=True, slots=True)
class WorkerLeases:
    """Leases of one worker process, and its pod."""

    worker_id: str
    pod: str
    leases: int


def choose(held: Iterable[WorkerLeases], pods: Iterable[Mapping[str, Any]]) -> Victim | None:
    """The worker with most leases among the pods that run, or None where none has any."""
    running = {pod["metadata"]["name"]: pod for pod in pods if container_id(pod) and is_ready(pod)}
    candidates = [worker for worker in held if worker.pod in running and worker.leases > 0]
    if not candidates:
        return None
    worker = max(candidates, key=lambda w: (w.leases, w.worker_id))
    pod = running[worker.pod]
    return Victim(worker.pod, pod["spec"]["nodeName"], container_id(pod) or "", worker.worker_id, worker.leases)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is ready and not on its way out."""
    conditions = pod.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def container_id(pod: Mapping[str, Any]) -> str | None:
    """Id of a pod's running worker container, without the runtime's name, or None."""
    status = _worker_status(pod)
    if status is None or "running" not in status.get("state", {}):
        return None
    _, _, found = str(status.get("containerID", "")).partition("://")
    return found or None


def exit_code(pod: Mapping[str, Any]) -> int | None:
    """How the worker container of a pod last ended, or None while Kubernetes has not said."""
    status = _worker_status(pod) or {}
    for state in (status.get("lastState", {}), status.get("state", {})):
        if "terminated" in state:
            code: int = state["terminated"]["exitCode"]
            return code
    return None


def _worker_status(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return next((status for status in statuses if status["name"] == WORKER_CONTAINER), None)


def node_namespace() -> Manifest:
    """The namespace of the pod that kills; it alone may see the node's processes."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged", DEMO_LABEL: NODE}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NODE_NAMESPACE, "labels": labels}}


def killer_pod(victim: Victim, name: str, image: str) -> Manifest:
    """A pod on the victim's node that sends SIGKILL to the victim's container and ends."""
    container = {
        "name": "kill",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", "-c", KILL_SCRIPT, victim.container_id],
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["KILL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NODE_NAMESPACE},
        "spec": {
            "nodeName": victim.node,
            "hostPID": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def kill(victim: Victim, name: str, image: str) -> str:
    """Kill the victim; returns what the killing pod printed.

    Args:
        name: of the killing pod.
        image: any image with python3.

    Raises:
        DemoError: no process of the victim was found, or the pod did not end within 60 s.
    """
    kube.apply([killer_pod(victim, name, image)])
    deadline = time.monotonic() + WAIT_SECONDS
    while (phase := _phase(name)) not in ("Succeeded", "Failed"):
        if time.monotonic() > deadline:
            raise DemoError(f"pod {name} in {NODE_NAMESPACE} is {phase} after {WAIT_SECONDS:.0f} s: see kubectl describe")
        time.sleep(0.3)
    said = kube.kubectl("-n", NODE_NAMESPACE, "logs", name).strip()
    if phase == "Failed":
        raise DemoError(f"pod {name} could not kill container {victim.container_id[:12]} of {victim.pod}: {said}")
    return said


def _phase(name: str) -> str:
    pod = kube.get("pod", name, "-n", NODE_NAMESPACE)[0]
    return str(pod.get("status", {}).get("phase", "Pending"))
