"""Decreases of every cause, with jobs that would be cut off if anything went wrong.

Six pods of two slots work on twelve jobs of 30 s, and a pod gets 5 s to end. Each scene makes the fleet smaller in its own way while
they run. Nothing may be cut off: counted from the items (executions begun), from what each execution wrote of itself, from what
the operator says (busy kills), and from the pods' logs (jobs begun and ended, each as the job itself wrote it).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import leasequeue
from benchmarks.autoscaling.live import lab, signals
from benchmarks.autoscaling.live.joblogs import JobLogs
from benchmarks.autoscaling.live.lab import Lab, until
from benchmarks.autoscaling.live.pods import PodWatch
from benchmarks.autoscaling.live.run import FAULTS, Say
from demo import kube
from demo.images import Images
from devtools.pgserver import PgServer
from leasequeue.table import Table

GRACE_S = 5
PODS, SLOTS = 6, 2
OUTLASTS_S = 90
FIRST = PODS * SLOTS
SCALING = {
    "minReplicas": 0, "maxReplicas": PODS, "pollPeriodSeconds": 2, "scaleDownStabilizationSeconds": 5, "drainTargetSeconds": 10,
}  # fmt: skip
TALLY = """
    SELECT count(*), count(*) FILTER (WHERE state = 'RESOLVED'), count(*) FILTER (WHERE attempt > 1), coalesce(sum(crash_count), 0)::int,
           count(DISTINCT leased_by)
      FROM jobs
"""
IN_FLIGHT = "SELECT count(*) FROM jobs WHERE state = 'ASSIGNED'"
WAITING = "SELECT count(*) FROM jobs WHERE state = 'PENDING'"
CORDONED = "SELECT worker_id FROM leasequeue.worker WHERE cordoned_until > clock_timestamp()"
FIRST_CLAIM = "SELECT extract(epoch FROM min(leased_at) - min(created_at))::float8 FROM jobs"
SLOW_POLL_S = 60
CLAIMED_SINCE = (
    "SELECT count(*), count(DISTINCT leased_by) FROM jobs WHERE leased_by = ANY(%s) AND leased_at > to_timestamp(%s)"
)


@dataclass(frozen=True)
class Outcome:
    """What a scene came to.

    Args:
        name: of the scene.
        items, resolved: rows.
        again: items begun more than once.
        crashes: executions reclaimed.
        busy_kills: what the operator says it cut off.
        unended: executions that began and never ended, by their own rows.
        began, ended: jobs, from the pods' logs.
        pods: pods made.
        facts: what else it saw.
        problems: what was not as it should be.
    """

    name: str
    items: int = 0
    resolved: int = 0
    again: int = 0
    crashes: int = 0
    busy_kills: int = 0
    unended: int = 0
    began: int = 0
    ended: int = 0
    pods: int = 0
    facts: str = ""
    problems: tuple[str, ...] = field(default_factory=tuple)

    @property
    def line(self) -> str:
        """The summary."""
        cut_off = max(self.again, self.crashes, self.busy_kills, self.unended, self.began - self.ended)
        told = (
            f"shrink/{self.name}: {self.items} items, {self.resolved} resolved; running jobs ended {cut_off} (begun again {self.again}, "
            f"reclaimed {self.crashes}, busy kills {self.busy_kills}, executions without an end {self.unended}); logs of {self.pods} pods: {self.began} began, {self.ended} ended"
        )
        return "; ".join([told, self.facts, *(f"PROBLEM: {p}" for p in self.problems)])


class Scene:
    """One queue with its watch and logs.

    Args:
        server: where its database is.
        name: of the scene.
        job_s: seconds of a job.
        scaling: more of `spec.scaling`.
    """

    def __init__(self, server: PgServer, name: str, job_s: float, scaling: dict[str, Any] | None = None) -> None:
        self.here = Lab(server, f"shrink-{name}")
        self.name, self.job_s = name, job_s
        self.table: Table = self.here.make(
            {"concurrency": SLOTS, "terminationGracePeriodSeconds": GRACE_S}, {**SCALING, **(scaling or {})}, {}
        )
        self.watch = PodWatch(self.here.namespace)
        self.watch.start()
        self.logs = JobLogs(self.watch)

    def add(self, seconds: Sequence[float]) -> None:
        """Enqueue jobs."""
        with self.here.connect() as conn:
            leasequeue.enqueue(conn, self.table, [{"seconds": s} for s in seconds])

    def one(self, statement: str, *values: Any) -> tuple[Any, ...]:
        """First row of a query."""
        with self.here.connect() as conn:
            return conn.execute(statement.encode(), values or None).fetchone() or ()

    def busy(self) -> None:
        """Twelve jobs run on six pods; the shorter ones end first, so that pods come free one by one."""
        self.add([self.job_s * (0.7 + 0.05 * n) for n in range(FIRST)])
        # Begun, not running at once: where pods start slowly the first jobs are over before the last pod is there.
        until(f"{self.name}: every job has begun", 120, lambda: self.one(WAITING) == (0,))

    def pods(self, count: int, seconds: float) -> None:
        """Wait until the fleet has come down to `count` pods, or further: the load may end meanwhile."""
        until(
            f"{self.name}: {count} pods", seconds,
            lambda: self.here.replicas() <= count and len(self.watch.alive()) <= count,
        )  # fmt: skip

    def to_zero(self, *, suspend: bool = False) -> None:
        """Wait until everything is done and no pod is left.

        Args:
            suspend: do not wait for the rate of two small loads to be forgotten, for which a last pod stays a few minutes.
        """
        until(f"{self.name}: all resolved", 180 + 4 * self.job_s, lambda: self.one(TALLY)[0] == self.one(TALLY)[1])
        if suspend:
            self.here.patch({"suspend": True})
        self.pods(0, 240)

    def close(self, facts: str) -> Outcome:
        """Count, and remove everything."""
        items, resolved, again, crashes, _ = self.one(TALLY)
        kills, unended = self.here.busy_kills(), self.here.cut_off()
        logs = self.logs.stop()
        self.watch.stop()
        began, ended = (sum(counts[n] for counts in logs.values()) for n in (0, 1))
        checks = (
            (resolved == items, "not all resolved"),
            (again == crashes == kills == unended == 0, "an execution was cut off"),
            (began == ended == items, "the logs tell of another number of jobs"),
            (len(logs) == sum(life.ready_at is not None for life in self.watch.lives.values()), "a log was not followed"),
        )
        problems = tuple(text for holds, text in checks if not holds)
        self.here.remove()
        return Outcome(self.name, items, resolved, again, crashes, kills, unended, began, ended, len(logs), facts, problems)


def zero_to_n_to_zero(scene: Scene) -> str:
    """The load's own end makes the fleet smaller."""
    scene.busy()
    seen = len(scene.watch.alive())
    scene.add([scene.job_s] * 4)
    scene.to_zero()
    return f"0 → {seen} → 0 pods"


