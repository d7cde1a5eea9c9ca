"""The operator's Deployment: one replica, Pod Security *restricted*, images, labels."""

from __future__ import annotations

import pytest

from leasequeue_operator.rights import ELECTION
from leasequeue_operator.settings import Settings
from tests.chart.support import Refusal, Render, container, kinds, nested, one

DIGEST = "sha256:" + "0123456789abcdef" * 4


def test_one_replica_that_is_recreated(render: Render) -> None:
    spec = one(render(), "Deployment")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


def test_several_replicas_are_elected(render: Render) -> None:
    objects = render({"leaderElection": {"enabled": True, "leaseDurationSeconds": 30}})
    spec = one(objects, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (2, {"type": "RollingUpdate"})
    env = {e["name"]: e["value"] for e in container(objects)["env"]}
    given = {name.lower().removeprefix("leasequeue_"): value for name, value in env.items() if "_LEA" in name}
    settings = Settings(**given)
    assert (settings.leader_election, settings.lease_duration_s) == (True, 30)
    role = next(o for o in objects if o["kind"] == "Role")
    assert (role["metadata"]["namespace"], role["rules"]) == (
        settings.lease_namespace,
        [{"apiGroups": [ELECTION.group], "resources": [ELECTION.resource], "verbs": list(ELECTION.verbs)}],
    )
    binding = next(o for o in objects if o["kind"] == "RoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == spec["template"]["spec"]["serviceAccountName"]


def test_without_election_there_is_no_right_to_leases(render: Render) -> None:
    objects = render()
    assert not [o for o in objects if o["kind"] == "Role"]
    assert not [e for e in container(objects)["env"] if "LEASE_" in e["name"] or "LEADER" in e["name"]]


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_pods_fit_the_restricted_profile_and_any_uid(kind: str, render: Render) -> None:
    found = one(render(), kind)["spec"]
    pod = found["template"]["spec"] if kind == "Deployment" else found
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for part in pod["containers"]:
        assert part["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert all(set(volume) <= {"name", "emptyDir"} for volume in pod.get("volumes", []))


def test_a_uid_without_passwd_entry_has_home_and_user(render: Render) -> None:
    part = container(render())
    env = {e["name"]: e["value"] for e in part["env"]}
    assert (env["HOME"], env["USER"]) == ("/tmp", "leasequeue")
    assert {"name": "tmp", "mountPath": "/tmp"} in part["volumeMounts"]


def test_images_by_tag_and_by_digest(render: Render) -> None:
    values = {
        "image": {"repository": "mirror.example:5000/op", "tag": "2"},
        "worker": {"image": {"repository": "mirror.example/w", "digest": DIGEST}},
        "reclaimer": {"image": {"tag": "3", "digest": DIGEST}},
    }
    part = container(render(values))
    env = {e["name"]: e["value"] for e in part["env"]}
    assert part["image"] == "mirror.example:5000/op:2"
    assert env["LEASEQUEUE_WORKER_IMAGE"] == f"mirror.example/w:0.1.0@{DIGEST}"
    assert env["LEASEQUEUE_RECLAIMER_IMAGE"] == f"leasequeue-reclaimer:3@{DIGEST}"


def test_pull_secrets_as_names_or_objects(render: Render) -> None:
    pod = one(render({"imagePullSecrets": ["a", {"name": "b"}]}), "Deployment")["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("values", "setting", "expected"),
    [
        ({"worker": {"image": {"repository": "ww", "tag": "1"}}}, "worker_image", "ww:1"),
        ({"reclaimer": {"image": {"repository": "rr", "tag": "1"}}}, "reclaimer_image", "rr:1"),
        ({"reclaimer": {"image": {"pullPolicy": "Never"}}}, "image_pull_policy", "Never"),
        ({"queueImagePullSecrets": ["a", "b"]}, "image_pull_secrets", ("a", "b")),
        ({"watchNamespaces": ["team-a", "team-b"]}, "watch_namespaces", ("team-a", "team-b")),
        ({"httpPort": 9000}, "http_port", 9000),
        (
            {"metrics": {"workerMonitors": {"labels": {"release": "p", "a.b/c": "1.0", "empty": ""}}}},
            "monitor_label_map",
            {"release": "p", "a.b/c": "1.0", "empty": ""},
        ),
        ({"logLevel": "warning"}, "log_level", "WARNING"),
        ({"extraEnv": [{"name": "LEASEQUEUE_RESYNC_S", "value": "120"}]}, "resync_s", 120.0),
    ],
)
def test_the_operator_understands_its_settings(
    values: dict[str, object], setting: str, expected: object, render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    for entry in container(render(values))["env"]:
        monkeypatch.setenv(entry["name"], entry["value"])
    assert getattr(Settings(), setting) == expected


def test_the_charts_defaults_are_the_operators(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    default = Settings()
    for entry in container(render())["env"]:
        monkeypatch.setenv(entry["name"], entry["value"])
    assert Settings() == default


def test_common_labels_are_everywhere_but_never_replace_ours(render: Render) -> None:
    labels = {"team": "payments", "app.kubernetes.io/name": "other"}
    values = {
        "commonLabels": labels,
        "podLabels": {"app.kubernetes.io/instance": "other", "pod": "yes"},
        "networkPolicy": {"enabled": True},
        "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
        "prometheusRule": {"enabled": True},
    }
    objects = render(values)
    for document in objects:
        assert document["metadata"]["labels"]["team"] == "payments", document["kind"]
        assert document["metadata"]["labels"]["app.kubernetes.io/name"] == "leasequeue"
    spec = one(objects, "Deployment")["spec"]
    pod = spec["template"]["metadata"]["labels"]
    assert pod["pod"] == "yes"
    assert spec["selector"]["matchLabels"].items() <= pod.items()
    assert spec["selector"] == one(render(), "Deployment")["spec"]["selector"], "a selector cannot be changed later"
    assert one(objects, "PodMonitor")["metadata"]["labels"]["release"] == "prometheus"


def test_common_annotations_are_everywhere(render: Render) -> None:
    values = {
        "commonAnnotations": {"note": "x"},
        "networkPolicy": {"enabled": True},
        "metrics": {"serviceMonitor": {"enabled": True}},
        "prometheusRule": {"enabled": True},
    }
    for document in render(values):
        assert document["metadata"]["annotations"]["note"] == "x", document["kind"]


@pytest.mark.parametrize("name", ["HOME", "LEASEQUEUE_WORKER_IMAGE", "LEASEQUEUE_WATCH_NAMESPACES"])
def test_variables_of_the_chart_cannot_be_set_twice(name: str, refusal: Refusal) -> None:
    assert f"extraEnv: {name} is set by the chart" in refusal({"extraEnv": [{"name": name, "value": "x"}]})


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("nodeSelector", {"disk": "ssd"}, "nodeSelector"),
        ("tolerations", [{"key": "a", "operator": "Exists"}], "tolerations"),
        ("affinity", {"nodeAffinity": {}}, "affinity"),
        ("priorityClassName", "high", "priorityClassName"),
        ("terminationGracePeriodSeconds", 90, "terminationGracePeriodSeconds"),
    ],
)
def test_pod_fields(path: str, value: object, field: str, render: Render) -> None:
    pod = one(render(nested(path, value)), "Deployment")["spec"]["template"]["spec"]
    assert pod[field] == value


def test_a_foreign_service_account_must_be_named(refusal: Refusal, render: Render) -> None:
    assert "serviceAccount.name is empty" in refusal({"serviceAccount": {"create": False}})
    objects = render({"serviceAccount": {"create": False, "name": "mine"}})
    assert "ServiceAccount" not in kinds(objects)
    assert one(objects, "ClusterRoleBinding")["subjects"][0]["name"] == "mine"


def test_the_port_is_one_everywhere(render: Render) -> None:
    part = container(render({"httpPort": 9000}))
    assert part["ports"][0]["containerPort"] == 9000
    assert {"name": "LEASEQUEUE_HTTP_PORT", "value": "9000"} in part["env"]


def test_extra_objects_are_rendered(render: Render) -> None:
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-text'}}"
    mapping = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "{{ .Release.Name }}-map"}}
    objects = render({"extraObjects": [text, mapping]})
    assert one(objects, "ConfigMap")["metadata"]["name"] == "leasequeue-text"
    assert one(objects, "Secret")["metadata"]["name"] == "leasequeue-map"
