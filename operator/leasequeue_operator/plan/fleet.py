"""The worker pods as the planning of a decrease sees them: Kubernetes' side and the database's side in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leasequeue.workers import WorkerRow
from leasequeue_operator.plan import podfaults
from leasequeue_operator.plan.names import DELETION_COST
from leasequeue_operator.scaling.shrink import Fleet, Pod

Object = Mapping[str, Any]

# Lowest of the fleet, and far from what people set by hand.
COST = "-10000"
# A process that runs longer than an hour after its cordon is cut off, unless maxRuntimeSeconds says otherwise.
LIMIT_S = 3600.0
# Rows that stand for pods whose process has not registered: such a process inherits their cordon.
STAND_IN = "stand-in/"


def stand_in(pod_uid: str) -> str:
    """worker_id of the row that holds the cordon of a pod in which no process has registered yet."""
    return f"{STAND_IN}{pod_uid}"


def fleet(deployment: Object, pods: Sequence[Object], workers: Sequence[WorkerRow], limit_s: float) -> Fleet:
    """Deployment, pods and worker rows as one.

    Args:
        deployment: the worker Deployment as seen.
        pods: pods of the queue.
        workers: rows of the database.
        limit_s: the drain limit, seconds.
    """
    status = deployment.get("status") or {}
    alive = [p for p in podfaults.of_component(pods, "worker") if _alive(p)]
    rows: dict[str, list[WorkerRow]] = {}
    for row in workers:
        rows.setdefault(row.pod_uid or "", []).append(row)
    return Fleet(
        current=int(deployment.get("spec", {}).get("replicas") or 0),
        pods=[_pod(p, rows.get(p["metadata"]["uid"], [])) for p in alive],
        rollout=_rolls_out(deployment),
        existing=int(status.get("replicas") or 0),
        limit_s=limit_s,
    )


def limit_s(max_runtime_s: int | None) -> float:
    """How long a cordoned worker may go on with what it holds."""
    return LIMIT_S if max_runtime_s is None else float(max_runtime_s) + 60.0


def _alive(pod: Object) -> bool:
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not finished and not pod["metadata"].get("deletionTimestamp")


def _pod(pod: Object, rows: Sequence[WorkerRow]) -> Pod:
    meta, told = pod["metadata"], (pod.get("status") or {}).get("conditions") or ()
    processes = [row for row in rows if not row.worker_id.startswith(STAND_IN)]
    return Pod(
        uid=meta["uid"],
        name=meta["name"],
        created=str(meta.get("creationTimestamp", "")),
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in told),
        priced=(meta.get("annotations") or {}).get(DELETION_COST) == COST,
        leases=sum(row.leases for row in rows) if processes else None,
        cordoned=bool(rows) and all(row.cordoned for row in rows),
    )


def _rolls_out(deployment: Object) -> bool:
    """Whether pods of an older template are still there, or the controller has yet to see the newest template."""
    status = deployment.get("status") or {}
    if int(status.get("observedGeneration") or 0) == 0:
        return False
    return int(status.get("replicas") or 0) > int(status.get("updatedReplicas") or 0)