def lowered_maximum(scene: Scene) -> str:
    """A person lowers maxReplicas below what works, with more waiting."""
    scene.busy()
    scene.add([scene.job_s / 2] * 4)
    scene.here.patch({"scaling": {"maxReplicas": 2}})
    scene.pods(2, 180 + 2 * scene.job_s)
    running = scene.one(IN_FLIGHT)[0]
    scene.to_zero()
    return f"maxReplicas 6 → 2, then {running} in flight on 2 pods"


def by_kubectl_scale(scene: Scene) -> str:
    """`kubectl scale` in mode Manual: 6 → 2 → 0."""
    scene.here.patch({"scaling": {"mode": "Manual"}, "replicas": PODS})
    scene.busy()
    for count in (2, 0):
        kube.kubectl("-n", scene.here.namespace, "scale", "lq/jobs", f"--replicas={count}")
        scene.pods(count, 180 + 2 * scene.job_s)
        if count:
            scene.add([scene.job_s / 2] * 2 * SLOTS)
            until(f"{scene.name}: the two are busy", 90, lambda: scene.one(IN_FLIGHT)[0] >= 1)
    scene.here.patch({"scaling": {"mode": "Auto"}})
    scene.to_zero()
    return "kubectl scale 6 → 2 → 0, both while jobs ran"


def suspended(scene: Scene) -> str:
    """`suspend`: to zero, though items wait."""
    scene.busy()
    scene.add([scene.job_s / 2] * 4)
    scene.here.patch({"suspend": True})
    scene.pods(0, 180 + 2 * scene.job_s)
    total, resolved, *_ = scene.one(TALLY)
    scene.here.patch({"suspend": False})
    scene.to_zero()
    return f"to zero with {total - resolved} items waiting, resumed after that"


