"""The builders of children: dicts in, dicts out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasequeue.config import SETTINGS
from leasequeue_operator.plan import cronjob, deployment, podmonitor, schema_job, serviceaccount
from tests.operator.samples import UID, queue


def build(**spec: Any) -> dict[str, Any]:
    return deployment.build(queue(**spec), default_image="worker:1")


def worker_env(manifest: dict[str, Any]) -> dict[str, Any]:
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container["env"]}


def test_the_deployment_as_a_whole() -> None:
    manifest = build()
    template = manifest["spec"].pop("template")
    labels = {
        "leasequeue.dev/queue-uid": UID,
        "leasequeue.dev/component": "worker",
        "leasequeue.dev/queue": "orders",
        "app.kubernetes.io/name": "leasequeue",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "leasequeue-operator",
    }
    assert manifest == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "orders-worker",
            "namespace": "team",
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": "leasequeue.dev/v1alpha1", "kind": "LeaseQueue", "name": "orders", "uid": UID,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "selector": {"matchLabels": {"leasequeue.dev/queue-uid": UID, "leasequeue.dev/component": "worker"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": 600,
        },
    }  # fmt: skip
    assert template["metadata"]["labels"] == labels
    (container,) = template["spec"].pop("containers")
    assert template["spec"] == {
        "serviceAccountName": "orders-leasequeue",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 75,
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "database", "secret": {"secretName": "db", "defaultMode": 0o444}},
        ],
    }
    assert (container["image"], container["command"]) == ("worker:1", ["leasequeue-worker"])
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
    }
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_replicas_are_never_part_of_the_manifest() -> None:
    assert "replicas" not in build(replicas=7, scaling={"mode": "Manual"})["spec"]


def test_the_number_of_pods_changes_nothing_in_the_template() -> None:
    assert build(replicas=1, scaling={"mode": "Manual"}) == build(replicas=9, scaling={"mode": "Manual"})


def test_every_setting_reaches_the_worker() -> None:
    env = worker_env(
        build(
            lease={
                "batchSize": 7, "lockTimeoutMs": 5000, "reclaimAfterSeconds": 11, "maxInflight": 222,
                "maxInflightPolicy": "Enforce", "pollIntervalMs": 60, "maxAttempts": 4, "maxCrashes": 2,
                "lanes": {"strict": True, "onBlockedHead": "Pass"},
            },
            worker={
                "concurrency": 3, "lanes": ["a,b", "ü"], "maxRuntimeSeconds": 9, "terminationGracePeriodSeconds": 33,
            },
            scaling={"maxReplicas": 12},
        )
    )  # fmt: skip
    assert {k: v for k, v in env.items() if k.startswith("LEASEQUEUE_")} == {
        "LEASEQUEUE_DSN_FILE": "/etc/leasequeue/database",
        "LEASEQUEUE_SCHEMA": "public",
        "LEASEQUEUE_TABLE": "jobs",
        "LEASEQUEUE_QUEUE": "team/orders",
        "LEASEQUEUE_BATCH_SIZE": "7",
        "LEASEQUEUE_LOCK_TIMEOUT_MS": "5000",
        "LEASEQUEUE_RECLAIM_AFTER_S": "11",
        "LEASEQUEUE_MAX_INFLIGHT": "222",
        "LEASEQUEUE_POLL_INTERVAL_MS": "60",
        "LEASEQUEUE_MAX_ATTEMPTS": "4",
        "LEASEQUEUE_MAX_CRASHES": "2",
        "LEASEQUEUE_MAX_INFLIGHT_POLICY": "Enforce",
        "LEASEQUEUE_STRICT_LANES": "true",
        "LEASEQUEUE_ON_BLOCKED_HEAD": "Pass",
        "LEASEQUEUE_HANDLER": "pkg.mod:fn",
        "LEASEQUEUE_CONCURRENCY": "3",
        "LEASEQUEUE_ISOLATION": "thread",
        "LEASEQUEUE_LANES": '["a,b", "ü"]',
        "LEASEQUEUE_GRACE_S": "33",
        "LEASEQUEUE_HTTP_PORT": "8080",
        "LEASEQUEUE_MAX_REPLICAS": "16",
        "LEASEQUEUE_MAX_RUNTIME_S": "9",
    }
    assert env["POD_NAME"] == {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    assert env["POD_UID"] == {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}


def test_every_numeric_setting_of_the_engine_is_passed_on() -> None:
    passed = worker_env(build()).keys() | {
        e["name"]
        for e in cronjob.build(queue(), image="r", pull_policy="Always")["spec"]["jobTemplate"]["spec"]["template"]["spec"][
            "containers"
        ][0]["env"]
    }
    assert {s.env for s in SETTINGS.values()} <= passed


@pytest.mark.parametrize(
    ("worker", "name", "value"),
    [
        ({"handler": None, "exec": {"command": ["./run", "$(HOME)", 'a "b"']}}, "LEASEQUEUE_EXEC", ["./run", "$(HOME)", 'a "b"']),
        ({"handler": None, "http": {"url": "http://svc/x"}}, "LEASEQUEUE_HTTP_URL", "http://svc/x"),
    ],
)  # fmt: skip
def test_other_kinds_of_handlers(worker: dict[str, Any], name: str, value: Any) -> None:
    env = worker_env(build(worker=worker))
    assert "LEASEQUEUE_HANDLER" not in env
    seen = env[name].replace("$$(", "$(")  # what the kubelet makes of it
    assert (json.loads(seen) if isinstance(value, list) else seen) == value


def test_a_table_name_is_not_expanded_by_the_kubelet() -> None:
    env = worker_env(build(database={"table": "50%_$(HOME)"}))
    assert env["LEASEQUEUE_TABLE"] == "50%_$$(HOME)"


def test_a_variable_of_the_user_replaces_a_default_but_none_is_there_twice() -> None:
    manifest = build(worker={"env": [{"name": "HOME", "value": "/home/me"}, {"name": "LEASEQUEUE_TABLE", "value": "x"}]})
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    listed = [e["name"] for e in container["env"]]
    assert len(listed) == len(set(listed))
    env = worker_env(manifest)
    assert (env["HOME"], env["LEASEQUEUE_TABLE"]) == ("/home/me", "jobs")


def test_a_named_key_is_mounted_as_the_uri() -> None:
    volumes = build(database={"secretRef": {"name": "db", "key": "dsn"}})["spec"]["template"]["spec"]["volumes"]
    assert volumes[1]["secret"]["items"] == [{"key": "dsn", "path": "uri"}]


def test_the_template_stays_the_same_whatever_the_status() -> None:
    one = deployment.build(queue(), default_image="w")
    other = deployment.build(queue(), default_image="w")
    assert json.dumps(one) == json.dumps(other)


def test_the_reclaimer() -> None:
    manifest = cronjob.build(
        queue(
            reclaimer={
                "schedule": "*/5 * * * *", "sweepIntervalSeconds": 0, "batch": 7, "suspend": True,
                "retention": {"resolvedAfterSeconds": 86400},
            }
        ),
        image="reclaimer:1",
        pull_policy="Never",
        pull_secrets=("regcred",),
    )  # fmt: skip
    spec = manifest["spec"]
    job = spec.pop("jobTemplate")["spec"]
    assert spec == {
        "schedule": "*/5 * * * *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 300,
        "suspend": True,
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 1,
    }
    template = job.pop("template")
    assert job == {"activeDeadlineSeconds": 110, "backoffLimit": 0, "ttlSecondsAfterFinished": 300}
    assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert template["metadata"]["annotations"]["linkerd.io/inject"] == "disabled"
    pod = template["spec"]
    assert (pod["restartPolicy"], pod["imagePullSecrets"]) == ("Never", [{"name": "regcred"}])
    env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
    assert env["LEASEQUEUE_SWEEP_INTERVAL_S"] == "0"
    assert env["LEASEQUEUE_RUN_FOR_S"] == "0"
    assert env["LEASEQUEUE_RECLAIM_BATCH"] == "7"
    assert env["LEASEQUEUE_RETENTION_RESOLVED_AFTER_S"] == "86400"


def test_the_reclaimer_goes_on_while_the_queue_is_suspended() -> None:
    assert cronjob.build(queue(suspend=True), image="r", pull_policy="Always")["spec"]["suspend"] is False


def test_a_hung_run_ends_within_two_periods() -> None:
    assert cronjob.ACTIVE_DEADLINE_S < 2 * 60


def schema(**database: Any) -> dict[str, Any]:
    made = queue(database={"manageSchema": "Adopt", "confirmTable": "public.jobs", **database})
    return schema_job.build(made, image="i", pull_policy="Always", secret_version="7")


def test_the_schema_job_runs_the_command_and_names_the_table_again() -> None:
    container = schema()["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == [
        "leasequeue", "schema", "adopt", "--schema=public", "--table=jobs", "--confirm=public.jobs",
    ]  # fmt: skip


def test_the_schema_job_uses_its_own_secret() -> None:
    pod = schema(schemaSecretRef={"name": "admin", "key": "u"})["spec"]["template"]["spec"]
    secret = pod["volumes"][1]["secret"]
    assert (secret["secretName"], secret["items"]) == ("admin", [{"key": "u", "path": "uri"}])


def test_another_secret_version_makes_another_job() -> None:
    made = queue(database={"manageSchema": "Create", "confirmTable": "public.jobs"})
    jobs = [schema_job.build(made, image="i", pull_policy="Always", secret_version=v) for v in ("1", "1", "2")]
    one, same, other = (job["metadata"]["name"] for job in jobs)
    assert one == same != other
    assert jobs[0]["spec"]["template"]["spec"]["containers"][0]["command"][:3] == ["leasequeue", "schema", "create"]


def test_the_service_account_has_no_token() -> None:
    assert serviceaccount.build(queue())["automountServiceAccountToken"] is False


def test_the_pod_monitor_selects_the_workers() -> None:
    spec = podmonitor.build(queue())["spec"]
    assert spec["selector"]["matchLabels"] == build()["spec"]["selector"]["matchLabels"]
    assert spec["podMetricsEndpoints"] == [{"port": "metrics", "path": "/metrics", "honorLabels": True}]


def test_a_monitor_has_the_labels_that_prometheus_selects_by_and_ours() -> None:
    plain = podmonitor.build(queue())["metadata"]["labels"]
    labelled = podmonitor.build(queue(), {"release": "prometheus", "leasequeue.dev/queue": "other"})["metadata"]["labels"]
    assert labelled == {**plain, "release": "prometheus"}


def test_a_somewhat_higher_maximum_rolls_nothing() -> None:
    assert build(scaling={"maxReplicas": 10}) == build(scaling={"maxReplicas": 16})
    assert build(scaling={"maxReplicas": 16}) != build(scaling={"maxReplicas": 17})


def pods_of(database: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod specs of all three kinds."""
    made = queue(database={"manageSchema": "Adopt", "confirmTable": "public.jobs", **database})
    job = schema_job.build(made, image="i", pull_policy="Always", secret_version="7")
    cron = cronjob.build(made, image="i", pull_policy="Always")
    templates = [deployment.build(made, default_image="i"), cron["spec"]["jobTemplate"], job]
    return [t["spec"]["template"]["spec"] for t in templates]


