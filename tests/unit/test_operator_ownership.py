"""Field ownership: fields made by POST can be removed later, and replicas never leave the scaler."""

from __future__ import annotations

from typing import Any

from leasequeue_operator.plan.names import MANAGER
from leasequeue_operator.plan.ownership import SCALER, autoscaled, migrated, owned_by


def entry(manager: str, operation: str, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": "t", "fieldsType": "FieldsV1",
        "fieldsV1": fields, **more,
    }  # fmt: skip


CREATED = {"f:metadata": {"f:labels": {}}, "f:spec": {"f:replicas": {}, "f:template": {"f:a": {}}}}


def test_what_was_created_becomes_applied_and_replicas_go_to_the_scaler() -> None:
    controller = entry("kube-controller-manager", "Update", {"f:status": {}}, subresource="status")
    made = migrated([entry(MANAGER, "Update", CREATED), controller])
    assert made == [
        controller,
        entry(MANAGER, "Apply", {"f:metadata": {"f:labels": {}}, "f:spec": {"f:template": {"f:a": {}}}}),
        entry(SCALER, "Update", {"f:spec": {"f:replicas": {}}}),
    ]


def test_an_apply_that_came_before_is_united_with_it() -> None:
    applied = entry(MANAGER, "Apply", {"f:spec": {"f:template": {"f:b": {}}}})
    made = migrated([applied, entry(MANAGER, "Update", {"f:spec": {"f:template": {"f:a": {}}}})])
    assert made == [entry(MANAGER, "Apply", {"f:spec": {"f:template": {"f:a": {}, "f:b": {}}}})]


def test_nothing_to_do_when_all_is_applied() -> None:
    assert migrated([entry(MANAGER, "Apply", CREATED), entry("kubectl", "Update", {})]) is None
    assert migrated([entry(MANAGER, "Update", {"f:status": {}}, subresource="status")]) is None


def test_an_owner_is_the_controller_with_the_uid() -> None:
    def owned(**reference: Any) -> bool:
        return owned_by({"metadata": {"ownerReferences": [reference]}}, "u")

    assert owned(uid="u", controller=True)
    assert not owned(uid="u")
    assert not owned(uid="v", controller=True)
    assert not owned_by({"metadata": {}}, "u")


def test_autoscalers_of_deployments() -> None:
    def autoscaler(name: str, kind: str, target: str) -> dict[str, Any]:
        return {
            "metadata": {"namespace": "n", "name": name},
            "spec": {"scaleTargetRef": {"kind": kind, "name": target}},
        }

    found = autoscaled([autoscaler("a", "Deployment", "w"), autoscaler("b", "LeaseQueue", "q")])
    assert found == {("n", "w"): "HorizontalPodAutoscaler a"}
