"""The overlay on the pod template: what is refused is named, what is allowed is merged."""

from __future__ import annotations

from typing import Any

import pytest

from leasequeue_operator.plan import deployment, podtemplate
from leasequeue_operator.plan.spec import SpecError
from tests.operator.samples import queue

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"spec": {"serviceAccountName": "admin"}}, "spec.serviceAccountName"),
    ({"spec": {"serviceAccount": "admin"}}, "spec.serviceAccount"),
    ({"spec": {"automountServiceAccountToken": True}}, "spec.automountServiceAccountToken"),
    ({"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
    ({"spec": {"hostPID": True}}, "spec.hostPID"),
    ({"spec": {"hostIPC": True}}, "spec.hostIPC"),
    ({"spec": {"hostUsers": True}}, "spec.hostUsers"),
    ({"spec": {"nodeName": "n"}}, "spec.nodeName"),
    ({"spec": {"restartPolicy": "Never"}}, "spec.restartPolicy"),
    ({"spec": {"terminationGracePeriodSeconds": 1}}, "spec.terminationGracePeriodSeconds"),
    ({"spec": {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}}, "spec.volumes[0].hostPath"),
    ({"spec": {"volumes": [{"name": "n", "nfs": {}}]}}, "spec.volumes[0].nfs"),
    ({"spec": {"volumes": [{"name": "database", "emptyDir": {}}]}}, "spec.volumes[0].name"),
    ({"spec": {"securityContext": {"runAsUser": 0}}}, "spec.securityContext.runAsUser"),
    ({"spec": {"securityContext": {"runAsNonRoot": False}}}, "spec.securityContext.runAsUser"),
    ({"spec": {"securityContext": {"sysctls": []}}}, "spec.securityContext.sysctls"),
    ({"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}, "seccompProfile.type"),
    ({"spec": {"containers": [{"name": "worker", "securityContext": {"privileged": True}}]}}, "securityContext.privileged"),
    ({"spec": {"containers": [{"name": "worker", "image": "other"}]}}, "spec.containers[0].image"),
    ({"spec": {"containers": [{"name": "worker", "command": ["sh"]}]}}, "spec.containers[0].command"),
    ({"spec": {"containers": [{"name": "worker", "env": [{"name": "LEASEQUEUE_TABLE", "value": "x"}]}]}}, "env[0].name"),
    ({"spec": {"containers": [{"name": "s", "securityContext": {"allowPrivilegeEscalation": True}}]}}, "allowPrivilegeEsc"),
    ({"spec": {"containers": [{"name": "s", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}}, "capabilities.add"),
    ({"spec": {"containers": [{"name": "s", "ports": [{"containerPort": 1, "hostPort": 1}]}]}}, "ports[0].hostPort"),
    ({"spec": {"containers": [{"name": "s", "volumeDevices": []}]}}, "volumeDevices"),
    ({"spec": {"initContainers": [{"name": "i", "securityContext": {"procMount": "Unmasked"}}]}}, "procMount"),
    ({"spec": {"ephemeralContainers": []}}, "spec.ephemeralContainers"),
    ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0].name"),
    ({"spec": {"containers": {}}}, "spec.containers"),
    ({"spec": []}, "podTemplate.spec"),
    ({"metadata": {"labels": {"leasequeue.dev/queue-uid": "x"}}}, "metadata.labels"),
    ({"metadata": {"name": "x"}}, "metadata.name"),
    ({"kind": "Pod"}, "podTemplate.kind"),
]  # fmt: skip


@pytest.mark.parametrize(("overlay", "named"), REFUSED, ids=[named for _, named in REFUSED])
def test_refused_with_the_field_named(overlay: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError) as refused:
        podtemplate.check(overlay)
    assert refused.value.reason == "PodTemplateRefused"
    assert named in refused.value.message
    assert refused.value.message.startswith("spec.worker.podTemplate")


ALLOWED: dict[str, Any] = {
    "metadata": {"labels": {"team": "x"}, "annotations": {"prometheus.io/scrape": "true"}},
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "batch", "operator": "Exists"}],
        "priorityClassName": "low",
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "m"}}],
        "imagePullSecrets": [{"name": "regcred"}],
        "initContainers": [{"name": "fetch", "image": "f:1"}],
        "containers": [
            {"name": "worker", "volumeMounts": [{"name": "models", "mountPath": "/models"}],
             "env": [{"name": "MODE", "value": "fast"}], "resources": {"limits": {"memory": "1Gi"}}},
            {"name": "proxy", "image": "p:1", "ports": [{"containerPort": 9}],
             "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}}},
        ],
    },
}  # fmt: skip


def test_allowed_parts_are_merged_into_the_template() -> None:
    podtemplate.check(ALLOWED)
    template = deployment.build(queue(worker={"podTemplate": ALLOWED}), default_image="w:1")["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "x"
    assert template["metadata"]["labels"]["leasequeue.dev/component"] == "worker"
    pod = template["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert [v["name"] for v in pod["volumes"]] == ["tmp", "database", "models"]
    worker, proxy = pod["containers"]
    assert worker["image"] == "w:1"
    assert [m["mountPath"] for m in worker["volumeMounts"]] == ["/tmp", "/etc/leasequeue/database", "/models"]
    assert {e["name"] for e in worker["env"]} >= {"MODE", "LEASEQUEUE_TABLE"}
    assert worker["resources"] == {"limits": {"memory": "1Gi"}}
    assert proxy["name"] == "proxy"


def test_containers_that_are_added_are_restricted_too() -> None:
    template = deployment.build(queue(worker={"podTemplate": ALLOWED}), default_image="w")["spec"]["template"]
    for container in (*template["spec"]["containers"], *template["spec"]["initContainers"]):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["runAsNonRoot"] is True
        assert context["capabilities"]["drop"] == ["ALL"]


def test_a_capability_that_is_added_keeps_the_drop_of_the_others() -> None:
    template = deployment.build(queue(worker={"podTemplate": ALLOWED}), default_image="w")["spec"]["template"]
    proxy = template["spec"]["containers"][1]
    assert proxy["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}


def test_merging_changes_neither_input() -> None:
    template = {"metadata": {}, "spec": {"containers": [{"name": "worker", "env": [{"name": "A", "value": "1"}]}]}}
    overlay = {"spec": {"containers": [{"name": "worker", "env": [{"name": "B", "value": "2"}]}]}}
    before = str((template, overlay))
    podtemplate.merge(template, overlay)
    assert str((template, overlay)) == before
