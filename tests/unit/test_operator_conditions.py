"""Conditions, events and status: every fault becomes a reason and a message that names the way out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasequeue.owner import OwnedBy
from leasequeue.sample import LaneFacts
from leasequeue.tls import Trust
from leasequeue_operator.observe.secret import Connection
from leasequeue_operator.plan import conditions, events, owner, reclaim, status
from leasequeue_operator.plan.conditions import Condition
from leasequeue_operator.plan.observation import Observation
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.scaling import sample_of
from leasequeue_operator.scaling.decide import Decision, ScalingState
from tests.operator import samples
from tests.operator.samples import NOW, UID


def observed(**values: Any) -> Observation:
    """A queue where all is well, with changes."""
    spec = values.pop("spec", {})
    plain: dict[str, Any] = {
        "now": NOW.timestamp(),
        "queue": samples.queue(**spec),
        "connection": Connection("", trust=Trust.VERIFIED, mode="verify-full"),
        "database": samples.view(),
        "deployment": samples.deployment(),
        "cron_job": samples.cron_job(),
        "decision": Decision(2, 2, "depth", ScalingState(desired=2)),
    }
    return Observation(**{**plain, **values})


def told(o: Observation, previous: dict[str, Any] | None = None) -> dict[str, Condition]:
    return {c.type: c for c in conditions.conditions(o, previous or {})}


def test_all_is_well() -> None:
    found = {kind: (c.status, c.reason) for kind, c in told(observed()).items()}
    assert found == {
        "Ready": ("True", "Ready"),
        "Accepted": ("True", "Accepted"),
        "DatabaseReachable": ("True", "Connected"),
        "SchemaReady": ("True", "Adopted"),
        "WorkersAvailable": ("True", "AllReady"),
        "ReclaimerHealthy": ("True", "Running"),
        "ScalingActive": ("True", "Auto"),
        "ScalingLimited": ("False", "WithinLimits"),
        "InflightWithinLimit": ("True", "WithinLimit"),
        "LanesBlocked": ("False", "NotStrict"),
        "TLSNotVerified": ("False", "Verified"),
        "Suspended": ("False", "NotSuspended"),
    }


def test_every_condition_is_there_on_first_sight() -> None:
    fresh = observed(database=None, deployment=None, cron_job=None, decision=None)
    assert tuple(told(fresh)) == conditions.TYPES
    assert tuple(c.type for c in conditions.invalid(Problem("InvalidSpec", "x"))) == conditions.TYPES


def test_every_condition_has_a_valid_reason_and_a_message() -> None:
    for o in (observed(), observed(database=None, deployment=None, cron_job=None, decision=None)):
        for c in told(o).values():
            assert c.reason.isalnum()
            assert c.message


def unreachable(reason: str) -> Observation:
    return observed(database=replace(samples.view(), unreachable=Problem(reason, f"{reason} happened")))


def unready(reason: str, **values: Any) -> Observation:
    return observed(database=replace(samples.view(), unready=Problem(reason, f"{reason} happened")), **values)


@pytest.mark.parametrize(
    ("o", "kind", "reason"),
    [
        (observed(refused=Problem("PodTemplateRefused", "spec.worker.podTemplate…")), "Accepted", "PodTemplateRefused"),
        (observed(child_problems={"worker": Problem("ChildNameTaken", "…")}), "Accepted", "ChildNameTaken"),
        (observed(secret=Problem("SecretNotFound", "Secret db…")), "DatabaseReachable", "SecretNotFound"),
        (observed(secret=Problem("SecretKeyEmpty", "Secret db…")), "DatabaseReachable", "SecretKeyEmpty"),
        (unreachable("AuthenticationFailed"), "DatabaseReachable", "AuthenticationFailed"),
        (unreachable("HostUnreachable"), "DatabaseReachable", "HostUnreachable"),
        (unready("TableMissing"), "SchemaReady", "TableMissing"),
        (unready("NotAdopted"), "SchemaReady", "NotAdopted"),
        (
            observed(deployment=samples.deployment(10, 2, conditions=[
                {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: pods"},
            ])),
            "WorkersAvailable", "FailedCreate",
        ),
        (observed(pods=[samples.pod("worker", "ImagePullBackOff", "no such image")]), "WorkersAvailable", "ImagePullBackOff"),
        (observed(pods=[samples.pod("worker", "CrashLoopBackOff")]), "WorkersAvailable", "CrashLoopBackOff"),
        (
            observed(pods=[samples.pod("worker", conditions=[
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
            ])]),
            "WorkersAvailable", "Unschedulable",
        ),
        (observed(pods=[samples.pod("reclaimer", "ErrImagePull")]), "ReclaimerHealthy", "ErrImagePull"),
        (observed(database=samples.view(swept_at=NOW - timedelta(hours=1))), "ReclaimerHealthy", "Overdue"),
        (observed(database=samples.view(swept_at=None)), "ReclaimerHealthy", "NeverRan"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_a_fault_makes_its_condition_false_and_the_queue_not_ready(o: Observation, kind: str, reason: str) -> None:
    found = told(o)
    assert (found[kind].status, found[kind].reason) == ("False", reason)
    assert (found["Ready"].status, found["Ready"].reason) == ("False", reason)
    assert found["Ready"].message == found[kind].message


def test_the_messages_carry_what_kubernetes_said() -> None:
    o = observed(pods=[samples.pod("worker", "ImagePullBackOff", 'Back-off pulling image "x:1"')])
    assert 'pulling image "x:1"' in told(o)["WorkersAvailable"].message
    assert "orders-worker-1" in told(o)["WorkersAvailable"].message


def test_an_unreachable_database_leaves_the_schema_unknown_and_says_that_workers_are_held() -> None:
    found = told(unreachable("HostUnreachable"))
    assert found["SchemaReady"].status == "Unknown"
    assert "held at 2" in found["DatabaseReachable"].message


def test_a_young_reclaimer_is_not_overdue() -> None:
    o = observed(cron_job=samples.cron_job(age_s=30), database=samples.view(swept_at=None))
    assert told(o)["ReclaimerHealthy"].status == "Unknown"
    assert told(o)["Ready"].status == "True"


def test_a_yearly_reclaimer_has_a_year() -> None:
    spec = {"reclaimer": {"schedule": "@yearly"}}
    o = observed(spec=spec, database=samples.view(swept_at=NOW - timedelta(days=200)))
    assert told(o)["ReclaimerHealthy"].status == "True"


def test_a_weekend_without_runs_is_part_of_the_schedule() -> None:
    """Weekdays at six: on Sunday Friday's run is the last that was due."""
    queue = samples.queue(reclaimer={"schedule": "0 6 * * 1-5"})
    friday = datetime(2026, 11, 27, 6, 1, tzinfo=UTC)
    for hours in (1, 30, 60, 71.9, 72.05):
        assert reclaim.overdue_s(queue, (friday + timedelta(hours=hours)).timestamp()) > hours * 3600
    monday = friday + timedelta(days=3)
    assert reclaim.overdue_s(queue, (monday + timedelta(hours=30)).timestamp()) == 24 * 3600 + 230