def operator_killed(scene: Scene, image: str) -> str:
    """SIGKILL of the operator in mid-shrink; load returns; nobody renews the cordons."""
    scene.busy()
    scene.here.patch({"scaling": {"maxReplicas": 2}})
    until(f"{scene.name}: four pods cordoned", 90, lambda: len(_cordoned(scene)) >= PODS - 2, every_s=0.5)
    operator = kube.get("pods", "-n", lab.SYSTEM, "-l", "app.kubernetes.io/component=operator")[0]
    # Frozen first, so that neither a restart nor a SIGTERM lets it renew or lift anything once more.
    signals.send(operator, "SIGSTOP", image)
    dead_at, victims = time.time(), _cordoned(scene)
    kube.kubectl("-n", lab.SYSTEM, "scale", lab.OPERATOR, "--replicas=0")
    signals.send(operator, "SIGKILL", image)
    scene.here.patch({"scaling": {"maxReplicas": PODS}})
    # More than the two pods that are not cordoned can do before the cordons lapse.
    scene.add([scene.job_s / 2] * round(OUTLASTS_S * 2 * SLOTS / (scene.job_s / 2)))
    until(f"{scene.name}: the cordons lapse", 70, lambda: not _cordoned(scene), every_s=0.5)
    lapse_s = time.time() - dead_at
    until(
        f"{scene.name}: those that were cordoned claim again", 120 + scene.job_s,
        lambda: scene.one(CLAIMED_SINCE, victims, dead_at)[0] > 0,
    )  # fmt: skip
    again = scene.one(CLAIMED_SINCE, victims, dead_at)
    kube.kubectl("-n", lab.SYSTEM, "scale", lab.OPERATOR, "--replicas=1")
    scene.to_zero(suspend=True)
    return f"{len(victims)} cordons lapsed {lapse_s:.0f} s after the operator's end, {again[1]} of those workers claimed {again[0]} items again"


def from_zero(scene: Scene) -> str:
    """The first item of an idle queue that is polled once a minute: the database's word brings the worker."""
    time.sleep(5)
    scene.add([1.0])
    until(f"{scene.name}: a claim before the poll", 40, lambda: scene.one(IN_FLIGHT)[0] or scene.one(TALLY)[1], every_s=0.2)
    first_s = scene.one(FIRST_CLAIM)[0]
    scene.here.patch({"scaling": {"pollPeriodSeconds": 2}})
    scene.to_zero()
    return f"first item to first claim {first_s:.1f} s, polled every {SLOW_POLL_S} s"


def _cordoned(scene: Scene) -> list[str]:
    with scene.here.connect() as conn:
        return [row[0] for row in conn.execute(CORDONED)]


TOGETHER: dict[str, Callable[[Scene], str]] = {
    "zero-n-zero": zero_to_n_to_zero,
    "lowered-max": lowered_maximum,
    "kubectl-scale": by_kubectl_scale,
    "suspend": suspended,
    "from-zero": from_zero,
}


def play(server: PgServer, images: Images, say: Say, job_s: float = 30.0, stagger_s: float = 10.0) -> list[Outcome]:
    """Run all scenes: most together, and the operator's end alone.

    Args:
        server: where the databases are.
        images: references the cluster knows; the operator is installed.
        say: takes the summary lines.
        job_s: seconds of a job.
        stagger_s: seconds between the beginnings of those that run together.
    """

    def one(name: str, acted: Callable[[Scene], str]) -> Outcome:
        if name in TOGETHER:
            time.sleep(stagger_s * list(TOGETHER).index(name))
        try:
            scene = Scene(server, name, job_s, {"pollPeriodSeconds": SLOW_POLL_S} if acted is from_zero else {})
            found = scene.close(acted(scene))
        except FAULTS as ex:
            found = Outcome(name, problems=(f"{type(ex).__name__}: {ex}",))
        say(found.line)
        return found

    with ThreadPoolExecutor(len(TOGETHER)) as pool:
        outcomes = list(pool.map(one, TOGETHER, TOGETHER.values()))
    outcomes.append(one("operator-killed", lambda scene: operator_killed(scene, images.worker)))
    return outcomes
