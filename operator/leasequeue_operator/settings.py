"""The operator's settings: flags and `LEASEQUEUE_*` variables from one definition, each with unit, default and bounds."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

LABEL = re.compile(
    r"(?:[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
    r"=(?:[A-Za-z0-9](?:[-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?"
)
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_version() -> str:
    """Version of the installed distribution."""
    try:
        return version("leasequeue")
    except PackageNotFoundError:
        return "0"


def own_namespace() -> str:
    """Namespace of this pod; `default` outside a cluster."""
    try:
        return NAMESPACE_FILE.read_text().strip() or "default"
    except OSError:
        return "default"


class Settings(BaseSettings):
    """See the descriptions. A flag wins over its variable."""

    model_config = SettingsConfigDict(env_prefix="LEASEQUEUE_", extra="ignore", frozen=True)

    watch_namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Namespaces to serve, separated by commas. Default: all namespaces."
    )
    worker_image: str = Field(
        default=f"leasequeue-worker:{own_version()}",
        min_length=1,
        description="Image of workers whose LeaseQueue names none.",
    )
    reclaimer_image: str = Field(
        default=f"leasequeue-reclaimer:{own_version()}",
        min_length=1,
        description="Image of the reclaimer and of schema Jobs.",
    )
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        default="IfNotPresent", description="When the kubelet pulls the reclaimer's image."
    )
    image_pull_secrets: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Names of image pull Secrets for all pods, in the queues' namespaces, by commas."
    )
    monitor_labels: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Labels of the workers' PodMonitors, as KEY=VALUE by commas: what Prometheus selects them by."
    )
    http_port: int = Field(
        default=8080, ge=0, le=65535, description="Port of /healthz, /readyz and /metrics; 0 takes a free one."
    )
    workers: int = Field(default=64, ge=1, le=512, description="Queues that are worked on at a time.")
    request_timeout_s: float = Field(default=10.0, ge=1, le=60, description="Deadline of each call to the API server, seconds.")
    resync_s: float = Field(
        default=60.0, ge=5, le=3600, description="Seconds between two full lists, which notice what a watch missed."
    )
    watch_timeout_s: int = Field(default=300, ge=10, le=3600, description="Seconds after which a watch is opened anew.")
    listen: bool = Field(
        default=True,
        description="Whether to listen to the databases, so that the first item of an idle queue waits for no poll. One more "
        "connection a database.",
    )
    leader_election: bool = Field(
        default=False, description="Whether this is one of several replicas, of which the holder of a Lease acts alone."
    )
    lease_namespace: str = Field(
        default_factory=own_namespace, min_length=1, description="Namespace of the Lease. Default: the pod's own."
    )
    lease_name: str = Field(default="leasequeue-operator", min_length=1, max_length=253, description="Name of the Lease.")
    lease_duration_s: float = Field(
        default=15.0, ge=5, le=300, description="Seconds without a renewal after which another replica takes over."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="Least level of the log lines.")

    @property
    def monitor_label_map(self) -> dict[str, str]:
        """`monitor_labels` as a map."""
        return dict(text.split("=", 1) for text in self.monitor_labels)

    @field_validator("watch_namespaces", "image_pull_secrets", "monitor_labels", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)):
            return value
        return tuple(dict.fromkeys(part.strip() for part in parts if str(part).strip()))

    @field_validator("monitor_labels")
    @classmethod
    def _labels(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if LABEL.fullmatch(text) is None:
                raise ValueError(f"{text!r} is no label: write KEY=VALUE as Kubernetes takes them, such as release=prometheus")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value
