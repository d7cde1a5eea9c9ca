"""The run itself, step by step; every wait has a limit and says what it waited for."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from demo import kill, kube, manifests
from demo.database import Database
from demo.errors import DemoError
from demo.images import Images
from demo.settings import QUEUE, RELEASE, SYSTEM_NAMESPACE, TABLE, Settings
from demo.show import Bar, Screen
from demo.summary import Evidence, Kill, ReclaimRun
from demo.watch import Seen, Watch, reclaim_runs
from examples.review_queue.check import compare, read
from examples.review_queue.dataset import load
from examples.review_queue.items import ReviewItem, derive

CHART = Path(__file__).parent.parent / "charts" / "leasequeue"
HELM_SECONDS = 150
POSTGRES_SECONDS = 90.0
ADOPT_SECONDS = 90.0
FIRST_WORKER_SECONDS = 90.0
LOAD_SECONDS = 240.0
ZERO_SECONDS = 90.0
KILL_REPORT_SECONDS = 30.0


class Story:
    """One run over a cluster that kubectl reaches.

    Args:
        settings: its numbers.
        images: references the cluster knows.
        screen: where it tells what it does.
    """

    def __init__(self, settings: Settings, images: Images, screen: Screen) -> None:
        self._settings, self._images, self._screen = settings, images, screen
        self._password = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(32))
        self._kill: Kill | None = None
        self._left: list[str] = []
        self._runs: tuple[ReclaimRun, ...] = ()

    def run(self) -> Evidence:
        """Everything from the chart to the check.

        Raises:
            DemoError: a step failed or took too long.
        """
        items = list(derive(load(), self._settings.items))
        self._remove_old_runs()
        self._install()
        self._start_postgres()
        with kube.forward(self._settings.namespace, f"pod/{manifests.POSTGRES}", manifests.PORT) as port:
            database = Database(port, self._password)
            try:
                return self._work(database, items)
            finally:
                database.close()

    def _work(self, database: Database, items: list[ReviewItem]) -> Evidence:
        database.wait(POSTGRES_SECONDS)
        database.seed(items)
        self._screen.step(f"{len(items)} review items in public.{TABLE}, put in before LeaseQueue comes")
        watch = Watch(self._settings, database)
        before = self._create_queue(watch)
        self._drain(watch, database, len(items))
        self._to_zero(watch)
        return self._evidence(watch.seen, database, items, before)

    def _remove_old_runs(self) -> None:
        """Namespaces of earlier runs go away in the background."""
        for namespace in kube.get("namespaces", "-l", f"{manifests.DEMO_LABEL}={manifests.RUN}"):
            kube.kubectl("delete", "namespace", namespace["metadata"]["name"], "--wait=false", "--ignore-not-found")

    def _install(self) -> None:
        refuse_foreign_system(kube.get("namespaces"))
        kube.apply([manifests.namespace(SYSTEM_NAMESPACE, manifests.SYSTEM)])
        values = []
        for path, image in (
            ("", self._images.operator),
            ("worker.", self._images.worker),
            ("reclaimer.", self._images.reclaimer),
        ):
            repository, _, tag = image.rpartition(":")
            values += ["--set-string", f"{path}image.repository={repository}", "--set-string", f"{path}image.tag={tag}"]
        kube.run(
            "helm", "upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM_NAMESPACE, *values,
            "--wait", "--timeout", f"{HELM_SECONDS}s", timeout=HELM_SECONDS + 20,
        )  # fmt: skip
        self._screen.step(f"chart installed in {SYSTEM_NAMESPACE} (Pod Security restricted), operator ready")

    def _start_postgres(self) -> None:
        settings, namespace = self._settings, self._settings.namespace
        kube.apply([manifests.namespace(namespace, manifests.RUN), kill.node_namespace()])
        kube.apply(
            [
                manifests.secret(settings, self._password),
                manifests.postgres_service(settings),
                manifests.postgres_pod(settings, self._images.postgres),
            ]
        )
        limit = f"--timeout={POSTGRES_SECONDS:.0f}s"
        kube.kubectl(
            "-n", namespace, "wait", f"pod/{manifests.POSTGRES}", "--for=condition=Ready", limit,
            timeout=POSTGRES_SECONDS + 10,
        )  # fmt: skip
        self._screen.step(f"PostgreSQL ready in {namespace} (Pod Security restricted)")

    def _create_queue(self, watch: Watch) -> int:
        """Create the LeaseQueue and wait until it has adopted the table; returns the worker pods that were there."""
        watch.look_at_cluster()
        before = len(watch.seen.pods)
        kube.apply([manifests.lease_queue(self._settings, self._images.demo)])
        self._screen.step(f"LeaseQueue {QUEUE} created: max_inflight {self._settings.max_inflight}, workers {before}")
        _until(ADOPT_SECONDS, watch, lambda seen: condition(seen.queue, "SchemaReady") == "True", "the table's adoption")
        self._screen.step(f"public.{TABLE} adopted with its {watch.seen.counts.total} rows")
        _until(FIRST_WORKER_SECONDS, watch, lambda seen: seen.ready > 0, "a ready worker")
        self._screen.step(f"workers {before}→{watch.seen.ready}, {wanted(watch.seen.queue)} wanted")
        return before

    def _drain(self, watch: Watch, database: Database, total: int) -> None:
        deadline, shown = time.monotonic() + LOAD_SECONDS, False
        with self._screen.progress(total) as bar:
            while watch.look().counts.resolved < total:
                self._tell(bar, watch.seen)
                if self._kill is None and watch.seen.counts.resolved >= total * self._settings.kill_at:
                    self._kill_worker(watch, database)
                if watch.seen.alert.shown and not shown:
                    shown = True
                    self._screen.step(_alert_line(watch.seen, self._settings))
                self._look_for_reclaim(watch, database)
                if time.monotonic() > deadline:
                    raise DemoError(f"not resolved within {LOAD_SECONDS:.0f} s: {describe(watch.seen)}")
        self._look_for_reclaim(watch, database)
        self._screen.step(f"all {total} items resolved")

    def _tell(self, bar: Bar, seen: Seen) -> None:
        assigned, most = seen.counts.assigned, self._settings.max_inflight
        bar.update(seen.counts.resolved, f"workers {seen.ready} of {wanted(seen.queue)}, in flight {assigned} of {most}")

    def _kill_worker(self, watch: Watch, database: Database) -> None:
        victim = kill.choose(database.leases(), watch.seen.pods)
        if victim is None:
            return
        said = kill.kill(victim, f"kill-{self._settings.namespace}", self._images.demo)
        self._left = database.held_by(victim.worker_id)
        code = self._exit_code(victim.pod, watch)
        self._kill = Kill(victim.pod, victim.worker_id, code, len(self._left))
        self._screen.step(f"killed {victim.pod} from its node ({said}): {len(self._left)} leases left behind")

    def _look_for_reclaim(self, watch: Watch, database: Database) -> None:
        """Once the killed worker's items are back, say which run of the CronJob did it."""
        if self._runs or not self._left or database.crashed(self._left) < len(self._left):
            return
        self._runs = reclaim_runs(database.reclaim_runs(), watch.seen.jobs, self._settings.namespace)
        for run in self._runs:
            self._screen.step(f"CronJob run {run.job} reclaimed {run.reclaimed} items; its log tells of {run.logged}")

    def _exit_code(self, pod: str, watch: Watch) -> int | None:
        def code(seen: Seen) -> int | None:
            return next((kill.exit_code(p) for p in seen.pods if p["metadata"]["name"] == pod), None)

        _until(KILL_REPORT_SECONDS, watch, lambda seen: code(seen) is not None, f"the end of {pod} in its status")
        return code(watch.seen)

    def _to_zero(self, watch: Watch) -> None:
        _until(ZERO_SECONDS, watch, lambda seen: not seen.pods, "the last worker's end")
        self._screen.step(f"workers {watch.seen.workers_most}→0")

    def _evidence(self, seen: Seen, database: Database, items: list[ReviewItem], before: int) -> Evidence:
        with psycopg.connect(database.dsn) as conn:
            report = compare(items, *read(conn))
        return Evidence(
            report=report,
            wanted_items=self._settings.items,
            workers_before=before,
            workers_most=seen.workers_most,
            workers_after=len(seen.pods),
            kill=self._kill,
            back=database.crashed(self._left),
            runs=self._runs,
            alert=replace(seen.alert),
            max_inflight=self._settings.max_inflight,
            most_inflight=seen.most_inflight,
            seconds=self._screen.seconds,
            warning_percent=self._settings.warning_percent,
        )


