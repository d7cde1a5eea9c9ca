"""The conditions of a LeaseQueue: every one is set on first sight, each fault names the field or object and the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from leasequeue.tls import Trust
from leasequeue_operator.plan import inflight, podfaults, reclaim
from leasequeue_operator.plan.observation import Observation
from leasequeue_operator.plan.problem import Problem

Status = Literal["True", "False", "Unknown"]

TYPES = (
    "Ready", "Accepted", "DatabaseReachable", "SchemaReady", "WorkersAvailable", "ReclaimerHealthy", "ScalingActive",
    "ScalingLimited", "InflightWithinLimit", "LanesBlocked", "TLSNotVerified", "Suspended",
)  # fmt: skip
# Limiters of a decision that keep the fleet from what the depth asks for.
_LIMITS = {
    "max_replicas": ("MaxReplicas", "spec.scaling.maxReplicas holds the fleet below what the depth asks for"),
    "min_replicas": ("MinReplicas", "spec.scaling.minReplicas holds the fleet above what the depth asks for"),
    "max_inflight": ("MaxInflight", "spec.lease.maxInflight holds the fleet below what the depth asks for"),
    "stale_leases": ("StaleLeases", "Expired leases fill lease.maxInflight: see the condition ReclaimerHealthy"),
    "step_up": ("StepUp", "The fleet grows to what the depth asks for, in steps"),
    "step_down": ("StepDown", "The fleet shrinks to what the depth asks for, in steps"),
    "stabilization": ("Stabilization", "A lower need has to last for scaling.scaleDownStabilizationSeconds"),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, without its times."""

    type: str
    status: Status
    reason: str
    message: str


def conditions(o: Observation, previous: Mapping[str, Mapping[str, Any]]) -> list[Condition]:
    """All conditions, in the order of `TYPES`.

    Args:
        o: what was seen.
        previous: the conditions told last, by type; some have a margin against flapping.
    """
    parts = [
        _accepted(o),
        _database(o),
        _schema(o),
        _workers(o),
        _reclaimer(o),
        _scaling_active(o),
        _scaling_limited(o),
        _inflight(o, previous),
        _lanes(o),
        _tls(o),
        _suspended(o),
    ]
    return [_ready(o, {c.type: c for c in parts}), *parts]


def invalid(problem: Problem) -> list[Condition]:
    """Conditions of a LeaseQueue whose spec cannot even be read: nothing else is known."""
    rest = [Condition(t, "Unknown", problem.reason, "See the condition Accepted.") for t in TYPES[2:]]
    told = [Condition(t, "False", problem.reason, problem.message) for t in TYPES[:2]]
    return [*told, *rest]


def merge(
    previous: Sequence[Mapping[str, Any]], found: Sequence[Condition], generation: int, now: float
) -> list[dict[str, Any]]:
    """The conditions as status entries; `lastTransitionTime` moves with `status` alone."""
    before = {c.get("type"): c for c in previous}
    moment = timestamp(now)
    merged = []
    for c in found:
        old = before.get(c.type, {})
        same = old.get("status") == c.status
        merged.append({
            "type": c.type, "status": c.status, "observedGeneration": generation,
            "lastTransitionTime": old["lastTransitionTime"] if same and old.get("lastTransitionTime") else moment,
            "reason": c.reason, "message": c.message,
        })  # fmt: skip
    return merged


def timestamp(now: float) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes times."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ready(o: Observation, parts: Mapping[str, Condition]) -> Condition:
    for kind in ("Accepted", "DatabaseReachable", "SchemaReady", "WorkersAvailable", "ReclaimerHealthy"):
        part = parts[kind]
        if part.status == "False":
            return Condition("Ready", "False", part.reason, part.message)
    for kind in ("DatabaseReachable", "SchemaReady"):
        part = parts[kind]
        if part.status == "Unknown":
            return Condition("Ready", "Unknown", part.reason, part.message)
    if o.queue.spec.suspend:
        return Condition("Ready", "True", "Suspended", "Suspended as asked for: no worker runs, the reclaimer goes on.")
    return Condition("Ready", "True", "Ready", "The queue works as its spec says.")


def _accepted(o: Observation) -> Condition:
    if o.refused is not None:
        return Condition("Accepted", "False", o.refused.reason, o.refused.message)
    for problem in o.child_problems.values():
        return Condition("Accepted", "False", problem.reason, problem.message)
    return Condition("Accepted", "True", "Accepted", "The spec is valid and acted on.")


def _database(o: Observation) -> Condition:
    if o.secret is not None:
        return Condition("DatabaseReachable", "False", o.secret.reason, o.secret.message)
    if o.database is None:
        return Condition("DatabaseReachable", "Unknown", "NotTried", "The database has not been looked at yet.")
    if o.database.unreachable is not None:
        problem = o.database.unreachable
        held = "" if o.deployment is None else f" Workers are held at {o.desired}."
        return Condition("DatabaseReachable", "False", problem.reason, problem.message + held)
    return Condition("DatabaseReachable", "True", "Connected", "The database answers.")


