"""A queue in each state that its conditions can tell of, all at once on a real cluster; `kubectl describe` of each is kept.

No image is needed: what is looked at is what the operator and Kubernetes say. The descriptions are in build/describe/.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.operator.lab import ROOT, Lab, cluster, eventually
from tests.operator.operating import Operating, account, conditions, login, namespace, node_postgres, rules
from tests.operator.samples import merged

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.slow]

HOME, TEAM, PORT, PG_PORT = "ops", "states", 18097, 15434
FOLDER = ROOT / "build" / "describe"
NEVER = {"image": "no-such-image:1", "imagePullPolicy": "Never"}
AUTO = {"pollPeriodSeconds": 1, "maxReplicas": 3}


@dataclass(frozen=True)
class State:
    """One queue in one state.

    Args:
        name: of the queue and of its table, with dashes as underscores.
        kind, status, reason: the condition that tells of it.
        spec: changes of a plain spec.
        sql: run before the queue is made; `{t}` is its table.
        also: objects made before it.
    """

    name: str
    kind: str
    status: str
    reason: str
    spec: dict[str, Any] = field(default_factory=dict)
    sql: tuple[str, ...] = ()
    also: tuple[dict[str, Any], ...] = ()

    @property
    def table(self) -> str:
        return self.name.replace("-", "_")


def items(count: int, state: str = "PENDING") -> str:
    return f"INSERT INTO {{t}} (state) SELECT '{state}' FROM generate_series(1, {count})"


def leased(count: int, expiry: str) -> str:
    return (
        "INSERT INTO {t} (state, leased_by, leased_at, lease_expires_at, lease_token) SELECT 'ASSIGNED', 'w', now(), "
        f"now() + interval '{expiry}', gen_random_uuid() FROM generate_series(1, {count})"
    )


def secret(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": TEAM}, "stringData": data}


def database(secret_name: str, **more: Any) -> dict[str, Any]:
    return {"database": {"secretRef": {"name": secret_name, **more}}}


FOREIGN = {
    "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "foreign-child-reclaimer", "namespace": TEAM},
    "spec": {
        "schedule": "0 0 1 1 *", "suspend": True,
        "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "x", "image": "x:1"}]}}}},
    },
}  # fmt: skip
UNREACHABLE = "postgresql://u:p@127.0.0.1:1/x"
NIGHT = [{"name": "all-day", "start": "* * * * *", "end": "0 0 1 1 *", "minReplicas": 2}]
STATES = [
    State("ready", "Ready", "True", "Ready"),
    State("not-adopted", "SchemaReady", "False", "NotAdopted", sql=("CREATE TABLE {t} (id uuid PRIMARY KEY, state text, leased_by text)",)),
    State("table-missing", "SchemaReady", "False", "TableMissing"),
    State("incomplete", "SchemaReady", "True", "Incomplete", sql=("DROP INDEX {t}_lq_claim",)),
    State("secret-missing", "DatabaseReachable", "False", "SecretNotFound", database("nowhere")),
    State("secret-key-missing", "DatabaseReachable", "False", "SecretKeyNotFound", database("db", key="dsn")),
    State("host-unreachable", "DatabaseReachable", "False", "HostUnreachable", database("dead"), also=(secret("dead", uri=UNREACHABLE),)),
    State("wrong-password", "DatabaseReachable", "False", "AuthenticationFailed", database("wrong")),
    State("conflict", "Accepted", "False", "Conflict", {"database": {"table": "ready"}}),
    State("foreign-child", "Accepted", "False", "ChildNameTaken", also=(FOREIGN,)),
    State("bad-schedule", "Accepted", "False", "InvalidSchedule", {"reclaimer": {"schedule": "*/90 * * * *"}}),
    State("pod-template-refused", "Accepted", "False", "PodTemplateRefused", {"worker": {"podTemplate": {"spec": {"hostNetwork": True}}}}),
    State("image-missing", "WorkersAvailable", "False", "ErrImageNeverPull", {"worker": NEVER, "scaling": {"minReplicas": 1}}),
    State("quota", "WorkersAvailable", "False", "FailedCreate", {"scaling": {"minReplicas": 2}, "worker": {
        "resources": {"requests": {"cpu": "900"}}}}),
    State("suspended", "Suspended", "True", "Drained", {"suspend": True}),
    State("manual", "ScalingActive", "False", "Manual", {"scaling": {"mode": "Manual"}, "replicas": 0}),
    State("max-replicas", "ScalingLimited", "True", "MaxReplicas", {"scaling": {"maxReplicas": 1}}, (items(500),)),
    State("min-replicas", "ScalingLimited", "True", "MinReplicas", {"scaling": {"minReplicas": 1}}),
    State("schedule", "ScalingLimited", "True", "Schedule", {"scaling": {"schedules": NIGHT}}),
    State("max-inflight", "ScalingLimited", "True", "MaxInflight", {
        "lease": {"maxInflight": 100}, "scaling": {"maxReplicas": 1000}}, (items(5000),)),
    State("inflight-warning", "InflightWithinLimit", "False", "AboveWarning", {"lease": {"maxInflight": 100}}, (leased(85, "1 hour"),)),
    State("inflight-exceeded", "InflightWithinLimit", "False", "Exceeded", {"lease": {"maxInflight": 100}}, (leased(120, "1 hour"),)),
    State("lanes-blocked", "LanesBlocked", "True", "HeadBlocked", {"lease": {"lanes": {"strict": True}}}, (
        "INSERT INTO {t} (state, lane) VALUES ('FAILED', 'a')", "INSERT INTO {t} (state, lane) VALUES ('PENDING', 'a')")),
    State("reclaimer-overdue", "ReclaimerHealthy", "False", "Overdue", {"reclaimer": {"schedule": "0 * * * *"}}, (
        "INSERT INTO leasequeue.queue_stat (queue, swept_at) VALUES ('{t}'::regclass, now() - interval '1 day')",)),
    State("reclaimer-suspended", "ReclaimerHealthy", "Unknown", "Suspended", {"reclaimer": {"suspend": True}}),
]  # fmt: skip
# One quota that refuses the pods of the state `quota` alone: it asks for more CPU than all others together.
QUOTA = {
    "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cpu", "namespace": TEAM},
    "spec": {"hard": {"requests.cpu": "800"}},
}  # fmt: skip
NOT_MADE = {"not-adopted", "table-missing", "conflict"}


def queue(state: State) -> dict[str, Any]:
    plain = {
        "database": {"secretRef": {"name": "db"}, "table": state.table},
        "worker": {"handler": "a.b:c", "resources": {"requests": {"cpu": "1m"}}}, "scaling": AUTO,
        "reclaimer": {"schedule": "0 0 1 1 *"},
    }  # fmt: skip
    return {
        "apiVersion": "leasequeue.dev/v1alpha1", "kind": "LeaseQueue",
        "metadata": {"name": state.name, "namespace": TEAM}, "spec": merged(plain, state.spec),
    }  # fmt: skip


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    strict = [s.table for s in STATES if s.spec.get("lease", {}).get("lanes", {}).get("strict")]
    plain = [s.table for s in STATES if s.name not in NOT_MADE and s.table not in strict]
    with cluster("states") as made, node_postgres(made, PG_PORT, *plain, *(f"strict:{name}" for name in strict)) as uri:
        made.apply(namespace(HOME), namespace(TEAM))
        made.apply(secret("db", uri=uri), secret("wrong", uri=uri.replace("postgres:", "postgres:x")), QUOTA)
        statements = [statement.format(t=state.table) for state in STATES for statement in state.sql]
        run = "import psycopg, sys\nwith psycopg.connect(sys.argv[1], autocommit=True) as c:\n  for s in sys.argv[2:]: c.execute(s)"
        made.run(sys.executable, "-c", run, uri, *statements)
        yield made


@pytest.fixture(scope="module")
def made(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operating]:
    """The operator, with all queues made; the first of them before the one that is in conflict with it."""
    folder = tmp_path_factory.mktemp("states")
    lab.apply(*account(HOME, "operator", rules()))
    operator = Operating(lab, login(lab, HOME, "operator", folder), folder / "log", PORT)
    operator.start()
    lab.apply(queue(STATES[0]))
    eventually("the first", lambda: conditions(lab.get(TEAM, "leasequeue", "ready")).get("Ready", ("",))[0] == "True", 90)
    lab.apply(*(o for state in STATES for o in state.also), *(queue(state) for state in STATES[1:]))
    FOLDER.mkdir(parents=True, exist_ok=True)
    yield operator
    assert operator.stop() == 0
    assert "reconcile_crashed" not in operator.log()


@pytest.mark.parametrize("state", STATES, ids=[state.name for state in STATES])
def test_the_condition_tells_the_state(lab: Lab, made: Operating, state: State) -> None:
    def found() -> tuple[str, str, str]:
        return conditions(lab.get(TEAM, "leasequeue", state.name)).get(state.kind, ("", "", ""))

    try:
        eventually(f"{state.kind} {state.status} {state.reason}", lambda: found()[:2] == (state.status, state.reason), 120, 1.0)
    finally:
        write(lab, state, FOLDER / f"{state.name}.txt")
    assert found()[2]


def write(lab: Lab, state: State, path: Path) -> None:
    """Keep the description."""
    text = lab.kubectl("-n", TEAM, "describe", "lq", state.name)
    path.write_text(f"# {state.kind}={state.status} {state.reason}\n{text}")
