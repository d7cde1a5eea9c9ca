"""One look at the run after another, and what is remembered of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from demo import alert, kube
from demo.database import Counts, Database
from demo.kill import is_ready
from demo.settings import QUEUE, SYSTEM_NAMESPACE, Settings
from demo.summary import Alert, ReclaimRun

# Twice a second for the database, every other second for the cluster: each kubectl costs a tenth of a second of a core.
DATABASE_SECONDS = 0.5
CLUSTER_SECONDS = 2.0
METRICS = "leasequeue-metrics"


@dataclass(slots=True)
class Seen:
    """What the looks so far showed.

    Args:
        counts: rows by state, latest.
        queue: the LeaseQueue, latest.
        pods: worker pods, latest.
        jobs: names of all reclaimer Jobs of the CronJob seen so far.
        workers_most, most_inflight: highest so far.
        alert: gathered so far.
    """

    counts: Counts = field(default_factory=lambda: Counts({}))
    queue: Mapping[str, Any] = field(default_factory=dict)
    pods: list[Mapping[str, Any]] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)
    workers_most: int = 0
    most_inflight: int = 0
    alert: Alert = field(default_factory=Alert)

    @property
    def ready(self) -> int:
        """Worker pods that are ready now."""
        return sum(is_ready(pod) for pod in self.pods)


class Watch:
    """Looks at database and cluster as often as is due.

    Args:
        settings: of the run.
        database: to look at.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database
        self._next_cluster = 0.0
        self.seen = Seen(alert=Alert(threshold=settings.max_inflight * settings.warning_percent // 100))

    def look(self) -> Seen:
        """Wait until the next look is due, look, and return everything seen so far."""
        time.sleep(DATABASE_SECONDS)
        seen = self.seen
        seen.counts = self._database.counts()
        seen.most_inflight = max(seen.most_inflight, seen.counts.assigned)
        if time.monotonic() >= self._next_cluster:
            self.look_at_cluster()
            self._next_cluster = time.monotonic() + CLUSTER_SECONDS
        return seen

    def look_at_cluster(self) -> None:
        """Read the LeaseQueue, its worker pods and the reclaimer's Jobs; the alert as long as it was not shown."""
        seen, namespace = self.seen, self._settings.namespace
        objects = kube.get("leasequeues.leasequeue.dev,pods,jobs", "-n", namespace)
        found: dict[str, list[dict[str, Any]]] = {"LeaseQueue": [], "Pod": [], "Job": []}
        for thing in objects:
            found[thing["kind"]].append(thing)
        seen.queue = next((queue for queue in found["LeaseQueue"] if queue["metadata"]["name"] == QUEUE), {})
        seen.pods = [pod for pod in found["Pod"] if selected(pod, seen.queue.get("status", {}).get("selector"))]
        seen.workers_most = max(seen.workers_most, seen.ready)
        seen.jobs |= set(cronjob_jobs(found["Job"]))
        if not seen.alert.shown:
            self._look_for_alert()

    def _look_for_alert(self) -> None:
        seen, namespace = self.seen, self._settings.namespace
        condition = alert.condition_reason(seen.queue)
        due = condition or seen.counts.assigned >= seen.alert.threshold
        if not due:
            return
        events = kube.get("events", "-n", namespace, "--field-selector", f"involvedObject.name={QUEUE}")
        gauge = alert.assigned(operator_metrics(), namespace, QUEUE)
        seen.alert = alert.merge(seen.alert, condition, alert.event_reason(events, QUEUE), gauge)


def selected(pod: Mapping[str, Any], selector: str | None) -> bool:
    """Whether a pod matches an equality selector such as `a=b,c=d`; nothing matches where there is none."""
    if not selector:
        return False
    labels = pod["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, _, value in (part.partition("=") for part in selector.split(",")))


def cronjob_jobs(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of those Jobs that a CronJob made."""
    return [
        job["metadata"]["name"]
        for job in jobs
        if any(owner["kind"] == "CronJob" for owner in job["metadata"].get("ownerReferences", []))
    ]


def job_of(runner: str, jobs: Iterable[str]) -> str | None:
    """The CronJob's Job a run was made in, or None for a run of somebody else.

    Args:
        runner: as recorded: the pod's name, which is the Job's and a suffix.
        jobs: names of the CronJob's Jobs.
    """
    job = runner.rpartition("-")[0]
    return job if job in set(jobs) else None


def logged(log: str) -> int:
    """Items that a reclaimer's log says were taken back; lines that are no JSON are passed over."""
    return sum('"item_lease_reclaimed"' in line for line in log.splitlines())


def reclaim_runs(recorded: Iterable[tuple[str, int]], jobs: Iterable[str], namespace: str) -> tuple[ReclaimRun, ...]:
    """Runs of the CronJob that took items back, with what their pods logged.

    Args:
        recorded: runner and items of each recorded run.
        jobs: names of the CronJob's Jobs.
        namespace: of their pods.
    """
    runs = []
    for runner, reclaimed in recorded:
        if job := job_of(runner, jobs):
            runs.append(ReclaimRun(job, reclaimed, logged(kube.kubectl("-n", namespace, "logs", runner))))
    return tuple(runs)


def operator_metrics() -> str:
    """The operator's /metrics, through the API server and the chart's Service.

    Raises:
        DemoError: it does not answer.
    """
    return kube.kubectl("get", "--raw", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/services/{METRICS}:http/proxy/metrics")
