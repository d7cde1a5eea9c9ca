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
# The horizontal pod autoscaler (and KEDA through it) writes as part of this process.
AUTOSCALER_MANAGER = "kube-controller-manager"


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


def replicas_managers(body: Mapping[str, Any]) -> set[str]:
    """Managers that own `spec.replicas` of a Deployment."""
    return {
        str(entry.get("manager"))
        for entry in body["metadata"].get("managedFields") or []
        if "f:replicas" in (entry.get("fieldsV1") or {}).get("f:spec", {})
    }


def autoscaler_of(autoscalers: Iterable[Mapping[str, Any]], deployment: str) -> str | None:
    """Name of the HorizontalPodAutoscaler that targets the Deployment, None when none does."""
    for autoscaler in autoscalers:
        target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
        if target.get("kind") == "Deployment" and target.get("name") == deployment:
            return f"HorizontalPodAutoscaler {autoscaler['metadata']['name']}"
    return None


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