def test_workers_that_never_become_ready_do_not_start_for_ever() -> None:
    late = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
        "message": "it has timed out progressing.",
    }

    found = told(observed(deployment=samples.deployment(2, 0, conditions=[late])))
    assert (found["WorkersAvailable"].status, found["WorkersAvailable"].reason) == ("False", "ProgressDeadlineExceeded")
    assert "kubectl logs" in found["WorkersAvailable"].message
    assert found["Ready"].reason == "ProgressDeadlineExceeded"

    assert told(observed(deployment=samples.deployment(2, 1, conditions=[late])))["WorkersAvailable"].reason == "Starting"


def test_a_crash_of_old_pods_does_not_count_when_no_worker_is_wanted() -> None:
    o = observed(
        pods=[samples.pod("worker", "CrashLoopBackOff")], deployment=samples.deployment(0, 0),
        decision=Decision(0, 0, "depth", ScalingState()),
    )  # fmt: skip
    assert told(o)["WorkersAvailable"].reason == "ScaledToZero"


def test_a_schema_job_is_told_while_it_runs_and_when_it_fails() -> None:
    job: dict[str, Any] = {"metadata": {"namespace": "team", "name": "j"}, "status": {}}
    assert told(unready("NotAdopted", schema_job="j", jobs=[job]))["SchemaReady"].reason == "SchemaJobRunning"
    job["status"]["conditions"] = [{"type": "Failed", "status": "True", "message": "deadline"}]
    assert told(unready("NotAdopted", schema_job="j", jobs=[job]))["SchemaReady"].reason == "SchemaJobFailed"