def _schema(o: Observation) -> Condition:
    view = o.database
    if view is None or view.unreachable is not None:
        return Condition("SchemaReady", "Unknown", "DatabaseUnreachable", "The table cannot be looked at.")
    if view.unready is not None:
        job = _schema_job(o)
        return job or Condition("SchemaReady", "False", view.unready.reason, view.unready.message)
    if view.stats is None:
        return Condition("SchemaReady", "Unknown", "NotTried", "The table has not been looked at yet.")
    if view.gaps:
        way_out = f" Run: {view.command}" if view.command else ""
        return Condition("SchemaReady", "True", "Incomplete", f"The queue works, but: {'; '.join(view.gaps)}.{way_out}")
    return Condition("SchemaReady", "True", "Adopted", f"Table {o.queue.table} is a lease queue.")


def _schema_job(o: Observation) -> Condition | None:
    if o.schema_job is None:
        return None
    for job in o.jobs:
        if job["metadata"]["name"] != o.schema_job:
            continue
        told = {c["type"]: c for c in (job.get("status") or {}).get("conditions") or () if c.get("status") == "True"}
        why = podfaults.last_word(o.pods, o.schema_job)
        if "Failed" in told:
            text = (
                f"Job {o.schema_job} failed: {why or told['Failed'].get('message', '')}. See its log; it is tried again later."
            )
            return Condition("SchemaReady", "False", "SchemaJobFailed", text)
        if why:
            text = f"Job {o.schema_job} failed and is tried again: {why}"
            return Condition("SchemaReady", "False", "SchemaJobFailing", text)
        stuck = podfaults.fault(podfaults.of_component(o.pods, "schema"))
        if stuck is not None:
            return Condition("SchemaReady", "False", stuck.reason, stuck.message)
    text = f"Job {o.schema_job} makes table {o.queue.table} a lease queue."
    return Condition("SchemaReady", "False", "SchemaJobRunning", text)


def _workers(o: Observation) -> Condition:
    kind = "WorkersAvailable"
    if o.deployment is None:
        return Condition(kind, "Unknown", "NoDeployment", "The worker Deployment has not been made yet.")
    told = {c["type"]: c for c in (o.deployment.get("status") or {}).get("conditions") or ()}
    failure = told.get("ReplicaFailure", {})
    if failure.get("status") == "True":
        text = f"{o.ready} of {o.desired} workers are ready. {failure.get('message', '')}"
        return Condition(kind, "False", str(failure.get("reason") or "ReplicaFailure"), text)
    stuck = podfaults.fault(podfaults.of_component(o.pods, "worker"))
    if stuck is not None and o.desired > 0:
        return Condition(kind, "False", stuck.reason, f"{o.ready} of {o.desired} workers are ready. {stuck.message}")
    if o.desired == 0:
        return Condition(kind, "True", "ScaledToZero", "No worker is wanted.")
    if o.ready >= o.desired:
        return Condition(kind, "True", "AllReady", "All workers that are wanted are ready.")
    if o.ready > 0:
        return Condition(kind, "True", "Starting", "Some workers are ready, others start.")
    progress = told.get("Progressing", {})
    if progress.get("status") == "False":
        text = "No worker has become ready for a long time: see `kubectl describe pod` and `kubectl logs` of a worker pod."
        return Condition(kind, "False", str(progress.get("reason") or "ProgressDeadlineExceeded"), text)
    return Condition(kind, "Unknown", "Starting", "Workers start; none is ready yet.")


def _reclaimer(o: Observation) -> Condition:
    kind = "ReclaimerHealthy"
    if not o.owner:
        return Condition(kind, "True", "RunByOwner", "The LeaseQueue that owns the table runs the reclaimer.")
    if o.queue.spec.reclaimer.suspend:
        return Condition(kind, "Unknown", "Suspended", "spec.reclaimer.suspend is set: leases of dead workers stay.")
    stuck = podfaults.fault(podfaults.of_component(o.pods, "reclaimer"))
    if stuck is not None:
        return Condition(kind, "False", stuck.reason, stuck.message)
    stats = o.database.stats if o.database is not None else None
    if o.cron_job is None or stats is None:
        return Condition(kind, "Unknown", "NotStarted", "The reclaimer has not been made yet.")
    made = datetime.fromisoformat(o.cron_job["metadata"]["creationTimestamp"])
    limit_s = reclaim.overdue_s(o.queue, o.now)
    since_s = (stats.now - (stats.swept_at or made)).total_seconds()
    if since_s <= limit_s:
        if stats.swept_at is None:
            return Condition(kind, "Unknown", "NotStarted", "The reclaimer has not finished a run yet.")
        return Condition(kind, "True", "Running", "The reclaimer ran when it should have.")
    name = o.cron_job["metadata"]["name"]
    text = f"No run of CronJob {name} ended well for more than {limit_s:.0f} s. {_job_hint(o)}"
    return Condition(kind, "False", "Overdue" if stats.swept_at else "NeverRan", text)