def refuse_foreign_system(namespaces: Iterable[Mapping[str, Any]]) -> None:
    """Leave alone a LeaseQueue that somebody else installed.

    Raises:
        DemoError: the operator's namespace is there and not the demo's.
    """
    for namespace in namespaces:
        metadata = namespace["metadata"]
        ours = metadata.get("labels", {}).get(manifests.DEMO_LABEL) == manifests.SYSTEM
        if metadata["name"] == SYSTEM_NAMESPACE and not ours:
            raise DemoError(
                f"namespace {SYSTEM_NAMESPACE} of this cluster is not the demo's, which would replace the operator in it: "
                "use another cluster, or unset KUBECONFIG to have the demo bring one"
            )


def condition(queue: Mapping[str, Any], kind: str) -> str | None:
    """Status of a condition of a LeaseQueue, or None where it is not set."""
    found = [c["status"] for c in queue.get("status", {}).get("conditions", []) if c["type"] == kind]
    return str(found[0]) if found else None


def wanted(queue: Mapping[str, Any]) -> int:
    """Workers the operator wants now."""
    return int(queue.get("status", {}).get("desiredReplicas", 0))


def describe(seen: Seen) -> str:
    """What a wait that went wrong saw, with the conditions that are not as they should be."""
    conditions = seen.queue.get("status", {}).get("conditions", [])
    told = "; ".join(f"{c['type']}={c['status']} {c['reason']}: {c['message']}" for c in conditions)
    states = ", ".join(f"{count} {state}" for state, count in sorted(seen.counts.by_state.items()))
    return f"items {states or 'none'}; workers {seen.ready} of {wanted(seen.queue)}; {told or 'no condition yet'}"


def _until(seconds: float, watch: Watch, reached: Callable[[Seen], bool], what: str) -> None:
    deadline = time.monotonic() + seconds
    while not reached(watch.look()):
        if time.monotonic() > deadline:
            raise DemoError(f"waited {seconds:.0f} s for {what}: {describe(watch.seen)}")


def _alert_line(seen: Seen, settings: Settings) -> str:
    alert = seen.alert
    share = 100 * alert.assigned // settings.max_inflight
    return f"in-flight alert: condition {alert.condition}, event {alert.event}, metric at {share} % of max_inflight"
