"""One load on the cluster, in real time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

import leasequeue
from benchmarks.autoscaling.live import lab
from benchmarks.autoscaling.live.figures import Figures, Item, figures
from benchmarks.autoscaling.live.lab import Lab
from benchmarks.autoscaling.live.pods import PodWatch
from benchmarks.autoscaling.loads import Load
from benchmarks.autoscaling.traces import arrivals
from demo.errors import DemoError
from devtools.pgserver import PgServer
from leasequeue.errors import LeaseQueueError
from leasequeue.table import Table

GRACE_S = 5
TO_ZERO_S = 240.0
ITEMS = """
    SELECT extract(epoch FROM created_at)::float8, extract(epoch FROM leased_at)::float8, extract(epoch FROM resolved_at)::float8,
           leased_by, attempt, crash_count
      FROM jobs WHERE state = 'RESOLVED'
"""
OPEN = "SELECT count(*) FROM jobs WHERE state <> 'RESOLVED'"

FAULTS = (DemoError, LeaseQueueError, psycopg.Error, AssertionError, OSError)

Say = Callable[[str], None]


def seconds_of(load: Load, count: int, seed: int) -> list[float]:
    """How long each job sleeps: half to one and a half of the mean, the same for one seed."""
    rng = random.Random(f"{load.name}/{seed}/seconds")
    return [load.trace.service_s * rng.uniform(0.5, 1.5) for _ in range(count)]


def produce(
    conn: psycopg.Connection[Any], table: Table, times: Sequence[float], seconds: Sequence[float], start: float
) -> None:
    """Enqueue each item at its time, through the library as an application would."""
    done = 0
    while done < len(times):
        due = done
        elapsed = time.time() - start
        while due < len(times) and times[due] <= elapsed:
            due += 1
        if due > done:
            leasequeue.enqueue(conn, table, [{"seconds": s} for s in seconds[done:due]])
            done = due
            continue
        time.sleep(max(0.005, min(0.5, times[done] - elapsed)))


def play(server: PgServer, load: Load, seed: int, say: Say, settings: dict[str, Any] | None = None) -> Figures:
    """Run a load to its end and to zero pods, and compute the figures.

    Args:
        server: where the queue's database is made.
        load: what to run.
        seed: of arrivals and job lengths.
        say: takes lines of progress.
        settings: more of `spec.scaling` than maxReplicas and the drain target that the expert's SQL has too.
    """
    here = Lab(server, f"live-{load.name}")
    trace = load.trace
    lease = {"maxInflight": trace.ceiling, "maxInflightPolicy": "Enforce"} if trace.ceiling <= 1000 else {}
    scaling = {
        "minReplicas": 0,
        "maxReplicas": trace.max_replicas,
        "drainTargetSeconds": int(trace.drain_s),
        **(settings or {}),
    }
    table = here.make({"concurrency": trace.slots, "terminationGracePeriodSeconds": GRACE_S}, scaling, lease)
    watch = PodWatch(here.namespace)
    watch.start()
    try:
        _warm(here, watch, table, load)
        time.sleep(12)  # two polls at rest
        start = time.time()
        times = arrivals(trace, seed)
        _play(here, watch, load, say, (table, times, seconds_of(load, len(times), seed), start))
        found = figures(_items(here), list(watch.lives.values()), start, trace.length_s, max(here.busy_kills(), here.cut_off()))
        if watch.failed:
            raise AssertionError("the watch of the pods ended by itself: no figures")
    finally:
        watch.stop()
    here.remove()
    return found


def _warm(here: Lab, watch: PodWatch, table: Table, load: Load) -> None:
    """Let the queue learn how long its jobs take, as the expert's SQL was told, and rest again.

    Jobs longer than the drain target get a slot each, known or not: they need no such lesson.
    """
    if load.trace.service_s >= load.trace.drain_s:
        return
    with here.connect() as conn:
        leasequeue.enqueue(conn, table, [{"seconds": load.trace.service_s}] * load.trace.slots)
        lab.until(f"{load.name}: warm", 120, lambda: _count(conn) == 0)
    lab.until(f"{load.name}: at rest again", 180, lambda: not watch.alive() and here.replicas() == 0)
    with here.connect() as conn:
        conn.execute("DELETE FROM jobs; DELETE FROM execution")
    watch.lives.clear()


def _play(here: Lab, watch: PodWatch, load: Load, say: Say, what: tuple[Table, list[float], list[float], float]) -> None:
    table, times, seconds, start = what
    fault: list[Exception] = []

    def producing() -> None:
        try:
            with here.connect() as conn:
                produce(conn, table, times, seconds, start)
        except FAULTS as ex:
            fault.append(ex)

    producer = threading.Thread(target=producing, daemon=True)
    producer.start()
    with here.connect() as conn:
        told = 0.0
        while time.time() < start + load.trace.length_s or producer.is_alive() or _count(conn) > 0:
            if fault:
                raise fault[0]
            elapsed = time.time() - start
            if elapsed > load.trace.length_s + TO_ZERO_S + 2 * load.trace.service_s:
                raise AssertionError(f"{load.name}: {_count(conn)} items are not resolved after {elapsed:.0f} s")
            if elapsed - told >= 60:
                told = elapsed
                say(f"{load.name}: {elapsed:.0f} s, {len(watch.alive())} pods, {_count(conn)} items open")
            time.sleep(1)
    lab.until(f"{load.name}: no pod left", TO_ZERO_S, lambda: not watch.alive())


def _count(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute(OPEN).fetchone()
    return int(row[0]) if row else 0


def _items(here: Lab) -> list[Item]:
    with here.connect() as conn:
        return [Item(*row) for row in conn.execute(ITEMS)]