def test_an_authority_is_mounted_at_one_path_in_every_pod() -> None:
    for pod in pods_of({"sslMode": "verify-full", "caSecretRef": {"name": "ca", "key": "root.pem"}}):
        (container,) = pod["containers"]
        env = {e["name"]: e.get("value") for e in container["env"]}
        assert env["LEASEQUEUE_SSL_MODE"] == "verify-full"
        assert env["LEASEQUEUE_SSL_ROOT_CERT"] == "/etc/leasequeue/ca/ca.crt"
        (volume,) = [v for v in pod["volumes"] if v["name"] == "database-ca"]
        assert volume["secret"]["secretName"] == "ca"
        assert volume["secret"]["items"] == [{"key": "root.pem", "path": "ca.crt"}]
        assert {"name": "database-ca", "mountPath": "/etc/leasequeue/ca", "readOnly": True} in container["volumeMounts"]


def test_the_machines_authorities_need_no_mount() -> None:
    for pod in pods_of({"systemCA": True}):
        env = {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}
        assert (env["LEASEQUEUE_SSL_ROOT_CERT"], "LEASEQUEUE_SSL_MODE" in env) == ("system", False)
        assert "database-ca" not in {v["name"] for v in pod["volumes"]}


def test_no_pod_has_the_connection_in_its_environment() -> None:
    for pod in pods_of({}):
        names = {e["name"] for c in pod["containers"] for e in c["env"]}
        assert "LEASEQUEUE_DSN_FILE" in names
        assert not {"LEASEQUEUE_DSN", "PGPASSWORD", "DATABASE_URL"} & names
