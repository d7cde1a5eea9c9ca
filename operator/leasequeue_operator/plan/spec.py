"""The spec of a LeaseQueue as typed values.

The API server has checked and defaulted it already (deploy/crd); it is checked again here because an older CRD may be
installed. What it cannot check (cron fields, time zones, the pod template) is in `plan/accept.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from leasequeue.config import SETTINGS, BlockedHead, InflightPolicy


class SpecError(Exception):
    """The spec cannot be acted on until somebody edits it.

    Args:
        reason: one word, for the condition Accepted.
        message: names the field, the value where it helps, and the way out.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(f"{reason}: {message}")


class Section(BaseModel):
    """Base of every part: camelCase outside, snake_case inside; unknown fields of a newer CRD are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


def _setting(name: str) -> Any:
    s = SETTINGS[name]
    return Field(default=s.default, ge=s.low, le=s.high, strict=True)


class SecretRef(Section):
    """A Secret of the queue's own namespace; `key` holds a URI, None lets the parts be used."""

    name: str
    key: str | None = None


class CaSecretRef(Section):
    """A Secret of the queue's own namespace with the certificates that are trusted, PEM."""

    name: str
    key: str = "ca.crt"


class Database(Section):
    secret_ref: SecretRef
    ssl_mode: Literal["require", "verify-ca", "verify-full"] | None = None
    ca_secret_ref: CaSecretRef | None = None
    system_ca: bool = Field(default=False, alias="systemCA")
    table: str
    schema_: str = Field(default="public", alias="schema")
    manage_schema: Literal["Verify", "Adopt", "Create"] = "Verify"
    confirm_table: str | None = None
    schema_secret_ref: SecretRef | None = None


class Lanes(Section):
    strict: bool = False
    on_blocked_head: BlockedHead = "Block"


class Lease(Section):
    batch_size: int = _setting("batch_size")
    lock_timeout_ms: int = _setting("lock_timeout_ms")
    reclaim_after_seconds: int = _setting("reclaim_after_s")
    max_inflight: int = _setting("max_inflight")
    max_inflight_policy: InflightPolicy = "Alert"
    poll_interval_ms: int = _setting("poll_interval_ms")
    max_attempts: int = _setting("max_attempts")
    max_crashes: int = _setting("max_crashes")
    lanes: Lanes = Lanes()


class Exec(Section):
    command: list[str] = Field(min_length=1)


class Http(Section):
    url: str


class Worker(Section):
    image: str | None = None
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    handler: str | None = None
    exec_: Exec | None = Field(default=None, alias="exec")
    http: Http | None = None
    concurrency: int = Field(default=1, ge=1)
    isolation: Literal["thread", "process"] = "thread"
    max_runtime_seconds: int | None = None
    lanes: list[str] = []
    resources: dict[str, Any] = {}
    env: list[dict[str, Any]] = []
    termination_grace_period_seconds: int = Field(default=60, ge=1)
    pod_template: dict[str, Any] = {}


class Schedule(Section):
    """Other bounds from each `start` to the next `end` (cron, in `time_zone`)."""

    name: str
    start: str
    end: str
    time_zone: str = "Etc/UTC"
    min_replicas: int | None = None
    max_replicas: int | None = None


class Scaling(Section):
    mode: Literal["Auto", "Manual"] = "Auto"
    min_replicas: int = Field(default=0, ge=0)
    max_replicas: int = Field(default=10, ge=1)
    poll_period_seconds: int = Field(default=5, ge=1)
    drain_target_seconds: int = Field(default=120, ge=1)
    latency_target_seconds: int | None = None
    scale_down_stabilization_seconds: int = Field(default=30, ge=0)
    schedules: list[Schedule] = []


class Retention(Section):
    resolved_after_seconds: int | None = None


class Reclaimer(Section):
    schedule: str = "* * * * *"
    sweep_interval_seconds: int = Field(default=10, ge=0)
    batch: int = _setting("reclaim_batch")
    suspend: bool = False
    retention: Retention = Retention()


Percent = Annotated[int, Field(ge=1, le=100)]


class Alerts(Section):
    inflight_warning_percent: Percent = 80
    inflight_critical_percent: Percent = 95
    oldest_pending_seconds: int = Field(default=600, ge=1)


class Spec(Section):
    database: Database
    worker: Worker
    lease: Lease = Lease()
    scaling: Scaling = Scaling()
    replicas: int = Field(default=1, ge=0)
    reclaimer: Reclaimer = Reclaimer()
    alerts: Alerts = Alerts()
    suspend: bool = False


@dataclass(frozen=True, slots=True)
class Queue:
    """One LeaseQueue: who it is, what it wants, and the status last seen on it."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: Spec
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name): the work queue's key."""
        return self.namespace, self.name

    @property
    def label(self) -> str:
        """namespace/name, for logs and metrics."""
        return f"{self.namespace}/{self.name}"

    @property
    def table(self) -> str:
        """schema.table as the spec writes them, for messages."""
        return f"{self.spec.database.schema_}.{self.spec.database.table}"


def read_queue(body: Mapping[str, Any]) -> Queue:
    """Parse a LeaseQueue as the API server returns it.

    Raises:
        SpecError: a field is missing or of the wrong kind (reason InvalidSpec, the message names it).
    """
    meta = body["metadata"]
    try:
        spec = Spec.model_validate(body.get("spec") or {})
    except ValidationError as ex:
        raise SpecError("InvalidSpec", _first_problem(ex)) from ex
    return Queue(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=int(meta.get("generation", 0)),
        spec=spec,
        status=body.get("status") or {},
    )


def _first_problem(ex: ValidationError) -> str:
    first = ex.errors(include_url=False, include_context=False)[0]
    path = ".".join(str(part) for part in ("spec", *first["loc"]))
    return f"{path}: {first['msg']}. Edit the field; `kubectl explain lq.{path}` tells what it takes."
