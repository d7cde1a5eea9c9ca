"""The end of the demo: what was promised, what was seen, and whether they are the same. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from examples.review_queue.check import Report

KILLED = 128 + 9


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker ended by SIGKILL.

    Args:
        pod: its pod.
        worker_id: identity of the process, as leases carry it.
        exit_code: of its container, or None where Kubernetes has not reported one.
        left_behind: items that were ASSIGNED to it once it was dead.
    """

    pod: str
    worker_id: str
    exit_code: int | None
    left_behind: int


@dataclass(frozen=True, slots=True)
class ReclaimRun:
    """One run of the reclaimer's CronJob that took items back.

    Args:
        job: its Job.
        reclaimed: by its record in `leasequeue.reclaim_run`.
        logged: lines `item_lease_reclaimed` in its log.
    """

    job: str
    reclaimed: int
    logged: int


@dataclass(frozen=True, slots=True)
class Alert:
    """What the operator showed about items in flight.

    Args:
        condition: reason of the condition InflightWithinLimit while it did not hold.
        event: reason of the event.
        assigned: value of the metric, at its highest.
        threshold: assigned items at which the alert is due.
    """

    condition: str | None = None
    event: str | None = None
    assigned: int = 0
    threshold: int = 0

    @property
    def shown(self) -> bool:
        """Whether condition, event and metric all showed it."""
        return bool(self.condition and self.event and 0 < self.threshold <= self.assigned)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the demo saw.

    Args:
        report: items and postings against the source.
        wanted_items: items that the run was to have.
        workers_before, workers_most, workers_after: worker pods ready before the load, at most, and at the end.
        kill: the killed worker, or None.
        back: items of the killed worker that a reclaim took back.
        runs: CronJob runs that took items back.
        alert: what was shown about items in flight.
        max_inflight, most_inflight: the ceiling, and the most items seen ASSIGNED.
        seconds: from first step to summary.
    """

    report: Report
    wanted_items: int
    workers_before: int
    workers_most: int
    workers_after: int
    kill: Kill | None
    back: int
    runs: tuple[ReclaimRun, ...]
    alert: Alert
    max_inflight: int
    most_inflight: int
    seconds: float
    warning_percent: int = field(default=80)


def lines(seen: Evidence) -> list[tuple[str, str]]:
    """The summary: a name and what was seen, in this order."""
    report, alert = seen.report, seen.alert
    runs = seen.runs or (ReclaimRun("(none)", 0, 0),)
    return [
        ("items in", str(report.items_in)),
        ("resolved", str(report.resolved)),
        ("postings", str(report.postings)),
        ("lost", str(report.lost)),
        ("doubled", str(report.doubled)),
        ("totals exact", _totals(report)),
        ("executions started", f"{report.executions_started} (sum of attempts)"),
        (f"workers {seen.workers_before}→N→{seen.workers_after}", f"N = {seen.workers_most}"),
        ("worker killed", _killed(seen.kill)),
        *((f"items reclaimed by CronJob run {run.job}", _reclaimed(run)) for run in runs),
        (f"in-flight alert shown at {seen.warning_percent} %", _alert(alert)),
        ("in flight at most", f"{seen.most_inflight} of {seen.max_inflight}"),
        ("seconds", f"{seen.seconds:.0f}"),
    ]


def _totals(report: Report) -> str:
    total = sum((entity.posted for entity in report.totals), Decimal(0))
    word = "yes" if report.totals_exact else "NO"
    return f"{word}: {len(report.totals)} ledger entities, {total:,.2f} dollars posted"


def _killed(kill: Kill | None) -> str:
    if kill is None:
        return "NONE"
    return f"{kill.pod} by SIGKILL, exit code {kill.exit_code}; it left {kill.left_behind} leases behind"


def _reclaimed(run: ReclaimRun) -> str:
    return f"{run.reclaimed} by its record, {run.logged} by its log"


def _alert(alert: Alert) -> str:
    word = "yes" if alert.shown else "NO"
    metric = f"metric {alert.assigned} of threshold {alert.threshold}"
    return f"{word}: condition {alert.condition or 'none'}, event {alert.event or 'none'}, {metric}"


def problems(seen: Evidence) -> list[str]:
    """One sentence for each promise that was not kept; empty where all were."""
    found = list(seen.report.problems)
    if seen.report.items_in != seen.wanted_items:
        found.append(f"{seen.report.items_in} items went in, {seen.wanted_items} were to")
    if seen.workers_before or seen.workers_after or seen.workers_most < 2:
        went = f"{seen.workers_before}→{seen.workers_most}→{seen.workers_after}"
        found.append(f"workers went {went}: they should start at 0, reach 2 or more, and end at 0")
    found += _recovery_problems(seen)
    if not seen.alert.shown:
        found.append(f"the in-flight alert was not shown by condition, event and metric together: {_alert(seen.alert)}")
    if seen.most_inflight > seen.max_inflight:
        found.append(f"{seen.most_inflight} items were in flight, the ceiling is {seen.max_inflight}")
    return found


def _recovery_problems(seen: Evidence) -> list[str]:
    kill = seen.kill
    if kill is None:
        return ["no worker was killed"]
    found = []
    if kill.exit_code != KILLED:
        found.append(f"{kill.pod} ended with exit code {kill.exit_code}, SIGKILL gives {KILLED}")
    if not kill.left_behind:
        found.append(f"{kill.pod} held no lease when it was killed: nothing had to be recovered")
    if seen.back < kill.left_behind:
        found.append(f"{kill.left_behind - seen.back} of {kill.left_behind} leases of {kill.pod} were not reclaimed")
    by_runs = sum(run.reclaimed for run in seen.runs)
    if by_runs < kill.left_behind:
        found.append(f"runs of the CronJob reclaimed {by_runs} items, fewer than the {kill.left_behind} left behind")
    found += [
        f"the log of {run.job} has {run.logged} reclaimed items, its record {run.reclaimed}"
        for run in seen.runs
        if run.logged != run.reclaimed
    ]
    return found
