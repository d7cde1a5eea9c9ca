"""What the demo reads out of Kubernetes objects, metrics and run records."""

from __future__ import annotations

from typing import Any

import pytest

from demo import alert, kill, manifests
from demo.errors import DemoError
from demo.images import DEMO
from demo.kill import Victim, WorkerLeases
from demo.settings import SYSTEM_NAMESPACE, Settings
from demo.story import condition, describe, refuse_foreign_system, wanted
from demo.summary import Alert
from demo.watch import Seen, cronjob_jobs, job_of, logged, selected
from devcluster.imagespec import source_files
from examples.review_queue import handler

SETTINGS = Settings(namespace="demo-1")


def pod(
    name: str, *, ready: bool = True, state: dict[str, Any] | None = None, last: dict[str, Any] | None = None
) -> dict[str, Any]:
    status = {
        "name": "worker",
        "state": state or {"running": {}},
        "lastState": last or {},
        "containerID": f"containerd://{name}-container",
    }
    return {
        "metadata": {"name": name, "labels": {"a": "b", "c": "d"}},
        "spec": {"nodeName": "node0"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "sidecar", "state": {}}, status],
        },
    }


def test_the_worker_with_most_leases_is_chosen() -> None:
    held = [WorkerLeases("p1-x", "p1", 3), WorkerLeases("p2-y", "p2", 18), WorkerLeases("gone-z", "gone", 99)]
    chosen = kill.choose(held, [pod("p1"), pod("p2")])
    assert chosen == Victim("p2", "node0", "p2-container", "p2-y", 18)


@pytest.mark.parametrize("pods", [[], [pod("p1", ready=False)], [pod("p1", state={"waiting": {}})]])
def test_no_worker_is_chosen_where_none_runs(pods: list[dict[str, Any]]) -> None:
    assert kill.choose([WorkerLeases("p1-x", "p1", 3)], pods) is None


def test_a_pod_on_its_way_out_is_not_chosen() -> None:
    leaving = pod("p1")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert kill.choose([WorkerLeases("p1-x", "p1", 3)], [leaving]) is None


def test_a_worker_without_leases_is_not_chosen() -> None:
    assert kill.choose([WorkerLeases("p1-x", "p1", 0)], [pod("p1")]) is None


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (pod("p"), None),
        (pod("p", state={"terminated": {"exitCode": 137}}), 137),
        (pod("p", state={"running": {}}, last={"terminated": {"exitCode": 0}}), 0),
        ({"metadata": {"name": "p"}}, None),
    ],
)
def test_the_exit_code_is_that_of_the_worker_container(seen: dict[str, Any], code: int | None) -> None:
    assert kill.exit_code(seen) == code


def test_the_killing_pod_reaches_the_node_and_nothing_more() -> None:
    made = kill.killer_pod(Victim("p", "node7", "abc123", "p-x", 5), "kill-1", "image:1")
    assert made["metadata"]["namespace"] == kill.NODE_NAMESPACE
    assert (made["spec"]["nodeName"], made["spec"]["hostPID"]) == ("node7", True)
    container = made["spec"]["containers"][0]
    assert container["command"][-1] == "abc123"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL"]}
    compile(kill.KILL_SCRIPT, "kill", "exec")


QUEUE = {
    "status": {
        "desiredReplicas": 4,
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "AllGood", "message": "fine"},
            {"type": "InflightWithinLimit", "status": "False", "reason": "AboveWarning", "message": "92 of 100"},
        ],
    }
}
METRICS = """
# HELP leasequeue_assigned Items in flight.
# TYPE leasequeue_assigned gauge
leasequeue_assigned{queue_namespace="other",queue="review"} 3.0
leasequeue_assigned{queue_namespace="demo-1",queue="review"} 92.0
"""


def event(**changes: Any) -> dict[str, Any]:
    about = {"kind": "LeaseQueue", "name": "review"}
    return {"involvedObject": about, "type": "Warning", "reason": "AboveWarning"} | changes


def test_the_alert_is_gathered_from_three_places() -> None:
    gauge = alert.assigned(METRICS, "demo-1", "review")
    seen = alert.merge(Alert(threshold=80), alert.condition_reason(QUEUE), alert.event_reason([event()], "review"), gauge)
    assert seen == Alert("AboveWarning", "AboveWarning", 92, 80)
    assert seen.shown


def test_what_was_seen_before_is_kept() -> None:
    first = alert.merge(Alert(threshold=80), "AboveWarning", None, 92)
    assert not first.shown
    assert alert.merge(first, None, "AboveWarning", 10) == Alert("AboveWarning", "AboveWarning", 92, 80)


