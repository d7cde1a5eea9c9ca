"""The main job under outages, run where kubectl reaches the cluster; prints its evidence as one JSON line at the end.

    python -m devcluster exec -- python -m tests.cluster.outages

One load of review items over all of it: the operator is stopped for two minutes (a worker is killed meanwhile), then PostgreSQL for
one minute. PostgreSQL runs beside the pods, on the node's address, so that it can be stopped and started with its data.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from demo import kill, kube, manifests
from demo.database import CRASHED, HELD, INSERT, LEASES, STATES
from demo.images import Images
from demo.settings import QUEUE, SYSTEM_NAMESPACE, Settings
from demo.watch import selected
from devtools.pgserver import PgServer
from examples.review_queue.check import compare, read
from examples.review_queue.dataset import load
from examples.review_queue.items import derive

ROOT_SQL = Path(__file__).resolve().parents[2] / "examples" / "review_queue"
NODE_ADDRESS = "10.244.0.1"
NAMESPACE = "outages"
OPERATOR = "deployment/leasequeue-operator"
INSIDE = "LEASEQUEUE_OUTAGES_INSIDE"
# Two workers of eight slots and 2.5 s an item: about 6 items a second, so 2,000 items outlast both outages.
SETTINGS = Settings(
    namespace=NAMESPACE, items=2000, handler_seconds=2.5, concurrency=8, max_replicas=2, drain_target_seconds=60,
)  # fmt: skip


@dataclass
class Evidence:
    """What was seen; times in seconds since the load began."""

    log: list[str] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)
    resolved_before_operator_stop: int = 0
    resolved_after_operator_stop: int = 0
    left_by_killed_worker: int = 0
    reclaimed_without_operator: int = 0
    template_before: str = ""
    template_after: str = ""
    pods_before_return: list[str] = field(default_factory=list)
    pods_after_return: list[str] = field(default_factory=list)
    plan_equals_state: bool = False
    replicas_during_outage: list[int] = field(default_factory=list)
    database_reachable_reason: str = ""
    database_reachable_status: str = ""
    resumed: bool = False
    problems: list[str] = field(default_factory=list)
    resolved: int = 0
    postings: int = 0
    executions: int = 0
    to_zero: bool = False
    scale: list[int] = field(default_factory=list)
    get: str = ""
    describe: str = ""
    left_after_uninstall: dict[str, int] = field(default_factory=dict)


class Run:
    """One run.

    Args:
        images: references the cluster knows.
        server: PostgreSQL on the node's address.
    """

    def __init__(self, images: Images, server: PgServer) -> None:
        self.images, self.server, self.evidence = images, server, Evidence()
        self.began = time.monotonic()
        self.watching = threading.Event()

    def say(self, text: str) -> None:
        line = f"{time.monotonic() - self.began:5.0f} s  {text}"
        self.evidence.log.append(line)
        print(line, flush=True)

    def until(self, what: str, seconds: float, holds: Callable[[], Any]) -> Any:
        """Poll until `holds` gives something true."""
        deadline = time.monotonic() + seconds
        while not (value := holds()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:.0f} s: {what}; {self.state()}")
            time.sleep(1)
        return value

    def state(self) -> str:
        """For messages: conditions, and rows where the server answers."""
        found = self.queue()
        conditions = {c["type"]: f"{c['status']} {c['reason']}" for c in found.get("status", {}).get("conditions", [])}
        try:
            return f"conditions {conditions}, rows {self.counts()}"
        except psycopg.Error as ex:
            return f"conditions {conditions}, no rows ({type(ex).__name__})"

    # --- looks -------------------------------------------------------------------------------------------------------

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.dsn(), autocommit=True) as conn:
            return conn.execute(statement.encode(), values or None).fetchall()

    def counts(self) -> dict[str, int]:
        return dict(self.rows(STATES))

    def resolved(self) -> int:
        return self.counts().get("RESOLVED", 0)

    @staticmethod
    def queue() -> dict[str, Any]:
        found = kube.get("leasequeues.leasequeue.dev", "-n", NAMESPACE)
        return next((q for q in found if q["metadata"]["name"] == QUEUE), {})

    @staticmethod
    def deployment() -> dict[str, Any]:
        found = [d for d in kube.get("deployments", "-n", NAMESPACE) if d["metadata"].get("ownerReferences")]
        return found[0] if found else {}

    def pods(self) -> list[dict[str, Any]]:
        selector = self.queue().get("status", {}).get("selector")
        return [
            p for p in kube.get("pods", "-n", NAMESPACE) if selected(p, selector) and "deletionTimestamp" not in p["metadata"]
        ]

    def condition(self, kind: str) -> dict[str, str]:
        conditions: list[dict[str, str]] = self.queue().get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def replicas(self) -> int:
        return int(self.deployment().get("spec", {}).get("replicas", 0))

    # --- the story ---------------------------------------------------------------------------------------------------

    def play(self) -> Evidence:
        self.start()
        self.operator_away(120)
        self.database_away(60)
        self.finish()
        self.scale_by_hand()
        self.uninstall()
        return self.evidence

    def start(self) -> None:
        kube.apply([manifests.namespace(SYSTEM_NAMESPACE, manifests.SYSTEM), manifests.namespace(NAMESPACE, manifests.RUN)])
        kube.apply([kill.node_namespace()])
        values: list[str] = []
        for path, image in (("", self.images.operator), ("worker.", self.images.worker), ("reclaimer.", self.images.reclaimer)):
            repository, _, tag = image.rpartition(":")
            values += ["--set-string", f"{path}image.repository={repository}", "--set-string", f"{path}image.tag={tag}"]
        kube.run(
            "helm", "upgrade", "--install", "leasequeue", "charts/leasequeue", "--namespace", SYSTEM_NAMESPACE, *values,
            "--wait", "--timeout", "150s", timeout=170,
        )  # fmt: skip
        with psycopg.connect(self.server.dsn()) as conn:
            for name in ("table.sql", "ledger.sql"):
                conn.execute((ROOT_SQL / name).read_bytes())
            rows = [
                (i.idempotency_key, i.ledger_entity, i.variance_amount, i.match_decision, i.source_hash)
                for i in derive(load(), SETTINGS.items)
            ]
            with conn.cursor() as cursor:
                cursor.executemany(INSERT, rows)
        kube.apply([self._secret(), manifests.lease_queue(SETTINGS, self.images.demo)])
        self.until("items resolved by two workers", 180, lambda: self.resolved() > 20 and self.replicas() == 2)
        self.say("load is running on two workers")

    def _secret(self) -> dict[str, Any]:
        parts = {
            "host": NODE_ADDRESS, "port": str(self.server.port), "user": "postgres", "password": self.server.password,
            "dbname": "postgres",
        }  # fmt: skip
        uri = f"postgresql://{parts['user']}:{parts['password']}@{parts['host']}:{parts['port']}/{parts['dbname']}"
        return {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": manifests.DATABASE_SECRET, "namespace": NAMESPACE},
            "stringData": {"uri": uri},
        }  # fmt: skip

    def operator_away(self, seconds: float) -> None:
        """Stop the operator under load; kill a worker meanwhile; look at what rolls when it returns."""
        seen = self.evidence
        seen.template_before = json.dumps(self.deployment()["spec"]["template"], sort_keys=True)
        kube.kubectl("-n", SYSTEM_NAMESPACE, "scale", OPERATOR, "--replicas=0")
        self.until("the operator's end", 60, lambda: not kube.get("pods", "-n", SYSTEM_NAMESPACE))
        stopped = time.monotonic()
        seen.resolved_before_operator_stop = self.resolved()
        self.say(f"operator stopped; {seen.resolved_before_operator_stop} resolved")
        victim = self.until("a worker with leases", 60, self._victim)
        kill.kill(victim, "kill-outages", self.images.demo)
        left = [row[0] for row in self.rows(HELD, victim.worker_id)]
        seen.left_by_killed_worker = len(left)
        self.say(f"killed worker {victim.pod}: {len(left)} leases left behind")
        self.until("the reclaim without an operator", 110, lambda: self.rows(CRASHED, left)[0][0] == len(left))
        seen.reclaimed_without_operator = self.rows(CRASHED, left)[0][0]
        self.say(f"the CronJob reclaimed {seen.reclaimed_without_operator} of them with no operator running")
        time.sleep(max(0.0, seconds - (time.monotonic() - stopped)))
        seen.resolved_after_operator_stop = self.resolved()
        seen.pods_before_return = sorted(p["metadata"]["uid"] for p in self.pods())
        kube.kubectl("-n", SYSTEM_NAMESPACE, "scale", OPERATOR, "--replicas=1")
        kube.kubectl("-n", SYSTEM_NAMESPACE, "rollout", "status", OPERATOR, "--timeout=90s", timeout=100)
        self.say(f"operator back after {time.monotonic() - stopped:.0f} s; {seen.resolved_after_operator_stop} resolved")
        time.sleep(20)
        seen.pods_after_return = sorted(p["metadata"]["uid"] for p in self.pods())
        seen.template_after = json.dumps(self.deployment()["spec"]["template"], sort_keys=True)
        status = self.queue()["status"]
        seen.plan_equals_state = status.get("desiredReplicas") == self.replicas() == len(self.pods())

    def _victim(self) -> kill.Victim | None:
        return kill.choose([kill.WorkerLeases(*row) for row in self.rows(LEASES)], self.pods())

    def database_away(self, seconds: float) -> None:
        """Stop PostgreSQL under load; replicas must hold and the condition must say so."""
        seen = self.evidence
        before = self.resolved()
        self.server.shut_down()
        stopped = time.monotonic()
        self.say(f"PostgreSQL stopped; {before} resolved")
        while time.monotonic() - stopped < seconds:
            seen.replicas_during_outage.append(self.replicas())
            reachable = self.condition("DatabaseReachable")
            if reachable.get("status") == "False":
                seen.database_reachable_status, seen.database_reachable_reason = "False", reachable["reason"]
            time.sleep(2)
        self.server.start()
        self.say(
            f"PostgreSQL back after {time.monotonic() - stopped:.0f} s; replicas seen {sorted(set(seen.replicas_during_outage))}"
        )
        self.until("items resolved again", 60, lambda: self.resolved() > before + 20)
        self.until("DatabaseReachable", 60, lambda: self.condition("DatabaseReachable").get("status") == "True")
        seen.resumed = True
        self.say("work resumed")

    def finish(self) -> None:
        seen = self.evidence
        seen.get = kube.kubectl("get", "lq", "-n", NAMESPACE)
        self.until("all items resolved", 600, lambda: self.resolved() == SETTINGS.items)
        self.until("no worker left", 120, lambda: not self.pods() and self.replicas() == 0)
        seen.to_zero = True
        with psycopg.connect(self.server.dsn()) as conn:
            report = compare(list(derive(load(), SETTINGS.items)), *read(conn))
        seen.problems = list(report.problems)
        seen.resolved = self.resolved()
        seen.postings = self.rows("SELECT count(*) FROM ledger_posting")[0][0]
        seen.executions = self.rows("SELECT sum(attempt)::int FROM review_queue_item")[0][0]
        seen.describe = kube.kubectl("describe", "lq", QUEUE, "-n", NAMESPACE)
        self.say(f"all resolved, workers at zero; problems: {seen.problems}")

    def scale_by_hand(self) -> None:
        """Manual mode obeys `kubectl scale`."""
        patch = json.dumps({"spec": {"scaling": {"mode": "Manual"}}})
        kube.kubectl("-n", NAMESPACE, "patch", "lq", QUEUE, "--type=merge", "-p", patch)
        for wanted in (2, 0):
            kube.kubectl("-n", NAMESPACE, "scale", f"lq/{QUEUE}", f"--replicas={wanted}")
            self.until(
                f"{wanted} workers by kubectl scale", 120, lambda n=wanted: len(self.pods()) == n and self.replicas() == n
            )
            self.evidence.scale.append(len(self.pods()))
        self.say("kubectl scale: 2, then 0")

    def uninstall(self) -> None:
        kube.run("helm", "uninstall", "leasequeue", "--namespace", SYSTEM_NAMESPACE, "--wait", timeout=150)
        left = kube.get("leasequeues.leasequeue.dev", "-n", NAMESPACE)
        self.evidence.left_after_uninstall = {"queues": len(left), "rows": sum(self.counts().values())}
        self.say(f"helm uninstall left {self.evidence.left_after_uninstall}")


def main() -> int:
    """Run it; the last line is the evidence."""
    images = Images(**json.loads(os.environ[INSIDE]))
    with PgServer(18, durable=True, listen=NODE_ADDRESS, settings={"max_connections": "200"}) as server:
        run = Run(images, server)
        try:
            run.play()
        except Exception as ex:
            run.evidence.problems.append(f"{type(ex).__name__}: {ex}")
        print("EVIDENCE " + json.dumps(asdict(run.evidence)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