def test_a_schema_job_that_fails_says_why_from_its_first_failure() -> None:
    job: dict[str, Any] = {"metadata": {"namespace": "team", "name": "j"}, "status": {"active": 1, "failed": 2}}
    pods = [
        samples.ended_pod("j", "2026-01-01T10:00:00Z", "leasequeue: table public.jobs cannot be adopted: the old reason\n"),
        samples.ended_pod("j", "2026-01-01T10:01:00Z", "leasequeue: table public.jobs cannot be adopted: it is a view\n"),
        samples.ended_pod("other", "2026-01-01T10:02:00Z", "of another Job"),
    ]

    found = told(unready("NotAdopted", schema_job="j", jobs=[job], pods=pods))["SchemaReady"]
    assert (found.status, found.reason) == ("False", "SchemaJobFailing")
    assert "Job j failed and is tried again" in found.message
    assert "it is a view" in found.message

    job["status"] = {"failed": 5, "conditions": [{"type": "Failed", "status": "True", "message": "BackoffLimit"}]}
    found = told(unready("NotAdopted", schema_job="j", jobs=[job], pods=pods))["SchemaReady"]
    assert found.reason == "SchemaJobFailed"
    assert "it is a view" in found.message


def test_a_schema_jobs_last_word_shows_no_password() -> None:
    job: dict[str, Any] = {"metadata": {"namespace": "team", "name": "j"}, "status": {"failed": 1}}
    pods = [samples.ended_pod("j", "2026-01-01T10:00:00Z", "leasequeue: no connection to postgresql://u:hunter22@db/x")]

    assert "hunter22" not in told(unready("NotAdopted", schema_job="j", jobs=[job], pods=pods))["SchemaReady"].message


def test_gaps_do_not_make_the_queue_not_ready_but_name_the_command() -> None:
    view = replace(samples.view(), gaps=("index jobs_lq_claim is missing",), command="leasequeue schema adopt --table jobs")
    found = told(observed(database=view))
    assert (found["SchemaReady"].status, found["SchemaReady"].reason) == ("True", "Incomplete")
    assert "leasequeue schema adopt --table jobs" in found["SchemaReady"].message


def test_scaling_by_others_and_by_hand() -> None:
    assert told(observed(autoscaler="HorizontalPodAutoscaler x"))["ScalingActive"].reason == "ReplicasManagedElsewhere"
    manual = told(observed(spec={"scaling": {"mode": "Manual"}}))["ScalingActive"]
    assert (manual.status, manual.reason) == ("False", "Manual")
    assert "spec.replicas is ignored" in told(observed())["ScalingActive"].message


@pytest.mark.parametrize(
    ("limiter", "reason"),
    [("max_replicas", "MaxReplicas"), ("max_inflight", "MaxInflight"), ("stale_leases", "StaleLeases"),
     ("schedule:night", "Schedule"), ("stabilization", "Stabilization"), ("step_up", "StepUp")],
)  # fmt: skip
def test_what_limits_the_scaling_is_named(limiter: str, reason: str) -> None:
    found = told(observed(decision=Decision(2, 9, limiter, ScalingState())))["ScalingLimited"]
    assert (found.status, found.reason) == ("True", reason)


def inflight(assigned: int, before: str | None = None) -> str:
    previous = {"InflightWithinLimit": {"reason": before}} if before else {}
    return told(observed(database=samples.view(assigned=assigned)), previous)["InflightWithinLimit"].reason


@pytest.mark.parametrize(
    ("assigned", "reason"),
    [(0, "WithinLimit"), (799, "WithinLimit"), (800, "AboveWarning"), (949, "AboveWarning"), (950, "AboveCritical"),
     (1000, "AboveCritical"), (1001, "Exceeded")],
)  # fmt: skip
def test_thresholds_of_the_items_in_flight(assigned: int, reason: str) -> None:
    assert inflight(assigned) == reason


def test_a_queue_at_the_threshold_does_not_flap() -> None:
    assert inflight(799, "AboveWarning") == "AboveWarning"
    assert inflight(779, "AboveWarning") == "WithinLimit"
    assert inflight(949, "AboveCritical") == "AboveCritical"
    assert inflight(900, "AboveCritical") == "AboveWarning"
    assert inflight(1001, "AboveWarning") == "Exceeded"


def test_suspension_drains_first() -> None:
    spec = {"suspend": True}
    assert told(observed(spec=spec))["Suspended"].reason == "Draining"
    drained = told(observed(spec=spec, deployment=samples.deployment(0, 0)))
    assert drained["Suspended"].reason == "Drained"
    assert (drained["Ready"].status, drained["Ready"].reason) == ("True", "Suspended")