def test_a_condition_that_holds_is_no_alert() -> None:
    fine = {"type": "InflightWithinLimit", "status": "True", "reason": "BelowWarning", "message": ""}
    assert alert.condition_reason({"status": {"conditions": [fine]}}) is None
    assert alert.condition_reason({}) is None


@pytest.mark.parametrize(
    "other",
    [
        event(type="Normal"),
        event(reason="ScaledUp"),
        event(involvedObject={"kind": "LeaseQueue", "name": "another"}),
        event(involvedObject={"kind": "Pod", "name": "review"}),
    ],
)
def test_other_events_are_no_alert(other: dict[str, Any]) -> None:
    assert alert.event_reason([other], "review") is None


def test_an_absent_metric_is_none_not_zero() -> None:
    assert alert.assigned(METRICS, "demo-2", "review") is None


@pytest.mark.parametrize(
    ("runner", "job"),
    [("review-reclaimer-29-abcde", "review-reclaimer-29"), ("review-reclaimer-31-abcde", None), ("by-hand", None), ("", None)],
)
def test_runs_are_named_by_the_cronjobs_job(runner: str, job: str | None) -> None:
    assert job_of(runner, ["review-reclaimer-29", "review-reclaimer-30"]) == job


def test_reclaimed_items_are_counted_in_the_log() -> None:
    log = '{"item_id": "a", "event": "item_lease_reclaimed"}\nplain text\n{"event": "run_ended", "reclaimed": 1}\n'
    assert logged(log) == 1


def test_only_jobs_of_a_cronjob_count() -> None:
    jobs = [
        {"metadata": {"name": "schema", "ownerReferences": [{"kind": "LeaseQueue"}]}},
        {"metadata": {"name": "reclaim-1", "ownerReferences": [{"kind": "CronJob"}]}},
        {"metadata": {"name": "by-hand"}},
    ]
    assert cronjob_jobs(jobs) == ["reclaim-1"]


@pytest.mark.parametrize(
    ("selector", "matches"), [("a=b", True), ("a=b,c=d", True), ("a=x", False), ("e=f", False), ("", False), (None, False)]
)
def test_pods_are_selected_by_the_queues_selector(selector: str | None, matches: bool) -> None:
    assert selected(pod("p"), selector) is matches


def test_a_wait_that_failed_tells_the_conditions() -> None:
    seen = Seen(queue=QUEUE, pods=[pod("p1"), pod("p2", ready=False)])
    assert "workers 1 of 4" in describe(seen)
    assert "InflightWithinLimit=False AboveWarning: 92 of 100" in describe(seen)
    assert (condition(QUEUE, "Ready"), condition(QUEUE, "Other"), wanted(QUEUE)) == ("True", None, 4)
    assert "no condition yet" in describe(Seen())


def test_the_queue_names_what_the_demo_makes() -> None:
    spec = manifests.lease_queue(SETTINGS, "demo:1")["spec"]
    assert spec["database"]["secretRef"]["name"] == manifests.secret(SETTINGS, "pw")["metadata"]["name"]
    assert spec["database"]["secretRef"]["key"] in manifests.secret(SETTINGS, "pw")["stringData"]
    module, _, function = spec["worker"]["handler"].partition(":")
    assert module == handler.__name__
    assert callable(getattr(handler, function))
    threshold = SETTINGS.max_inflight * SETTINGS.warning_percent / 100
    assert SETTINGS.concurrency * SETTINGS.max_replicas >= threshold, "busy slots alone must cross the warning"


def system_namespace(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": SYSTEM_NAMESPACE, "labels": labels}}


def test_somebody_elses_operator_is_left_alone() -> None:
    with pytest.raises(DemoError, match="is not the demo's"):
        refuse_foreign_system([system_namespace(team="payments")])
    refuse_foreign_system([{"metadata": {"name": "default"}}, manifests.namespace(SYSTEM_NAMESPACE, manifests.SYSTEM)])


def test_the_demo_image_holds_the_handler() -> None:
    shipped = {str(path) for path in source_files(DEMO)}
    assert shipped == {
        "examples/review_queue/__init__.py",
        "examples/review_queue/handler.py",
        "images/Dockerfile.demo",
    }


def test_the_namespaces_are_restricted_and_the_password_is_in_the_secret_alone() -> None:
    labels = manifests.namespace("demo-1", manifests.RUN)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    made = [
        manifests.postgres_pod(SETTINGS, "pg:1"),
        manifests.postgres_service(SETTINGS),
        manifests.lease_queue(SETTINGS, "w:1"),
    ]
    assert "s3cr3t" not in str(made)
    assert manifests.secret(SETTINGS, "s3cr3t")["stringData"]["uri"].startswith(
        "postgresql://postgres:s3cr3t@postgres.demo-1.svc:5432/"
    )
