"""What a live run needs on the cluster: PostgreSQL beside the pods, the operator by its chart, and a queue in a namespace of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from demo import kube
from demo.images import Images
from devcluster.addresses import NODE_IP
from devtools.pgserver import PgServer
from leasequeue import schema
from leasequeue.schema.create import ColumnSpec
from leasequeue.table import Table

NODE_ADDRESS = NODE_IP
SYSTEM = "leasequeue-system"
OPERATOR = "deployment/leasequeue-operator"
QUEUE, TABLE = "jobs", "jobs"
LEASE_QUEUES = "leasequeues.leasequeue.dev"
HANDLERS = "/opt/live"
EXECUTIONS = """
    CREATE TABLE execution (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL, pod text NOT NULL,
        began_at timestamptz NOT NULL DEFAULT clock_timestamp(), ended_at timestamptz
    )
"""
CUT_OFF = "SELECT count(*) FROM execution WHERE ended_at IS NULL"

Manifest = dict[str, Any]


def server() -> PgServer:
    """PostgreSQL on the node's address, where pods reach it."""
    return PgServer(18, listen=NODE_ADDRESS, settings={"max_connections": "900", "shared_buffers": "256MB"})


def install(images: Images) -> None:
    """The operator, by its chart."""
    values: list[str] = []
    for path, image in (("", images.operator), ("worker.", images.worker), ("reclaimer.", images.reclaimer)):
        repository, _, tag = image.rpartition(":")
        values += ["--set-string", f"{path}image.repository={repository}", "--set-string", f"{path}image.tag={tag}"]
    kube.run(
        "helm", "upgrade", "--install", "leasequeue", "charts/leasequeue", "--namespace", SYSTEM, "--create-namespace", *values,
        "--wait", "--timeout", "150s", timeout=170,
    )  # fmt: skip


def until(what: str, seconds: float, holds: Callable[[], Any], every_s: float = 1.0) -> Any:
    """Poll until `holds` gives something true.

    Raises:
        AssertionError: it did not within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every_s)
    return value


@dataclass
class Lab:
    """One queue: a namespace, a database, a table and a LeaseQueue.

    Args:
        server: where its database is.
        namespace: of its own, removed by `remove`.
    """

    server: PgServer
    namespace: str

    @property
    def database(self) -> str:
        """Name of its database."""
        return self.namespace.replace("-", "_")

    def connect(self) -> psycopg.Connection[Any]:
        """A connection to its database."""
        return psycopg.connect(self.server.dsn(self.database), autocommit=True)

    def make(self, worker: Mapping[str, Any], scaling: Mapping[str, Any], lease: Mapping[str, Any]) -> Table:
        """Make everything, and wait until the operator has the queue at rest.

        Args:
            worker, scaling, lease: parts of the LeaseQueue's spec.
        """
        self.server.create_database(self.database)
        with self.connect() as conn:
            schema.create(conn, TABLE, columns=[ColumnSpec.parse("seconds:double precision")])
            table = Table.load(conn, TABLE)
            conn.execute(EXECUTIONS)
        handler = (Path(__file__).parent / "sleeper.py").read_text()
        uri = f"postgresql://postgres:{self.server.password}@{NODE_ADDRESS}:{self.server.port}/{self.database}"
        kube.apply([
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}},
            self._object("ConfigMap", "handlers", data={"sleeper.py": handler}),
            self._object("Secret", "db", stringData={"uri": uri}),
        ])  # fmt: skip
        kube.apply([self._queue(worker, scaling, lease)])
        until("the queue is ready", 90, lambda: self.condition("SchemaReady") == "True" and bool(self.deployment()))
        return table

    def _object(self, kind: str, name: str, **parts: Any) -> Manifest:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": self.namespace}, **parts}

    def _queue(self, worker: Mapping[str, Any], scaling: Mapping[str, Any], lease: Mapping[str, Any]) -> Manifest:
        overlay = {
            "spec": {
                "volumes": [{"name": "handlers", "configMap": {"name": "handlers"}}],
                "containers": [{"name": "worker", "volumeMounts": [{"name": "handlers", "mountPath": HANDLERS}]}],
            }
        }
        plain = {"handler": "sleeper:handle", "env": [{"name": "PYTHONPATH", "value": HANDLERS}], "podTemplate": overlay}
        return {
            "apiVersion": "leasequeue.dev/v1alpha1",
            "kind": "LeaseQueue",
            "metadata": {"name": QUEUE, "namespace": self.namespace},
            "spec": {
                "database": {"secretRef": {"name": "db"}, "schema": "public", "table": TABLE},
                "worker": {**plain, **worker},
                "scaling": dict(scaling),
                "lease": dict(lease),
                # The reclaimer has nothing to do where no run is cut off; its pods would disturb the measuring each minute.
                "reclaimer": {"schedule": "*/5 * * * *", "sweepIntervalSeconds": 0},
            },
        }

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Merge into the LeaseQueue's spec."""
        kube.kubectl("-n", self.namespace, "patch", "lq", QUEUE, "--type=merge", "-p", json.dumps({"spec": spec}))

    def queue(self) -> Manifest:
        """The LeaseQueue."""
        return kube.get(LEASE_QUEUES, QUEUE, "-n", self.namespace)[0]

    def condition(self, kind: str) -> str:
        """Status of one condition; empty before the first."""
        told = (self.queue().get("status") or {}).get("conditions") or ()
        return next((str(c["status"]) for c in told if c["type"] == kind), "")

    def cut_off(self) -> int:
        """Executions that began and never ended, now that nothing runs."""
        with self.connect() as conn:
            row = conn.execute(CUT_OFF).fetchone()
        return int(row[0]) if row else 0

    def busy_kills(self) -> int:
        """Leases that the operator says it cut off."""
        return int(((self.queue().get("status") or {}).get("scaling") or {}).get("busyKills") or 0)

    def deployment(self) -> Manifest:
        """The worker Deployment; empty before it is there."""
        found = kube.get("deployments", "-n", self.namespace)
        return found[0] if found else {}

    def replicas(self) -> int:
        """Pods that the Deployment asks for."""
        return int(self.deployment().get("spec", {}).get("replicas", 0))

    def remove(self) -> None:
        """Remove the namespace with all that is in it, and the database."""
        kube.kubectl("delete", "namespace", self.namespace, "--wait=true", "--timeout=120s", timeout=130)
        self.server.drop_database(self.database)
