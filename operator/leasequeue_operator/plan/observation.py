"""Everything one reconciliation knows: the input of conditions, events, status and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leasequeue_operator.observe.secret import Connection
from leasequeue_operator.observe.view import DatabaseView
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import Queue
from leasequeue_operator.scaling.decide import Decision

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen and done.

    Args:
        now: wall clock, seconds since 1970 UTC.
        queue: the LeaseQueue.
        refused: why the spec is not acted on (invalid, conflict, a child's name taken); None when it is.
        secret: what is wrong with the Secret.
        connection: how the database is reached; None when that is not known.
        database: the database as last seen; None when it was never looked at.
        owner: True when this LeaseQueue owns the table (and so runs reclaimer and alerts).
        deployment: the worker Deployment; None where there is none.
        cron_job: the reclaimer CronJob.
        jobs: Jobs of reclaimer and schema.
        pods: pods of workers, reclaimer and schema.
        child_problems: what keeps a child from being as planned, by component.
        schema_job: name of the schema Job that should be there, None when none is needed.
        decision: the number of workers.
        applied: pods that the Deployment asks for after this round: more than decided while workers drain; None when nothing
            was to be scaled.
        draining: workers that are cordoned and finish what they hold.
        busy_kills: leases that ended because their worker was removed at its drain limit.
        autoscaler: name of another autoscaler that acts on the Deployment.
    """

    now: float
    queue: Queue
    refused: Problem | None = None
    secret: Problem | None = None
    connection: Connection | None = None
    database: DatabaseView | None = None
    owner: bool = True
    deployment: Object | None = None
    cron_job: Object | None = None
    jobs: Sequence[Object] = ()
    pods: Sequence[Object] = ()
    child_problems: Mapping[str, Problem] = field(default_factory=dict)
    schema_job: str | None = None
    decision: Decision | None = None
    applied: int | None = None
    draining: int = 0
    busy_kills: int = 0
    autoscaler: str | None = None

    @property
    def desired(self) -> int:
        """Worker pods wanted now."""
        if self.decision is not None:
            return self.decision.desired
        return int((self.deployment or {}).get("spec", {}).get("replicas", 0))

    @property
    def after(self) -> int:
        """Worker pods that the Deployment asks for after this round."""
        return self.desired if self.applied is None else self.applied

    @property
    def ready(self) -> int:
        """Worker pods that are ready."""
        return int(((self.deployment or {}).get("status") or {}).get("readyReplicas") or 0)

    @property
    def existing(self) -> int:
        """Worker pods that exist."""
        return int(((self.deployment or {}).get("status") or {}).get("replicas") or 0)