def test_a_transition_time_moves_with_the_status_alone() -> None:
    now = NOW.timestamp()
    one = conditions.merge([], [Condition("Ready", "True", "Ready", "a")], 1, now)
    same = conditions.merge(one, [Condition("Ready", "True", "Suspended", "b")], 2, now + 60)
    other = conditions.merge(same, [Condition("Ready", "False", "X", "c")], 3, now + 120)
    assert one[0]["lastTransitionTime"] == same[0]["lastTransitionTime"] == "2026-03-01T12:00:30Z"
    assert other[0]["lastTransitionTime"] == "2026-03-01T12:02:30Z"
    assert {"type", "status", "observedGeneration", "lastTransitionTime", "reason", "message"} == other[0].keys()


def as_previous(o: Observation) -> dict[str, Any]:
    return {c.type: {"type": c.type, "status": c.status, "reason": c.reason} for c in conditions.conditions(o, {})}


def transitions(before: Observation | None, after: Observation) -> list[tuple[str, str]]:
    previous = as_previous(before) if before is not None else {}
    return [(e.type, e.reason) for e in events.transitions(previous, conditions.conditions(after, previous))]


def test_events_on_transitions_only() -> None:
    broken = unreachable("HostUnreachable")
    assert transitions(None, observed()) == []
    assert transitions(observed(), broken) == [("Warning", "HostUnreachable")]
    assert transitions(broken, broken) == []
    assert transitions(broken, unreachable("AuthenticationFailed")) == [("Warning", "AuthenticationFailed")]
    assert transitions(broken, observed()) == [("Normal", "Connected")]


def test_events_of_the_items_in_flight() -> None:
    calm, warm, hot = (observed(database=samples.view(assigned=n)) for n in (1, 850, 1200))
    assert transitions(calm, warm) == [("Warning", "AboveWarning")]
    assert transitions(warm, hot) == [("Warning", "Exceeded")]
    assert transitions(hot, calm) == [("Normal", "WithinLimit")]


def test_events_of_a_suspension_are_no_warnings() -> None:
    assert transitions(observed(), observed(spec={"suspend": True})) == [("Normal", "Draining")]


def test_events_of_a_schema_job_warn_when_it_fails() -> None:
    job: dict[str, Any] = {"metadata": {"namespace": "team", "name": "j"}, "status": {}}
    at_work = unready("NotAdopted", schema_job="j", jobs=[job])
    failed = {**job, "status": {"conditions": [{"type": "Failed", "status": "True", "message": "deadline"}]}}
    assert transitions(None, at_work) == [("Normal", "SchemaJobRunning")]
    assert transitions(at_work, unready("NotAdopted", schema_job="j", jobs=[failed])) == [("Warning", "SchemaJobFailed")]


def build(o: Observation, previous: dict[str, Any] | None = None) -> dict[str, Any]:
    return status.build(o, conditions.conditions(o, {}), previous or {})


def test_the_status() -> None:
    view = samples.view(pending=4, assigned=2, failed=1, scheduled_due=1, oldest_pending_at=NOW - timedelta(minutes=5))
    made = build(observed(database=view))
    assert made["observedGeneration"] == 3
    assert (made["desiredReplicas"], made["replicas"], made["readyReplicas"]) == (2, 2, 2)
    assert made["selector"] == f"leasequeue.dev/queue-uid={UID},leasequeue.dev/component=worker"
    assert made["items"] == {
        "pending": 4, "assigned": 2, "resolved": 0, "scheduled": 0, "failed": 1, "repair": 0, "pendingDue": 5,
        "expired": 0, "oldestPendingTime": "2026-03-01T11:55:30Z", "sampleTime": "2026-03-01T12:00:30Z",
    }  # fmt: skip
    assert made["reclaimer"] == {"lastSuccessTime": "2026-03-01T12:00:10Z"}
    assert made["scaling"]["limiter"] == "depth"


def test_counts_alone_are_written_once_a_minute() -> None:
    before, after = build(observed()), build(observed(database=samples.view(pending=9)))
    assert not status.worth_writing(after, before, 59)
    assert status.worth_writing(after, before, 60)
    assert not status.worth_writing(before, before, 3600)


def test_a_change_of_desired_or_of_a_condition_is_written_at_once() -> None:
    before = build(observed())
    assert status.worth_writing(build(observed(decision=Decision(3, 3, "depth", ScalingState()))), before, 0)
    assert status.worth_writing(build(unreachable("HostUnreachable")), before, 0)


def test_pods_that_come_up_are_not_written_one_by_one() -> None:
    before, after = build(observed(deployment=samples.deployment(2, 1))), build(observed())
    after["conditions"] = before["conditions"]
    assert not status.worth_writing(after, before, 9)
    assert status.worth_writing(after, before, 10)


