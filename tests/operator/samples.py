"""Plain data the operator's unit tests share."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from leasequeue.owner import OwnedBy
from leasequeue.sample import Stats
from leasequeue.states import State
from leasequeue_operator.observe.view import DatabaseView
from leasequeue_operator.plan.spec import Queue, read_queue

NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
UID = "11111111-2222-3333-4444-555555555555"


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` with `above` on it, objects merged."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def body(name: str = "orders", uid: str = UID, status: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A LeaseQueue as the API server returns it; `spec` is merged into a small valid one."""
    least = {
        "database": {"secretRef": {"name": "db"}, "schema": "public", "table": "jobs"},
        "worker": {"handler": "pkg.mod:fn"},
    }
    return {
        "apiVersion": "leasequeue.dev/v1alpha1",
        "kind": "LeaseQueue",
        "metadata": {"namespace": "team", "name": name, "uid": uid, "generation": 3, "resourceVersion": "10"},
        "spec": merged(least, spec),
        "status": dict(status or {}),
    }


def queue(name: str = "orders", **spec: Any) -> Queue:
    """The parsed queue."""
    return read_queue(body(name, **spec))


def stats(**values: Any) -> Stats:
    """A sample; counts by state in lower case (`pending=3`)."""
    counts = {state: values.pop(state.value.lower(), 0) for state in State}
    plain: dict[str, Any] = {
        "now": NOW, "resolved_exact": True, "scheduled_due": 0, "expired": 0, "oldest_expired_at": None,
        "oldest_pending_at": None, "next_due_at": None, "claimed_total": 0, "finished_total": 0, "lost_total": 0,
        "busy_ms_total": 0, "reclaimed_total": 0, "repaired_total": 0, "swept_at": NOW - timedelta(seconds=20),
        "workers": 0, "workers_busy": 0, "workers_cordoned": 0, "held": 0,
    }  # fmt: skip
    return Stats(counts=counts, **{**plain, **values})


def view(**values: Any) -> DatabaseView:
    """A look at the database that went well."""
    sample = values.pop("stats", None) or stats(**values)
    at = NOW.timestamp()
    owner = OwnedBy(UID, "team", "orders", mine=True)
    return DatabaseView(at=at, stats=sample, stats_at=at, owner=owner, schema_version=1)


def deployment(desired: int = 2, ready: int = 2, **status: Any) -> dict[str, Any]:
    """A worker Deployment as seen."""
    return {
        "metadata": {"namespace": "team", "name": "orders-worker", "uid": "d", "generation": 1, "resourceVersion": "5"},
        "spec": {"replicas": desired},
        "status": {"replicas": desired, "readyReplicas": ready, **status},
    }


def cron_job(age_s: float = 3600) -> dict[str, Any]:
    """A reclaimer CronJob as seen."""
    made = (NOW - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"namespace": "team", "name": "orders-reclaimer", "uid": "c", "creationTimestamp": made}}


def ended_pod(job: str, at: str, message: str) -> dict[str, Any]:
    """A pod of a schema Job that ended with exit code 1 at `at`, `message` being the end of its log."""
    ended = {"exitCode": 1, "reason": "Error", "finishedAt": at, "message": message}
    found = pod("schema", containerStatuses=[{"name": "schema", "state": {"terminated": ended}}])
    found["metadata"]["name"] = f"{job}-{at}"
    found["metadata"]["labels"]["batch.kubernetes.io/job-name"] = job
    return found


def pod(component: str, waiting: str | None = None, message: str = "", **status: Any) -> dict[str, Any]:
    """A pod, waiting for `waiting` if given."""
    containers = [{"name": "x", "state": {"waiting": {"reason": waiting, "message": message}}}] if waiting else []
    return {
        "metadata": {
            "namespace": "team", "name": f"orders-{component}-1",
            "labels": {"leasequeue.dev/queue-uid": UID, "leasequeue.dev/component": component},
        },
        "status": {"containerStatuses": containers, **status},
    }  # fmt: skip
