"""What each alert does, case by case: series of a queue over 90 minutes, a moment, and who must be named then.

A series is written as promtool writes it ("80x90": 80 at each of 91 minutes; "0+60x90": the clock itself;
"1x10 stale": the target went away).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Series = dict[str, str]
NOW = "0+60x90"
TEAM_A = ("team-a", "orders")
TEAM_B = ("team-b", "pages")


@dataclass(frozen=True)
class Case:
    """At `minute`, alert `alert` is firing for exactly the queues `names` (or, with `bare`, once without a queue)."""

    alert: str
    title: str
    series: Series
    minute: int = 30
    names: tuple[tuple[str, str], ...] = ()
    bare: bool = field(default=False)

    @property
    def fires(self) -> bool:
        """Whether anything is firing."""
        return self.bare or bool(self.names)


HEALTHY: Mapping[str, str] = {
    'leasequeue_info{max_inflight_policy="Alert"}': "1x90",
    "leasequeue_items{state='REPAIR'}": "3x90",
    "leasequeue_assigned": "10x90",
    "leasequeue_max_inflight": "100x90",
    "leasequeue_inflight_warning_ratio": "0.8x90",
    "leasequeue_inflight_critical_ratio": "0.95x90",
    "leasequeue_oldest_pending_limit_seconds": "600x90",
    "leasequeue_oldest_pending_timestamp_seconds": NOW,
    "leasequeue_reclaim_after_seconds": "45x90",
    "leasequeue_reclaimer_overdue_seconds": "300x90",
    "leasequeue_reclaimer_made_timestamp_seconds": "0x90",
    "leasequeue_reclaimer_last_success_timestamp_seconds": NOW,
    "leasequeue_workers_desired": "2x90",
    "leasequeue_workers_ready": "2x90",
    "leasequeue_database_up": "1x90",
    "leasequeue_sample_timestamp_seconds": NOW,
    "leasequeue_poll_period_seconds": "5x90",
    'leasequeue_condition{type="Accepted",status="False"}': "0x90",
    'leasequeue_condition{type="Suspended",status="True"}': "0x90",
    'leasequeue_condition{type="LanesBlocked",status="True"}': "0x90",
    "leasequeue_database_errors_total{kind='busy'}": "0x90",
}
OPERATOR: Series = {'leasequeue_operator_acting{pod="op-1"}': "1x90"}
ENFORCE = {'leasequeue_info{max_inflight_policy="Alert"}': "", 'leasequeue_info{max_inflight_policy="Enforce"}': "1x90"}


def queue(changes: Mapping[str, str] | None = None, of: tuple[str, str] = TEAM_A, pod: str = "op-1") -> Series:
    """Series of a healthy queue with `changes` (the value "" takes a series away), as scraped from one pod."""
    namespace, name = of
    values = {**HEALTHY, **(changes or {})}
    found = {}
    for series, text in values.items():
        metric, _, labels = series.partition("{")
        inner = labels.rstrip("}").replace("'", '"')
        own = f'queue_namespace="{namespace}",queue="{name}",namespace="ops",pod="{pod}"'
        if text:
            found[f"{metric}{{{own}{',' if inner else ''}{inner}}}"] = text
    return found


def _inflight() -> Iterator[Case]:
    for alert, limit in (("InflightHigh", 80), ("InflightCritical", 95), ("InflightExceeded", 101)):
        yield Case(alert, "at the threshold", queue({"leasequeue_assigned": f"{limit}x90"}), names=(TEAM_A,))
        yield Case(alert, "one below", queue({"leasequeue_assigned": f"{limit - 1}x90"}))
        yield Case(alert, "just begun", queue({"leasequeue_assigned": f"10x29 {limit}x60"}))
        yield Case(
            alert,
            "one queue of two, each with its own threshold",
            queue({"leasequeue_assigned": "150x90", "leasequeue_max_inflight": "1000x90"})
            | queue({"leasequeue_assigned": f"{limit}x90"}, of=TEAM_B),
            names=(TEAM_B,),
        )
        yield Case(
            alert,
            "through a restart of the operator",
            queue({"leasequeue_assigned": f"{limit}x28 stale"})
            | queue({"leasequeue_assigned": f"_x28 {limit}x62"}, pod="op-2"),
            minute=30,
            names=(TEAM_A,),
        )
        yield Case(
            alert,
            "scraped with and without honorLabels",
            {
                series.replace('namespace="ops",', ""): text
                for series, text in queue({"leasequeue_assigned": f"{limit}x90"}).items()
            }
            | queue({"leasequeue_assigned": f"{limit}x90"}, of=TEAM_B),
            names=(TEAM_A, TEAM_B),
        )
        yield Case(alert, "no samples", queue({"leasequeue_assigned": ""}))
        yield Case(alert, "deleted queue", queue({"leasequeue_assigned": f"{limit}x20 stale"}), minute=22)
    over = {"leasequeue_assigned": "101x90"}
    yield Case("InflightExceeded", "under Enforce AtCeiling speaks", queue(over | ENFORCE))
    unknown = {'leasequeue_info{max_inflight_policy="Alert"}': ""}
    yield Case("InflightExceeded", "policy unknown", queue(over | unknown), names=(TEAM_A,))


def _at_ceiling() -> Iterator[Case]:
    full = {
        "leasequeue_assigned": "100 97 99 100 98 97 99 100 97 98 " * 9,
        "leasequeue_oldest_pending_timestamp_seconds": "0x90",
    }
    waits = queue(full | ENFORCE)
    yield Case("AtCeiling", "full, and items wait", waits, names=(TEAM_A,))
    yield Case(
        "AtCeiling",
        "full, and nothing waits long",
        queue({**full, **ENFORCE} | {"leasequeue_oldest_pending_timestamp_seconds": NOW}),
    )
    yield Case("AtCeiling", "items wait, and there is room", queue({**full, **ENFORCE} | {"leasequeue_assigned": "97x90"}))
    yield Case("AtCeiling", "policy Alert", queue(full))
    begun = {"leasequeue_oldest_pending_timestamp_seconds": "1170x90"}
    yield Case("AtCeiling", "just begun", queue({**full, **ENFORCE, **begun}))
    yield Case("AtCeiling", "no sample of the ceiling", queue({**full, **ENFORCE} | {"leasequeue_max_inflight": ""}))


def _reclaimer() -> Iterator[Case]:
    last = "leasequeue_reclaimer_last_success_timestamp_seconds"
    failed_once = " ".join(str(60 * (minute - (minute == 20))) for minute in range(91))
    yield Case("ReclaimerOverdue", "no run since minute 10", queue({last: "600x90"}), names=(TEAM_A,))
    yield Case("ReclaimerOverdue", "never a run", queue({last: ""}), names=(TEAM_A,))
    yield Case("ReclaimerOverdue", "in its first minutes", queue({last: ""}), minute=4)
    hourly = {last: "", "leasequeue_reclaimer_overdue_seconds": "3830x90"}
    yield Case("ReclaimerOverdue", "never a run, and its hour has not come", queue(hourly), minute=50)
    yield Case("ReclaimerOverdue", "never a run within its hour", queue(hourly), minute=80, names=(TEAM_A,))
    made = "leasequeue_reclaimer_made_timestamp_seconds"
    yield Case("ReclaimerOverdue", "made a moment ago for an old queue", queue({last: "", made: "1680x90"}))
    yield Case("ReclaimerOverdue", "could not even be made", queue({last: "", made: ""}), names=(TEAM_A,))
    yield Case("ReclaimerOverdue", "runs", queue())
    yield Case("ReclaimerOverdue", "one failed run", queue({last: failed_once}), minute=21)
    yield Case("ReclaimerOverdue", "recovered", queue({last: "0x30 1860+60x59"}), minute=33)
    yield Case(
        "ReclaimerOverdue",
        "an hourly schedule",
        queue({last: "0x90", "leasequeue_reclaimer_overdue_seconds": "7500x90"}),
        minute=80,
    )
    yield Case(
        "ReclaimerOverdue", "nothing known while the database is away", queue({last: "", "leasequeue_database_up": "0x90"})
    )
    yield Case(
        "ReclaimerOverdue",
        "deleted queue",
        queue({last: "600x30 stale", "leasequeue_reclaimer_overdue_seconds": "300x30 stale"}),
        minute=32,
    )

    oldest = "leasequeue_oldest_expired_timestamp_seconds"
    yield Case("LeasesNotReclaimed", "expired since minute 10", queue({oldest: "_x10 600x80"}), names=(TEAM_A,))
    yield Case("LeasesNotReclaimed", "nothing expired", queue())
    refused = {oldest: "_x10 600x80", "leasequeue_reclaimer_overdue_seconds": ""}
    yield Case("LeasesNotReclaimed", "the spec is refused and no reclaimer planned", queue(refused), names=(TEAM_A,))
    yield Case("LeasesNotReclaimed", "just begun", queue({oldest: "1425x90"}))
    yield Case("LeasesNotReclaimed", "always one, each reclaimed in time", queue({oldest: "-60+60x90"}))
    yield Case(
        "LeasesNotReclaimed",
        "a long reclaimAfterSeconds",
        queue({oldest: "1200x90", "leasequeue_reclaim_after_seconds": "600x90"}),
        minute=34,
    )
    yield Case("LeasesNotReclaimed", "reclaimed in the end", queue({oldest: "600x30 stale"}), minute=32)


def _waiting() -> Iterator[Case]:
    oldest = "leasequeue_oldest_pending_timestamp_seconds"
    old = {oldest: "0x90"}
    suspended = {'leasequeue_condition{type="Suspended",status="True"}': "1x90"}
    yield Case("OldestItemTooOld", "waits for half an hour", queue(old), names=(TEAM_A,))
    yield Case("OldestItemTooOld", "within the limit", queue({oldest: "1260x90"}))
    yield Case("OldestItemTooOld", "nothing waits", queue({oldest: ""}))
    yield Case("OldestItemTooOld", "just begun", queue({oldest: "1170x90"}))
    yield Case("OldestItemTooOld", "a limit of an hour", queue(old | {"leasequeue_oldest_pending_limit_seconds": "3600x90"}))
    yield Case("OldestItemTooOld", "suspended", queue(old | suspended))
    yield Case("OldestItemTooOld", "taken at last", queue({oldest: "0x30 stale"}), minute=32)

    desired, ready = "leasequeue_workers_desired", "leasequeue_workers_ready"
    yield Case("NoReadyWorkers", "none of two", queue({ready: "0x90"}), names=(TEAM_A,))
    yield Case("NoReadyWorkers", "no count of ready ones", queue({ready: ""}), names=(TEAM_A,))
    yield Case("NoReadyWorkers", "one of two", queue({ready: "1x90"}))
    yield Case("NoReadyWorkers", "none wanted", queue({desired: "0x90", ready: "0x90"}))
    yield Case("NoReadyWorkers", "starting", queue({desired: "0x28 2x62", ready: "0x90"}))
    yield Case("NoReadyWorkers", "deleted queue", queue({desired: "2x20 stale", ready: "0x20 stale"}), minute=22)


def _trouble() -> Iterator[Case]:
    failures = "leasequeue_database_errors_total{kind='busy'}"
    yield Case("LockContention", "one a second", queue({failures: "0+60x90"}), names=(TEAM_A,))
    spread = queue({failures: "0+10x90"}, pod="w-1") | queue({failures: "0+10x90"}, pod="w-2")
    yield Case("LockContention", "spread over workers", spread, names=(TEAM_A,))
    yield Case("LockContention", "now and then", queue({failures: "0+5x90"}))
    yield Case("LockContention", "a minute of it", queue({failures: "0x20 100 200 200x60"}), minute=24)
    yield Case("LockContention", "a restarted worker counts from zero", queue({failures: "5000x20 0x69"}))
    yield Case("LockContention", "no workers", queue({failures: ""}))
    away = {failures: "", "leasequeue_database_errors_total{kind='connection'}": "0+60x90"}
    yield Case("LockContention", "errors of another kind", queue(away))

    repair = "leasequeue_items{state='REPAIR'}"
    yield Case("RepairGrowing", "one more", queue({repair: "3x20 4x70"}), names=(TEAM_A,))
    yield Case("RepairGrowing", "the first ones", queue({repair: "0x20 7x70"}), names=(TEAM_A,))
    restarted = queue({repair: "3x20 stale"}) | queue({repair: "_x20 5x70"}, pod="op-2")
    yield Case("RepairGrowing", "across a restart of the operator", restarted, names=(TEAM_A,))
    yield Case("RepairGrowing", "some, and no more", queue())
    yield Case("RepairGrowing", "just begun", queue({repair: "3x29 4x60"}))
    yield Case("RepairGrowing", "fewer", queue({repair: "9x20 3x70"}))
    yield Case("RepairGrowing", "an hour later", queue({repair: "3x10 4x80"}), minute=75)
    yield Case("RepairGrowing", "no samples", queue({repair: ""}))

    blocked = 'leasequeue_condition{type="LanesBlocked",status="True"}'
    yield Case("LaneBlocked", "blocked", queue({blocked: "1x90"}), names=(TEAM_A,))
    yield Case("LaneBlocked", "free", queue())
    yield Case("LaneBlocked", "for a moment", queue({blocked: "0x25 1x2 0x60"}), minute=28)
    yield Case("LaneBlocked", "deleted queue", queue({blocked: "1x20 stale"}), minute=22)


def _blind() -> Iterator[Case]:
    up = "leasequeue_database_up"
    yield Case("DatabaseUnreachable", "away", queue({up: "0x90"}), names=(TEAM_A,))
    yield Case("DatabaseUnreachable", "there", queue())
    yield Case("DatabaseUnreachable", "one poll failed", queue({up: "1x28 0 1x60"}), minute=29)
    yield Case("DatabaseUnreachable", "not known", queue({up: ""}))

    stamp = "leasequeue_sample_timestamp_seconds"
    rejected = {'leasequeue_condition{type="Accepted",status="False"}': "1x90"}
    yield Case("MetricsStale", "a sample of minute 10", queue({stamp: "600x90"}), names=(TEAM_A,))
    three = queue() | queue({stamp: ""}, of=TEAM_B) | queue(of=("team-c", "other"))
    yield Case("MetricsStale", "one queue of three without data", three, names=(TEAM_B,))
    yield Case("MetricsStale", "fresh", queue())
    yield Case("MetricsStale", "just begun", queue({stamp: "1680x90"}))
    yield Case("MetricsStale", "a slow poll", queue({stamp: "1080x90", "leasequeue_poll_period_seconds": "300x90"}), minute=33)
    yield Case("MetricsStale", "not accepted", queue(rejected | {stamp: ""}))
    yield Case("MetricsStale", "no queues at all", dict(OPERATOR))

    info = 'leasequeue_operator_acting{pod="op-1"}'
    yield Case("OperatorDown", "gone since minute 10", {info: "1x10 stale"}, bare=True)
    yield Case("OperatorDown", "never there", {"other": "1x90"}, bare=True)
    yield Case("OperatorDown", "just begun", {info: "1x28 stale"})
    yield Case("OperatorDown", "there, without queues", dict(OPERATOR))
    moved = {info: "1x20 stale", info.replace("op-1", "op-2"): "_x22 1x60"}
    yield Case("OperatorDown", "replaced", moved, minute=27)
    second = info.replace("op-1", "op-2")
    yield Case("OperatorDown", "one acts and one stands by", {info: "1x90", second: "0x90"})
    yield Case("OperatorDown", "two stand by and nobody acts", {info: "1x10 0x79", second: "0x90"}, bare=True)
    yield Case("OperatorDown", "the other took over", {info: "1x10 0x79", second: "0x12 1x77"})


CASES = [*_inflight(), *_at_ceiling(), *_reclaimer(), *_waiting(), *_trouble(), *_blind()]