def _job_hint(o: Observation) -> str:
    """Where to look: a Job whose pods are refused (quota) has neither pods nor a condition that says so."""
    jobs = [j for j in podfaults.of_component(o.jobs, "reclaimer") if not (j.get("status") or {}).get("completionTime")]
    if not jobs:
        return "See `kubectl describe cronjob`."
    newest = max(jobs, key=lambda j: str(j["metadata"].get("creationTimestamp", "")))
    return f"See `kubectl describe job {newest['metadata']['name']}` (quota, policy) and its log."


def _scaling_active(o: Observation) -> Condition:
    kind = "ScalingActive"
    if o.autoscaler is not None:
        text = f"{o.autoscaler} scales the worker Deployment; the operator stands down. Delete it, or use scaling.mode Manual."
        return Condition(kind, "False", "ReplicasManagedElsewhere", text)
    if o.queue.spec.suspend:
        return Condition(kind, "False", "Suspended", "spec.suspend is set.")
    if o.queue.spec.scaling.mode == "Manual":
        return Condition(kind, "False", "Manual", "scaling.mode is Manual: spec.replicas decides.")
    if o.decision is None or o.decision.limiter in ("database_error", "stale_sample"):
        return Condition(kind, "False", "NoSample", "The depth is not known; the number of workers is held.")
    return Condition(kind, "True", "Auto", "The workers follow the queue; spec.replicas is ignored in mode Auto.")


def _scaling_limited(o: Observation) -> Condition:
    kind = "ScalingLimited"
    limiter = o.decision.limiter if o.decision is not None else ""
    if limiter.startswith("schedule:"):
        name = limiter.partition(":")[2]
        return Condition(kind, "True", "Schedule", f"The schedule {name} bounds the fleet.")
    if limiter in _LIMITS:
        reason, text = _LIMITS[limiter]
        return Condition(kind, "True", reason, f"{text}.")
    return Condition(kind, "False", "WithinLimits", "Nothing holds the fleet from what the depth asks for.")


def _inflight(o: Observation, previous: Mapping[str, Mapping[str, Any]]) -> Condition:
    kind = "InflightWithinLimit"
    stats = o.database.stats if o.database is not None else None
    if stats is None:
        return Condition(kind, "Unknown", "NoSample", "The number of items in flight is not known.")
    spec = o.queue.spec
    reason = inflight.level(stats.assigned, spec, previous.get(kind, {}).get("reason"))
    text = f"{stats.assigned} of {spec.lease.max_inflight} items are in flight."
    if reason == inflight.WITHIN:
        return Condition(kind, "True", reason, text)
    thresholds = {
        inflight.WARNING: f"at or above alerts.inflightWarningPercent ({spec.alerts.inflight_warning_percent} %)",
        inflight.CRITICAL: f"at or above alerts.inflightCriticalPercent ({spec.alerts.inflight_critical_percent} %)",
        inflight.EXCEEDED: f"above lease.maxInflight (policy {spec.lease.max_inflight_policy})",
    }
    return Condition(kind, "False", reason, f"{text} That is {thresholds[reason]}.")


def _lanes(o: Observation) -> Condition:
    kind, lanes = "LanesBlocked", o.queue.spec.lease.lanes
    if not lanes.strict:
        return Condition(kind, "False", "NotStrict", "Lanes are not strict: no item waits behind another.")
    if lanes.on_blocked_head == "Pass":
        return Condition(kind, "False", "Pass", "Items pass a head that is SCHEDULED, FAILED or REPAIR.")
    stats = o.database.stats if o.database is not None else None
    if stats is None or stats.lanes is None:
        return Condition(kind, "Unknown", "NoSample", "The lanes are not known.")
    if stats.lanes.blocked:
        text = f"{stats.lanes.blocked} lanes wait behind a FAILED or REPAIR item. See them with `leasequeue list`, then"
        return Condition(kind, "True", "HeadBlocked", f"{text} `leasequeue requeue` or delete the heads.")
    return Condition(kind, "False", "NoneBlocked", "No lane waits behind an item that needs a person.")


def _tls(o: Observation) -> Condition:
    kind, connection = "TLSNotVerified", o.connection
    if connection is None:
        return Condition(kind, "Unknown", "NotTried", "The connection is not known.")
    if connection.trust is Trust.LOCAL:
        return Condition(kind, "False", "LocalSocket", "The connection crosses no network.")
    if connection.trust is Trust.VERIFIED:
        return Condition(kind, "False", "Verified", f"sslmode {connection.mode}: the server's certificate is checked.")
    way_out = "Set spec.database.sslMode: verify-full with caSecretRef or systemCA."
    if connection.trust is Trust.ENCRYPTED:
        return Condition(kind, "True", "NotVerified", f"sslmode require encrypts, but to whoever answers. {way_out}")
    text = f"sslmode {connection.mode} lets passwords and items cross the network in the clear. {way_out}"
    return Condition(kind, "True", "NotEncrypted", text)


def _suspended(o: Observation) -> Condition:
    if not o.queue.spec.suspend:
        return Condition("Suspended", "False", "NotSuspended", "spec.suspend is not set.")
    if o.existing > 0:
        return Condition("Suspended", "True", "Draining", "Workers finish what they hold.")
    return Condition("Suspended", "True", "Drained", "No worker runs; the reclaimer goes on.")
