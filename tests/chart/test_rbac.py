"""Rights: only what the operator uses, cluster-wide or per namespace."""

from __future__ import annotations

from typing import Any

import pytest

from leasequeue_operator.rights import single_rights
from tests.chart.support import Render, kinds, one

Right = tuple[str, str, str]


def rights(rules: list[dict[str, Any]]) -> set[Right]:
    """Every (group, resource, verb) of a role; nothing in it may be a wildcard."""
    found = {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}
    assert not {right for right in found if "*" in right}
    return found


def role(objects: list[dict[str, Any]], name: str = "leasequeue.leasequeue-system") -> list[dict[str, Any]]:
    """Rules of the ClusterRole `name`."""
    found = [o for o in objects if o["kind"] == "ClusterRole" and o["metadata"]["name"] == name]
    assert len(found) == 1
    rules: list[dict[str, Any]] = found[0]["rules"]
    return rules


def test_the_role_is_what_the_operator_uses_and_no_more(render: Render) -> None:
    assert rights(role(render())) == {(right.group, right.resource, verb) for right, verb in single_rights()}


def test_secrets_can_be_read_by_name_only(render: Render) -> None:
    assert {right for right in rights(role(render())) if right[1] == "secrets"} == {("", "secrets", "get")}


def test_no_right_that_would_raise_rights(render: Render) -> None:
    found = rights(role(render()))
    assert not {r for r in found if r[0] == "rbac.authorization.k8s.io" or r[2] in ("escalate", "bind", "impersonate")}
    assert not {r for r in found if r[1] in ("serviceaccounts/token", "pods/exec", "leasequeues") and r[2] == "create"}


def test_rights_are_bound_to_the_operator(render: Render) -> None:
    objects = render()
    binding = one(objects, "ClusterRoleBinding")
    account = one(objects, "ServiceAccount")["metadata"]
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert binding["roleRef"]["name"] == "leasequeue.leasequeue-system"
    expected = {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    assert binding["subjects"] == [expected]
    assert pod["serviceAccountName"] == account["name"]


def test_named_namespaces_get_roles_and_the_cluster_none(render: Render) -> None:
    objects = render({"watchNamespaces": ["team-a", "team-b", "team-a"], "rbac": {"aggregateClusterRoles": False}})
    assert not kinds(objects) & {"ClusterRole", "ClusterRoleBinding"}
    for kind in ("Role", "RoleBinding"):
        assert [o["metadata"]["namespace"] for o in objects if o["kind"] == kind] == ["team-a", "team-b"]
    roles = [o["rules"] for o in objects if o["kind"] == "Role"]
    assert rights(roles[0]) == rights(roles[1]) == rights(role(render()))
    env = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "LEASEQUEUE_WATCH_NAMESPACES", "value": "team-a,team-b"} in env


@pytest.mark.parametrize(("kind", "into"), [("view", ["view", "edit", "admin"]), ("edit", ["edit", "admin"])])
def test_the_clusters_own_roles_include_leasequeues(kind: str, into: list[str], render: Render) -> None:
    name = f"leasequeue.leasequeue-system.{kind}"
    found = next(o for o in render() if o["metadata"]["name"] == name)
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert {k for k in found["metadata"]["labels"] if k.startswith(prefix)} == {prefix + role for role in into}
    resources = {right[1] for right in rights(found["rules"])}
    assert "leasequeues" in resources
    # A user who could write the status could make the operator believe anything about its own past.
    assert ("leasequeue.dev", "leasequeues/status", "patch") not in rights(found["rules"])


def test_nothing_of_rbac_where_it_is_off(render: Render) -> None:
    objects = render({"rbac": {"create": False}})
    assert not kinds(objects) & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
