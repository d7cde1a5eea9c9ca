"""One measurement at a time: a drain, a latency run, an enqueue run, each in a fresh database and with its counts checked."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.peers import adapter
from benchmarks.peers.adapter import Failed, Workers
from benchmarks.peers.spec import Contender, Variant
from benchmarks.peers.stats import percentile
from benchmarks.readings import host_cpu, tree_cpu_s
from benchmarks.server import url
from devtools.pgserver import PgServer

DRAIN_LIMIT_S = 120.0
ENQUEUE_LIMIT_S = 180.0
SETTLE_S = 2.0
SETTLE_EACH_S = 0.1


class Bench:
    """Measures contenders on one server.

    Args:
        server: started.
        cache: where the peers are installed.
    """

    def __init__(self, server: PgServer, cache: Path) -> None:
        self.server, self.cache = server, cache
        self._templates: dict[tuple[Any, ...], str] = {}
        self._made = 0

    def call(self, who: Contender, action: str, options: dict[str, Any], db: str, timeout_s: float = 180.0) -> dict[str, Any]:
        """One action of a contender's adapter on a database."""
        return adapter.call(who.command(self.cache), action, options, url(self.server, db), timeout_s)

    @contextmanager
    def fresh(self, who: Contender, options: dict[str, Any]) -> Iterator[str]:
        """A database that holds the contender's empty schema, cloned from a template; dropped afterwards."""
        key = who.schema_key(options)
        if key not in self._templates:
            name = f"template_{len(self._templates)}"
            self.server.create_database(name)
            self.call(who, "setup", options, name)
            self._templates[key] = name
        self._made += 1
        db = f"run_{self._made}"
        self.server.create_database(db, self._templates[key])
        try:
            yield db
        finally:
            self.server.drop_database(db)

    def connect(self, db: str) -> psycopg.Connection[Any]:
        """An autocommit connection of the harness's own."""
        return psycopg.connect(self.server.dsn(db), autocommit=True)

    def drain(self, who: Contender, variant: Variant, n: int) -> dict[str, Any]:
        """Enqueue `n` jobs, then time how long the workers need for them.

        Raises:
            Failed: not every job was handled exactly once and finished.
        """
        with self.fresh(who, who.options(variant)) as db:
            return self.drain_in(db, who, variant, n)

    def drain_in(self, db: str, who: Contender, variant: Variant, n: int, **options: Any) -> dict[str, Any]:
        """`drain` in a database that is there already, which may hold finished jobs.

        Args:
            db: the database.
            who: the contender.
            variant: its configuration.
            n: jobs.
            options: further ones.
        """
        given = {**who.options(variant), **options}
        self.call(who, "enqueue", {**given, **who.enqueue.get("bulk", {}), "n": n, "how": "bulk"}, db, ENQUEUE_LIMIT_S)
        with self.connect(db) as conn:
            conn.execute("VACUUM ANALYZE")
            conn.execute("CHECKPOINT")
            before = finished(who, conn)
            workers = Workers(who.command(self.cache), given, url(self.server, db), variant.procs)
            try:
                figures = self._timed(who, workers, conn, n)
                answers = workers.stop()
            finally:
                workers.kill()
            check_counts(who, conn, answers, n, before)
        return {
            "contender": who.name, "variant": variant.name, "shape": variant.shape, "n": n, **figures, **thirds(workers.timeline, n),
            **extras(answers),
        }  # fmt: skip

    def _timed(self, who: Contender, workers: Workers, conn: psycopg.Connection[Any], n: int) -> dict[str, Any]:
        pid = self.server.pid
        server0, worker0, host0 = tree_cpu_s(pid), workers.cpu_s(), host_cpu()
        (lsn,) = fetch(conn, "SELECT pg_current_wal_insert_lsn()")
        began = workers.go()
        resident = []
        for share in (0.1, 0.5, 1.0):
            workers.wait_count(int(n * share), DRAIN_LIMIT_S)
            resident.append(max(workers.resident_bytes()) / 1e6)
        self._wait_finished(who, conn, began)
        seconds = time.perf_counter() - began
        server1, worker1, host1 = tree_cpu_s(pid), workers.cpu_s(), host_cpu()
        wal = conn.execute("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", [lsn]).fetchone()
        cores = os.cpu_count() or 1
        return {
            "drain_s": seconds,
            "drain_rate": n / seconds,
            "server_us": (server1 - server0) / n * 1e6,
            "worker_us": (worker1 - worker0) / n * 1e6,
            "cpu_us": (server1 - server0 + worker1 - worker0) / n * 1e6,
            "wal_bytes": float(wal[0]) / n if wal else 0.0,
            "idle_percent": (host1.idle - host0.idle) / seconds / cores * 100,
            "steal_percent": (host1.steal - host0.steal) / seconds / cores * 100,
            "resident_mb": resident[-1],
            "resident_on_the_way": resident,
        }

    def latency(self, who: Contender, variant: Variant, rate: int, seconds: int) -> dict[str, Any]:
        """From just before the enqueue call to the start of the handler, at a steady rate.

        Raises:
            Failed: not every job arrived.
        """
        options = {**who.options(variant), "latency": True}
        with self.fresh(who, options) as db:
            workers = Workers(who.command(self.cache), options, url(self.server, db), variant.procs)
            try:
                workers.go()
                time.sleep(SETTLE_S)
                pid = self.server.pid
                server0, worker0 = tree_cpu_s(pid), workers.cpu_s()
                produced = self.call(who, "produce", {**options, "rate": rate, "seconds": seconds}, db, seconds * 3 + 30)
                workers.wait_count(produced["sent"], 20)
                server1, worker1 = tree_cpu_s(pid), workers.cpu_s()
                answers = workers.stop()
            finally:
                workers.kill()
        waits = sorted(float(ms) for answer in answers for ms in answer["lat_ms"])
        if len(waits) != produced["sent"]:
            raise Failed(f"{len(waits)} of {produced['sent']} jobs arrived")
        return {
            "contender": who.name, "variant": variant.name, "n": len(waits), "p50_ms": percentile(waits, 0.5),
            "p99_ms": percentile(waits, 0.99), "max_ms": waits[-1], "call_p50_ms": produced["call_p50_ms"],
            "late_max_ms": produced["late_max_ms"], "server_percent": (server1 - server0) / seconds * 100,
            "worker_percent": (worker1 - worker0) / seconds * 100,
        }  # fmt: skip

    def rush(self, who: Contender, variant: Variant, n: int) -> dict[str, Any]:
        """Workers that wait at an empty queue, then `n` jobs in bulk: from before the enqueue until the last is finished.

        Raises:
            Failed: not every job was handled exactly once and finished.
        """
        options = {**who.options(variant), "latency": True}
        with self.fresh(who, options) as db, self.connect(db) as conn:
            workers = Workers(who.command(self.cache), options, url(self.server, db), variant.procs)
            try:
                workers.go()
                time.sleep(SETTLE_S + SETTLE_EACH_S * variant.procs)
                server0, worker0 = tree_cpu_s(self.server.pid), workers.cpu_s()
                bulk = {**options, **who.enqueue.get("bulk", {}), "n": n, "how": "bulk"}
                answer = self.call(who, "enqueue", bulk, db, ENQUEUE_LIMIT_S)
                began = time.perf_counter() - answer["seconds"]  # without the start of the process that enqueues
                workers.wait_count(n, DRAIN_LIMIT_S)
                self._wait_finished(who, conn, began)
                seconds = time.perf_counter() - began
                cpu_s = tree_cpu_s(self.server.pid) - server0 + workers.cpu_s() - worker0
                answers = workers.stop()
            finally:
                workers.kill()
            check_counts(who, conn, answers, n)
        return {"contender": who.name, "variant": variant.name, "n": n, "drain_rate": n / seconds, "cpu_us": cpu_s / n * 1e6}

    def _wait_finished(self, who: Contender, conn: psycopg.Connection[Any], began: float) -> None:
        while fetch(conn, f"SELECT EXISTS (SELECT FROM {who.remaining})")[0]:
            if time.perf_counter() - began > DRAIN_LIMIT_S:
                raise Failed(f"{fetch(conn, f'SELECT count(*) FROM {who.remaining}')[0]} jobs were called but not finished")
            time.sleep(0.002)

    def enqueue(self, who: Contender, how: str, n: int) -> dict[str, Any]:
        """Enqueue `n` jobs one by one, one by one with an effect in the caller's transaction, or in bulk.

        Raises:
            Failed: other than `n` jobs are there afterwards.
        """
        options = {**who.opts, **who.enqueue[how], "n": n, "how": how}  # type: ignore[index]
        with self.fresh(who, options) as db, self.connect(db) as conn:
            conn.execute("CREATE TABLE effect (n bigint)")
            conn.execute("CHECKPOINT")
            server0 = tree_cpu_s(self.server.pid)
            answer = self.call(who, "enqueue", options, db)
            server1 = tree_cpu_s(self.server.pid)
            (count,) = fetch(conn, f"SELECT count(*) FROM {who.remaining}")
            (effects,) = fetch(conn, "SELECT count(*) FROM effect")
            if count != n or effects != (n if how == "tx" else 0):
                raise Failed(f"enqueue {how}: {count} jobs and {effects} effects, not {n}")
        return {
            "contender": who.name, "variant": how, "n": n, "rate": n / answer["seconds"], "server_us": (server1 - server0) / n * 1e6,
            "call_p50_ms": answer.get("call_p50_ms"),
        }  # fmt: skip

    def wake_cost(self, who: Contender, how: str, n: int) -> dict[str, Any]:
        """What the notification costs an enqueue call while somebody listens: calls with and without it in turn, `n` of each."""
        with self.fresh(who, who.opts) as db, self.connect(db) as conn:
            conn.execute("CREATE TABLE effect (n bigint)")
            answer = self.call(who, "wakecost", {**who.opts, "how": how, "n": n}, db)
        return {"contender": who.name, "variant": how, "n": n, **answer}


