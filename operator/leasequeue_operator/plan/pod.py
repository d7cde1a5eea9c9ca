"""What all pods of a queue share: connection as files, settings as environment, the restricted security context."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from leasequeue.config import SETTINGS
from leasequeue_operator.plan import names
from leasequeue_operator.plan.podtemplate import RESTRICTED
from leasequeue_operator.plan.spec import Database, Queue, SecretRef

API_VERSION = "leasequeue.dev/v1alpha1"
KIND = "LeaseQueue"
DATABASE_DIR = "/etc/leasequeue/database"
CA_DIR = "/etc/leasequeue/ca"
CA_FILE = f"{CA_DIR}/ca.crt"
HTTP_PORT = 8080

_CR_FIELDS = {
    "batch_size": "batch_size",
    "lock_timeout_ms": "lock_timeout_ms",
    "reclaim_after_s": "reclaim_after_seconds",
    "max_inflight": "max_inflight",
    "poll_interval_ms": "poll_interval_ms",
    "max_attempts": "max_attempts",
    "max_crashes": "max_crashes",
}


def metadata(queue: Queue, name: str, component: str) -> dict[str, Any]:
    """Metadata of a child: our labels and the owner reference, by which it goes away with the queue.

    `blockOwnerDeletion` is left out: it would need rights on the queue's finalizers and hold up foreground deletion.
    """
    return {
        "name": name,
        "namespace": queue.namespace,
        "labels": names.labels(queue.name, queue.uid, component),
        "ownerReferences": [
            {"apiVersion": API_VERSION, "kind": KIND, "name": queue.name, "uid": queue.uid, "controller": True}
        ],
    }


def variables(values: Mapping[str, object]) -> list[dict[str, Any]]:
    """Environment entries, in the order given; booleans as true/false, and no `$(NAME)` is expanded."""
    return [{"name": k, "value": literal(str(v).lower() if isinstance(v, bool) else str(v))} for k, v in values.items()]


def literal(text: str) -> str:
    """`text` such that the kubelet leaves it alone: it expands `$(NAME)` in environment values and command lines."""
    return text.replace("$(", "$$(")


def environment(*groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One list of environment entries; of entries with one name the last group's counts (the API refuses doubles)."""
    return list({entry["name"]: entry for group in groups for entry in group}.values())


def defaults() -> list[dict[str, Any]]:
    """Environment that a user may override: with any user id there may be no passwd entry to take a home from."""
    return variables({"HOME": "/tmp", "USER": "leasequeue"})  # noqa: S108 an emptyDir of the pod


def from_field(name: str, path: str) -> dict[str, Any]:
    """An environment entry from the downward API (the API version is what the server would default)."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def connection_settings(database: Database) -> dict[str, object]:
    """Where a pod finds the connection, and how it is protected: the same for workers, reclaimer and schema Job."""
    settings: dict[str, object] = {"LEASEQUEUE_DSN_FILE": DATABASE_DIR}
    if database.ssl_mode is not None:
        settings["LEASEQUEUE_SSL_MODE"] = database.ssl_mode
    if database.system_ca:
        settings["LEASEQUEUE_SSL_ROOT_CERT"] = "system"
    elif database.ca_secret_ref is not None:
        # libpq's own place for it depends on HOME.
        settings["LEASEQUEUE_SSL_ROOT_CERT"] = CA_FILE
    return settings


def engine_settings(queue: Queue) -> dict[str, object]:
    """The engine's settings as environment: the same for worker and reclaimer."""
    database, lease = queue.spec.database, queue.spec.lease
    return {
        **connection_settings(database),
        "LEASEQUEUE_SCHEMA": database.schema_,
        "LEASEQUEUE_TABLE": database.table,
        "LEASEQUEUE_QUEUE": queue.label,
        **{SETTINGS[name].env: getattr(lease, attribute) for name, attribute in _CR_FIELDS.items()},
        "LEASEQUEUE_MAX_INFLIGHT_POLICY": lease.max_inflight_policy,
        "LEASEQUEUE_STRICT_LANES": lease.lanes.strict,
        "LEASEQUEUE_ON_BLOCKED_HEAD": lease.lanes.on_blocked_head,
    }


def lanes(queue: Queue) -> dict[str, object]:
    """LEASEQUEUE_LANES where the spec restricts the lanes: a JSON array, so that any text can be a lane."""
    chosen = queue.spec.worker.lanes
    return {"LEASEQUEUE_LANES": json.dumps(chosen, ensure_ascii=False)} if chosen else {}


def database_volume(ref: SecretRef) -> dict[str, Any]:
    """The Secret as files. A mount of the directory follows changes of the Secret, so rotation needs no rollout."""
    secret: dict[str, Any] = {"secretName": ref.name, "defaultMode": 0o444}
    if ref.key is not None:
        secret["items"] = [{"key": ref.key, "path": "uri"}]
    return {"name": "database", "secret": secret}


def volumes(database: Database, ref: SecretRef) -> list[dict[str, Any]]:
    """Volumes of every pod.

    Args:
        database: tells the authorities.
        ref: the Secret with the connection of this pod.
    """
    found = [{"name": "tmp", "emptyDir": {}}, database_volume(ref)]
    authority = database.ca_secret_ref
    if authority is not None:
        items = [{"key": authority.key, "path": "ca.crt"}]
        found.append({"name": "database-ca", "secret": {"secretName": authority.name, "defaultMode": 0o444, "items": items}})
    return found


def mounts(database: Database) -> list[dict[str, Any]]:
    """Mounts of every main container."""
    found: list[dict[str, Any]] = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        {"name": "database", "mountPath": DATABASE_DIR, "readOnly": True},
    ]
    if database.ca_secret_ref is not None:
        found.append({"name": "database-ca", "mountPath": CA_DIR, "readOnly": True})
    return found


def pod_defaults(queue: Queue) -> dict[str, Any]:
    """Pod-level fields of every pod. No runAsUser: the cluster (OpenShift) or the image gives one."""
    return {
        "serviceAccountName": names.service_account(queue.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }


def restricted() -> dict[str, Any]:
    """A fresh copy of the restricted container security context."""
    return {**RESTRICTED, "capabilities": {"drop": ["ALL"]}}
