"""The cluster, the databases and the fleet that the drills act on: what is done and what is looked at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import yaml

from demo import kube
from devtools import monitoring_crds
from devtools.alertrun import queues
from devtools.alertrun.queues import EACH_MINUTE, NAMESPACE, lease_queue
from devtools.alertrun.values import VALUES
from devtools.pgserver import PgServer
from leasequeue.cli.app import cli

SYSTEM = "leasequeue-system"
OPERATOR = "deployment/leasequeue-operator"
NODE_ADDRESS = "10.244.0.1"
CHART = "charts/leasequeue"
MAIN, SECOND = "main", "second"
LOAD = "orders"
STRICT = {"lanes": {"strict": True}}
# Name, its own part of the spec, and which server it is on.
FLEET: dict[str, tuple[dict[str, Any], str]] = {
    LOAD: ({
        "lease": {"lanes": {"strict": True, "onBlockedHead": "Pass"}},
        "worker": {"concurrency": 4},
        "scaling": {"maxReplicas": 4, "drainTargetSeconds": 20},
        "reclaimer": {"schedule": EACH_MINUTE, "sweepIntervalSeconds": 5},
        "alerts": {"oldestPendingSeconds": 300},
    }, MAIN),
    "ramp": ({"worker": {"concurrency": 130}}, MAIN),
    "ceiling": ({"lease": {"maxInflightPolicy": "Enforce"}, "worker": {"concurrency": 130}}, MAIN),
    "starved": ({"worker": {"concurrency": 1}}, MAIN),
    "orphans": ({"worker": {"concurrency": 4}, "reclaimer": {"schedule": EACH_MINUTE, "sweepIntervalSeconds": 0}}, MAIN),
    "nobody": ({"worker": {"handler": "nowhere:handle"}}, MAIN),
    "faulty": ({}, MAIN),
    "laned": ({"lease": STRICT}, MAIN),
    "locked": ({"lease": {"pollIntervalMs": 200}}, MAIN),
    "outage": ({}, SECOND),
}  # fmt: skip
STRICT_QUEUES = (LOAD, "laned")


class World:
    """Everything the run touches.

    Args:
        servers: PostgreSQL by name, listening where pods reach it.
    """

    def __init__(self, servers: dict[str, PgServer]) -> None:
        self.servers = servers

    # --- building ----------------------------------------------------------------------------------------------------

    def install(self, folder: Path) -> None:
        """CRDs of the Prometheus Operator, then our chart."""
        for crd in monitoring_crds.files():
            kube.kubectl("apply", "--server-side", "-f", str(crd))
        names = [f"crd/{crd.stem.partition('_')[2]}.monitoring.coreos.com" for crd in monitoring_crds.files()]
        kube.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names, timeout=40)
        values = folder / "values.yaml"
        values.write_text(yaml.safe_dump(VALUES))
        kube.run(
            "helm", "upgrade", "--install", "leasequeue", CHART, "--namespace", SYSTEM, "--create-namespace", "--values",
            str(values), "--wait", "--timeout", "150s", timeout=170,
        )  # fmt: skip

    def populate(self) -> None:
        """Tables, Secrets and the queues."""
        objects = [queues.namespace(), queues.handlers()]
        for name, running in self.servers.items():
            uri = f"postgresql://postgres:{running.password}@{NODE_ADDRESS}:{running.port}/postgres"
            objects.append(queues.secret(name, uri))
            self._run(name, "CREATE TABLE gate (queue text PRIMARY KEY)")
        for name, (spec, server) in FLEET.items():
            self.leasequeue(
                server, "schema", "create", "--table", name, "--column", "task:text NOT NULL",
                *(["--strict-lanes"] if name in STRICT_QUEUES else []),
            )  # fmt: skip
            self._sweep(server, name)
            scaling = {"minReplicas": 0 if name == LOAD else 1, **spec.get("scaling", {})}
            objects.append(lease_queue(name, server, **{**spec, "scaling": scaling}))
        kube.apply(objects)

    def leasequeue(self, server: str, *arguments: str) -> None:
        """Run our command line on a server.

        Raises:
            SystemExit: it did not end with 0.
        """
        dsn = self.servers[server].dsn()
        cli.main([*arguments, "--dsn", dsn], standalone_mode=False)

    def _sweep(self, server: str, table: str) -> None:
        """One run of the reclaimer, so that a new queue need not wait for the next minute to have had one."""
        program = str(Path(sys.executable).parent / "leasequeue-reclaimer")
        command = [program, "--dsn", self.servers[server].dsn(), "--table", table]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    # --- looking -----------------------------------------------------------------------------------------------------

    def rows(self, statement: str, *values: object, server: str = MAIN) -> list[tuple[Any, ...]]:
        """What a query gives."""
        with psycopg.connect(self.servers[server].dsn(), autocommit=True) as conn:
            return conn.execute(statement.encode(), values or None).fetchall()

    def assigned(self, queue: str) -> int:
        """Rows that are ASSIGNED."""
        return int(self.rows(f"SELECT count(*) FROM {queue} WHERE state = 'ASSIGNED'")[0][0])

    @staticmethod
    def unready() -> list[str]:
        """Queues that are not Ready; one whose workers cannot start on purpose does not count."""
        found = kube.get("leasequeues.leasequeue.dev", "-n", NAMESPACE)
        ready = {q["metadata"]["name"] for q in found if _condition(q, "Ready") == "True"}
        return sorted(set(FLEET) - ready - {"nobody"})

    @staticmethod
    def rules() -> list[dict[str, Any]]:
        """Rule groups of the PrometheusRule that the chart installed, as the API server has it."""
        (rule,) = kube.get("prometheusrules.monitoring.coreos.com", "-n", SYSTEM)
        groups: list[dict[str, Any]] = rule["spec"]["groups"]
        return groups

    @staticmethod
    def dashboard() -> dict[str, Any]:
        """The dashboard that the chart installed."""
        (found,) = kube.get("configmaps", "-n", SYSTEM, "-l", "grafana_dashboard=1")
        (text,) = found["data"].values()
        board: dict[str, Any] = json.loads(text)
        return board

    # --- doing -------------------------------------------------------------------------------------------------------

    def _run(self, server: str, statement: str, *values: object) -> None:
        with psycopg.connect(self.servers[server].dsn(), autocommit=True) as conn:
            conn.execute(statement.encode(), values or None)

    def execute(self, statement: str, *values: object) -> None:
        """A statement on the main server."""
        self._run(MAIN, statement, *values)

    def enqueue(
        self, queue: str, task: str, count: int, *, age: str = "0 s", priority: int = 0, lane: str | None = None
    ) -> None:
        """`count` items that are as old as `age` (an interval)."""
        self.execute(
            f"INSERT INTO {queue} (task, priority, lane, created_at, run_at)"
            " SELECT %s, %s, %s, clock_timestamp() - %s::interval, clock_timestamp() - %s::interval FROM generate_series(1, %s)",
            task, priority, lane, age, age, count,
        )  # fmt: skip

    def enqueue_tasks(self, queue: str, tasks: Sequence[tuple[str, str | None]]) -> None:
        """One item a (task, lane)."""
        with psycopg.connect(self.servers[MAIN].dsn()) as conn, conn.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {queue} (task, lane) VALUES (%s, %s)".encode(), tasks)

    def open_gate(self, queue: str) -> None:
        """Let everything go that is held."""
        self.execute("INSERT INTO gate VALUES (%s) ON CONFLICT DO NOTHING", queue)

    @staticmethod
    def patch(queue: str, change: dict[str, Any]) -> None:
        """Merge-patch a LeaseQueue."""
        kube.kubectl("-n", NAMESPACE, "patch", "lq", queue, "--type=merge", "-p", json.dumps({"spec": change}))

    @staticmethod
    def _workers(queue: str) -> dict[str, str]:
        """Containers of the running workers by their pods."""
        selector = f"leasequeue.dev/queue={queue},leasequeue.dev/component=worker"
        found = kube.get("pods", "-n", NAMESPACE, "-l", selector)
        return {str(p["metadata"]["name"]): _container(p) for p in found if _container(p)}

    def busiest_worker(self, queue: str) -> tuple[str, str]:
        """Pod and container of the running worker with most leases; waits for one that has any.

        Raises:
            AssertionError: not within a minute.
        """
        held = f"SELECT leased_by FROM {queue} WHERE state = 'ASSIGNED' GROUP BY 1 ORDER BY count(*) DESC"

        def look() -> tuple[str, str] | None:
            containers = self._workers(queue)
            pods = (str(row[0]).rpartition("-")[0] for row in self.rows(held))
            return next(((pod, containers[pod]) for pod in pods if pod in containers), None)

        found: tuple[str, str] = until(f"a worker of {queue} with leases", 60, look)
        return found


def _condition(queue: dict[str, Any], kind: str) -> str:
    conditions = queue.get("status", {}).get("conditions", [])
    return next((str(c["status"]) for c in conditions if c["type"] == kind), "")


def _container(pod: dict[str, Any]) -> str:
    """Id of the pod's running worker, "" where it does not run."""
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return next((str(s["containerID"]).rpartition("/")[2] for s in statuses if "running" in s.get("state", {})), "")


def signal_container(container: str, number: signal.Signals) -> None:
    """Send a signal to all processes of a container; they are known by its id in their cgroup.

    Raises:
        ProcessLookupError: there is none.
    """
    # Under devcluster's exec the node's processes are seen, those of containers among them.
    found = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _in_cgroup(entry, container)]
    if not found:
        raise ProcessLookupError(f"no process of container {container[:12]}")
    for entry in found:
        os.kill(int(entry.name), number)


def _in_cgroup(entry: Path, container: str) -> bool:
    try:
        return container in (entry / "cgroup").read_text()
    except (OSError, ValueError):
        return False


def until(what: str, seconds: float, holds: Callable[[], Any]) -> Any:
    """Poll until `holds` gives something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(1)
    return value


def quiet(queue: str) -> bool:
    """Whether no reclaimer of the queue runs."""
    selector = f"leasequeue.dev/queue={queue},leasequeue.dev/component=reclaimer"
    return not any(j.get("status", {}).get("active") for j in kube.get("jobs", "-n", NAMESPACE, "-l", selector))


def scale_operator(replicas: int) -> None:
    """Take the operator away, or bring it back."""
    kube.kubectl("-n", SYSTEM, "scale", OPERATOR, f"--replicas={replicas}")