def foreign(namespace: str = "other", uid: str = "u2") -> Any:
    return replace(samples.view(), owner=OwnedBy(uid, namespace, "theirs", mine=False))


def test_a_conflict_does_not_name_a_foreign_namespace() -> None:
    verdict = owner.judge(samples.queue(), foreign(), None, visible=False)
    assert verdict.problem is not None
    assert verdict.problem.reason == "Conflict"
    assert "other" not in verdict.problem.message.replace("another", "").replace("other table", "")
    assert "theirs" not in verdict.problem.message
    assert not verdict.take_over


def test_a_conflict_names_a_queue_of_the_same_namespace() -> None:
    verdict = owner.judge(samples.queue(), foreign("team"), samples.body("theirs", uid="u2"), visible=True)
    assert verdict.problem is not None
    assert "LeaseQueue theirs" in verdict.problem.message


def test_an_owner_that_is_no_more_is_followed_once_its_workers_are_gone() -> None:
    gone = foreign()
    assert owner.judge(samples.queue(), gone, None, visible=True).take_over
    busy = replace(gone, stats=samples.stats(workers=1))
    assert not owner.judge(samples.queue(), busy, None, visible=True).take_over
    assert not owner.judge(samples.queue(), gone, None, visible=False).take_over


@pytest.mark.parametrize(
    ("ours", "theirs", "shared"),
    [(["a"], ["b"], True), (["a"], ["a", "b"], False), ([], ["b"], False), (["a"], [], False)],
)
def test_disjoint_lanes_may_share_a_table(ours: list[str], theirs: list[str], shared: bool) -> None:
    other = samples.body("theirs", uid="u2", worker={"lanes": theirs})
    verdict = owner.judge(samples.queue(worker={"lanes": ours}), foreign(), other, visible=True)
    assert (verdict.problem is None) is shared


def test_a_sample_from_before_a_fault_is_none() -> None:
    good = samples.view(pending=3, assigned=5, expired=2)
    found = sample_of(good)
    assert found is not None
    assert (found.due, found.expired, found.assigned) == (3, 2, 3)
    assert sample_of(replace(good, unreachable=Problem("x", "y"))) is None
    assert sample_of(replace(good, unready=Problem("x", "y"))) is None
    assert sample_of(None) is None


def laned(**facts: int) -> Any:
    plain = {"unlaned": 0, "claimable": 0, "blocked": 0, "later": 0, "busy": 0}
    return LaneFacts(**{**plain, **facts})


STRICT = {"lease": {"lanes": {"strict": True}}}


def test_blocked_lanes() -> None:
    blocked = observed(spec=STRICT, database=samples.view(lanes=laned(blocked=2)))
    found = told(blocked)["LanesBlocked"]
    assert (found.status, found.reason) == ("True", "HeadBlocked")
    assert "2 lanes" in found.message
    free = observed(spec=STRICT, database=samples.view(lanes=laned(claimable=2)))
    assert told(free)["LanesBlocked"].status == "False"
    assert transitions(free, blocked) == [("Warning", "HeadBlocked")]
    assert transitions(blocked, free) == [("Normal", "NoneBlocked")]
    passing = {"lease": {"lanes": {"strict": True, "onBlockedHead": "Pass"}}}
    assert told(observed(spec=passing, database=samples.view(lanes=laned(blocked=2))))["LanesBlocked"].status == "False"


def test_strict_lanes_ask_for_one_worker_a_lane() -> None:
    found = sample_of(samples.view(pending=500, lanes=laned(unlaned=3, claimable=4, blocked=9)))
    assert found is not None
    assert found.due == 7
    waking = sample_of(samples.view(scheduled=5, scheduled_due=5, lanes=laned()))
    assert waking is not None
    assert waking.due == 1


@pytest.mark.parametrize(
    ("trust", "mode", "status", "reason"),
    [
        (Trust.OPEN, "prefer", "True", "NotEncrypted"),
        (Trust.ENCRYPTED, "require", "True", "NotVerified"),
        (Trust.VERIFIED, "verify-ca", "False", "Verified"),
        (Trust.LOCAL, "prefer", "False", "LocalSocket"),
    ],
)
def test_a_connection_to_whoever_answers_is_told(trust: Trust, mode: str, status: str, reason: str) -> None:
    found = told(observed(connection=Connection("", trust=trust, mode=mode)))
    assert (found["TLSNotVerified"].status, found["TLSNotVerified"].reason) == (status, reason)
    assert ("spec.database.sslMode" in found["TLSNotVerified"].message) == (status == "True")
    assert found["Ready"].status == "True"
