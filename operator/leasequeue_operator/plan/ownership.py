"""Who owns an object, and who owns which of its fields.

An object made by POST lists us as its manager by *update*; a later apply by the same name is another entry, and the fields of
the first would never be removed again. So that entry is turned into an apply entry once, except for `replicas`, which goes to
the scaler: an apply entry that held it would remove the field, that is set it to 1, at the first apply without it.
The same as k8s.io/client-go/util/csaupgrade does for kubectl.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leasequeue_operator.plan.names import MANAGER

SCALER = "leasequeue-operator-scaler"


def owned_by(body: Mapping[str, Any], uid: str) -> bool:
    """True when the object's controller is the queue with that uid."""
    references = body["metadata"].get("ownerReferences") or []
    return any(ref.get("uid") == uid and ref.get("controller") for ref in references)


def migrated(managed: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """`metadata.managedFields` with our update entry turned into an apply entry.

    Returns:
        None when there is nothing to turn.
    """
    ours = [e for e in managed if _is(e, "Update")]
    if not ours:
        return None
    rest = [e for e in managed if not _is(e, "Update") and not _is(e, "Apply")]
    fields: dict[str, Any] = {}
    for entry in (*ours, *(e for e in managed if _is(e, "Apply"))):
        fields = _united(fields, entry.get("fieldsV1") or {})
    entries = [{**ours[0], "operation": "Apply", "fieldsV1": _without_replicas(fields)}]
    if "f:replicas" in fields.get("f:spec", {}):
        entries.append({**ours[0], "manager": SCALER, "fieldsV1": {"f:spec": {"f:replicas": {}}}})
    return [*rest, *entries]


def autoscaled(autoscalers: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """Deployments that a HorizontalPodAutoscaler (KEDA makes one too) acts on: (namespace, name) → the autoscaler.

    The list is asked, not the managers of `spec.replicas`: Kubernetes 1.34 loses the entry of a scale subresource with the
    next write of the status.
    """
    found = {}
    for autoscaler in autoscalers:
        meta, target = autoscaler["metadata"], (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
        if target.get("kind") == "Deployment":
            found[meta["namespace"], str(target.get("name"))] = f"HorizontalPodAutoscaler {meta['name']}"
    return found


def _is(entry: Mapping[str, Any], operation: str) -> bool:
    return entry.get("manager") == MANAGER and entry.get("operation") == operation and not entry.get("subresource")


def _united(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    united = dict(one)
    for key, value in other.items():
        united[key] = _united(united.get(key, {}), value)
    return united


def _without_replicas(fields: Mapping[str, Any]) -> dict[str, Any]:
    kept = dict(fields)
    if "f:spec" in kept:
        kept["f:spec"] = {k: v for k, v in kept["f:spec"].items() if k != "f:replicas"}
    return kept