def finished(who: Contender, conn: psycopg.Connection[Any]) -> int:
    """Rows of finished jobs."""
    return int(fetch(conn, f"SELECT count(*) FROM {who.done}")[0]) if who.done else 0


def thirds(timeline: list[tuple[float, int]], n: int) -> dict[str, float]:
    """Jobs a second early (from a tenth to four tenths of all) and late (from seven tenths to the end); nothing of a drain that was over
    before it could be seen."""

    def reached(share: float) -> float | None:
        return next((at for at, count in timeline if count >= n * share), None)

    marks = [reached(share) for share in (0.1, 0.4, 0.7, 1.0)]
    if None in marks or len(timeline) < 10:
        return {}
    a, b, c, d = (mark for mark in marks if mark is not None)
    return {"early_rate": n * 0.3 / (b - a), "late_rate": n * 0.3 / (d - c)} if b > a and d > c else {}


def check_counts(who: Contender, conn: psycopg.Connection[Any], answers: list[dict[str, Any]], n: int, before: int = 0) -> None:
    """Handler calls, their sum (a lost and a doubled job would not cancel out) and the contender's own tables.

    Raises:
        Failed: names what differs.
    """
    facts = {
        "handler calls": (sum(answer["handled"] for answer in answers), n),
        "sum of n": (sum(answer["sum"] for answer in answers), n * (n - 1) // 2),
        "unfinished rows": (fetch(conn, f"SELECT count(*) FROM {who.remaining}")[0], 0),
    }
    if who.done:
        facts["finished rows"] = (finished(who, conn) - before, n)
    for answer in answers:
        for name, (found, wanted) in answer.get("checks", {}).items():
            facts[name] = (facts.get(name, (0, 0))[0] + found, facts.get(name, (0, 0))[1] + wanted)
    wrong = [f"{name}: {found}, not {wanted}" for name, (found, wanted) in facts.items() if found != wanted]
    if wrong:
        raise Failed("; ".join(wrong))


def extras(answers: list[dict[str, Any]]) -> dict[str, float]:
    """Means over the workers of what an adapter measured itself (fields that end in _ms)."""
    names = {name for answer in answers for name in answer if name.endswith("_ms") and name != "lat_ms"}
    return {name: statistics.mean(answer[name] for answer in answers if name in answer) for name in sorted(names)}


def fetch(conn: psycopg.Connection[Any], text: str) -> tuple[Any, ...]:
    """The only row of a statement."""
    row = conn.execute(text.encode()).fetchone()
    if row is None:
        raise Failed(f"no row: {text}")
    return tuple(row)
