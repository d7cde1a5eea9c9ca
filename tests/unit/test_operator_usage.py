"""Calls and questions are counted by what they are, never by name or namespace."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from leasequeue_operator.usage import Usage, resource_of


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/apis/leasequeue.dev/v1alpha1/leasequeues", "leasequeues"),
        ("/apis/leasequeue.dev/v1alpha1/namespaces/team/leasequeues/orders/status", "leasequeues/status"),
        ("/apis/apps/v1/namespaces/team/deployments", "deployments"),
        ("/apis/apps/v1/namespaces/team/deployments/orders-worker", "deployments"),
        ("/apis/apps/v1/namespaces/team/deployments/orders-worker/scale", "deployments/scale"),
        ("/api/v1/namespaces/team/secrets/db", "secrets"),
        ("/api/v1/pods", "pods"),
        ("/apis/monitoring.coreos.com/v1", "/apis/monitoring.coreos.com/v1"),
        ("/apis/coordination.k8s.io/v1/namespaces/system/leases/operator", "leases"),
    ],
)
def test_the_resource_of_a_path(path: str, resource: str) -> None:
    assert resource_of(path) == resource


def test_they_are_exported() -> None:
    usage = Usage()
    usage.called("PATCH", "/apis/apps/v1/namespaces/a/deployments/x/scale", 200)
    usage.called("PATCH", "/apis/apps/v1/namespaces/b/deployments/y/scale", 200)
    usage.called("GET", "/api/v1/namespaces/a/secrets/db", 0)
    usage.asked("sample")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(usage)
    text = generate_latest(registry).decode()
    assert 'leasequeue_kube_requests_total{method="PATCH",resource="deployments/scale",status="200"} 2.0' in text
    assert 'leasequeue_kube_requests_total{method="GET",resource="secrets",status="0"} 1.0' in text
    assert 'leasequeue_database_questions_total{kind="sample"} 1.0' in text
    assert 'leasequeue_database_questions_total{kind="marks"} 0.0' in text
