"""Signals to a container's processes from its node: SIGSTOP, SIGKILL, without warning and without grace."""

from __future__ import annotations

from typing import Any

from benchmarks.autoscaling.live.lab import until
from demo import kube

NAMESPACE = "live-node"
# Finds the processes by the container's id in their cgroup, as every container runtime writes it.
SCRIPT = """
import os, signal, sys
container, number, hit = sys.argv[1], getattr(signal, sys.argv[2]), []
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        if container in open(f"/proc/{name}/cgroup").read():
            os.kill(int(name), number)
            hit.append(name)
    except (FileNotFoundError, ProcessLookupError):
        pass
sys.exit(0 if hit else 1)
"""


def send(pod: dict[str, Any], signal: str, image: str) -> None:
    """Send a signal to the first container of a pod.

    Args:
        pod: as the API server shows it.
        signal: such as SIGKILL.
        image: any image with python3.

    Raises:
        AssertionError: no process of it was found, or the sending pod did not end.
    """
    _, _, container = str(pod["status"]["containerStatuses"][0]["containerID"]).partition("://")
    name = f"{signal.lower()}-{pod['metadata']['uid'][:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    kube.apply([
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}},
        _sender(name, pod["spec"]["nodeName"], image, ["python3", "-I", "-c", SCRIPT, container, signal]),
    ])  # fmt: skip

    def phase() -> str:
        found = str(kube.get("pod", name, "-n", NAMESPACE)[0].get("status", {}).get("phase", ""))
        return found if found in ("Succeeded", "Failed") else ""

    ended = until(f"{signal} sent", 60, phase, every_s=0.3)
    kube.kubectl("-n", NAMESPACE, "delete", "pod", name, "--wait=false")
    if ended != "Succeeded":
        raise AssertionError(f"no process of container {container[:12]} was found for {signal}")


def _sender(name: str, node: str, image: str, command: list[str]) -> dict[str, Any]:
    security = {"runAsUser": 0, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["KILL"]}}
    container = {
        "name": "send", "image": image, "imagePullPolicy": "IfNotPresent", "command": command, "securityContext": security,
    }  # fmt: skip
    spec = {
        "nodeName": node, "hostPID": True, "restartPolicy": "Never", "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0, "containers": [container],
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
