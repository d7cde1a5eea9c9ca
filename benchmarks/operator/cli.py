"""`python -m benchmarks.operator`: many LeaseQueues on one operator, on a real API server and PostgreSQL 15."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import psycopg
from kubernetes.aio.client import ApiClient
from psycopg import sql
from rich.console import Console

from benchmarks.operator import fleet, report
from benchmarks.operator.readings import read
from benchmarks.operator.report import POLLS_AN_HOUR, Figure
from benchmarks.operator.subject import Subject
from benchmarks.server import url
from devtools.pgserver import PgServer
from leasequeue_operator.kube import Kube, login

ROOT = Path(__file__).parents[2]
CRD = ROOT / "deploy" / "crd" / "leasequeues.leasequeue.dev.yaml"
PORT = 18099
LOOK_EVERY_S = 15.0
READY_WITHIN_S = 1800.0
LEAST_POLL_S = 1
console = Console(width=170)


@click.command(context_settings={"max_content_width": 120})
@click.option("--queues", default=1000, show_default=True, help="LeaseQueues, each with a table of its own in one database.")
@click.option(
    "--namespaces", default=1, show_default=True, help="Namespaces they are spread over; each has a Secret of its own."
)
@click.option("--poll", "poll_s", default=5, show_default=True, help="Poll period of the quiet time, seconds.")
@click.option("--quiet", "quiet_s", default=180, show_default=True, help="Seconds in which nothing happens.")
@click.option("--polls", default=POLLS_AN_HOUR, show_default=True, help="Rounds over which memory is watched; 720 is an hour.")
@click.option("--minutes", default=60, show_default=True, help="Limit of the time for those rounds.")
@click.option("--data", type=click.Path(path_type=Path), help="Folder in which the PostgreSQL cluster is kept for another run.")
@click.option("--tables-only", is_flag=True, help="Make the tables in --data and end.")
@click.option("--settle", "settle_s", default=60, show_default=True, help="Seconds without a write before the quiet time.")
@click.option("--reclaimers", is_flag=True, help="Let the CronJobs run; by default they are suspended.")
@click.option(
    "--cluster", default="fleet", show_default=True, help="devcluster of the run's own: a fresh one, gone afterwards."
)
@click.option("--strict", is_flag=True, help="Exit with 1 when a figure is not as promised.")
@click.option("--inside", is_flag=True, hidden=True)
def main(cluster: str, strict: bool, inside: bool, **how: Any) -> None:
    """Start an operator, give it many queues, and print what that costs: time to Ready, a quiet time, memory over an hour of polls."""
    if not inside and not how["tables_only"]:
        sys.exit(_on_the_node(cluster))
    figures = asyncio.run(_Run(**how).run())
    if strict and any(f.holds is False for f in figures):
        raise SystemExit(1)


def _on_the_node(cluster: str) -> int:
    devcluster, named = [sys.executable, "-m", "devcluster"], ["--name", cluster]
    subprocess.run([*devcluster, "down", *named], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    subprocess.run([*devcluster, "up", *named], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        inside = [*devcluster, "exec", *named, "--"]
        subprocess.run([*inside, "kubectl", "apply", "--server-side", "-f", str(CRD)], check=True, cwd=ROOT)
        again = [sys.executable, "-m", "benchmarks.operator", "--inside", *sys.argv[1:]]
        return subprocess.run([*inside, *again], cwd=ROOT).returncode
    finally:
        subprocess.run([*devcluster, "down", *named], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


@dataclass
class _Run:
    queues: int
    namespaces: int
    poll_s: int
    quiet_s: int
    polls: int
    minutes: int
    data: Path | None
    tables_only: bool
    settle_s: int
    reclaimers: bool
    began: float = field(default_factory=time.monotonic)

    def _say(self, line: str) -> None:
        console.print(f"[dim]{time.monotonic() - self.began:6.0f} s[/] {line}", highlight=False)

    async def run(self) -> list[Figure]:
        """All of it; every figure."""
        statements = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.max": "10000"}
        with PgServer(15, settings=statements, directory=self.data) as server, tempfile.TemporaryDirectory() as folder:
            self._open(server)
            fleet.make_tables(server.dsn("fleet"), self.queues, self._say)
            if self.tables_only:
                return []
            kube = Kube(ApiClient(await login()), timeout_s=30)
            await fleet.make_namespaces(kube, self.namespaces, url(server, "fleet"))
            with psycopg.connect(server.dsn("fleet"), autocommit=True) as conn:
                conn.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
                with Subject(PORT, Path(folder) / "operator.log") as subject:
                    figures = await self._measure(kube, subject, conn, server.pid)
            await kube.close()
        return figures

    @staticmethod
    def _open(server: PgServer) -> None:
        """Make the database where there is none; the password of a cluster that was kept is set anew."""
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute(sql.SQL("ALTER ROLE postgres PASSWORD {}").format(server.password))
            if conn.execute("SELECT FROM pg_database WHERE datname = 'fleet'").fetchone() is None:
                conn.execute("CREATE DATABASE fleet")

    async def _measure(self, kube: Kube, subject: Subject, conn: psycopg.Connection[object], postmaster: int) -> list[Figure]:
        empty = subject.rss_mib()
        made = await self._become_ready(kube, subject)
        figures = [Figure("memory without a queue, MiB", f"{empty:.0f}"), *made]
        self._show("Start", figures)
        await self._settle(subject)
        quiet = await self._quiet(subject, conn, postmaster)
        self._show(f"{self.queues} queues, polled every {self.poll_s} s, nothing happens", quiet)
        hour = await self._hour(kube, subject) if self.polls else []
        hour.append(await self._restart(subject))
        faults = subject.faults()
        hour.append(Figure("faults in the operator's log", str(dict(faults)) if faults else "none", "none", not faults))
        self._show(f"Memory over {self.polls} rounds", hour)
        return [*figures, *quiet, *hour]

    def _show(self, title: str, figures: list[Figure]) -> None:
        console.print(report.table(title, figures))

    async def _become_ready(self, kube: Kube, subject: Subject) -> list[Figure]:
        began = time.monotonic()
        bodies = (fleet.lease_queue(n, self.namespaces, self.poll_s, reclaimers=self.reclaimers) for n in range(self.queues))
        await fleet.make_queues(kube, bodies)
        created_s = time.monotonic() - began
        self._say(f"{self.queues} LeaseQueues created in {created_s:.0f} s")
        while (ready := await fleet.ready(kube)) < self.queues:
            if time.monotonic() - began > READY_WITHIN_S:
                raise click.ClickException(f"only {ready} of {self.queues} queues became Ready; {subject.faults()}")
            self._say(f"{ready} Ready, operator at {subject.rss_mib():.0f} MiB")
            await asyncio.sleep(5)
        ready_s = time.monotonic() - began
        return [
            Figure("all LeaseQueues created after, s", f"{created_s:.0f}"),
            Figure("all of them Ready after, s", f"{ready_s:.0f}"),
            Figure("operator: CPU until then, s", f"{subject.cpu_s():.0f}"),
        ]

    async def _restart(self, subject: Subject) -> Figure:
        subject.stop()
        seconds = subject.start()
        while self._sampled(subject) < self.queues:
            await asyncio.sleep(1)
            seconds += 1
        return Figure("restarted: all queues sampled after, s", f"{seconds:.0f}")

    @staticmethod
    def _sampled(subject: Subject) -> int:
        return sum(name == "leasequeue_sample_timestamp_seconds" for name, _ in subject.scrape())

    async def _settle(self, subject: Subject) -> None:
        """Wait for a minute in which the operator wrote nothing: conditions of a young queue still change."""
        still = 0
        before = -1.0
        deadline = time.monotonic() + 600
        while still * LOOK_EVERY_S < self.settle_s and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_EVERY_S)
            writes = sum(
                value
                for (name, labels), value in subject.scrape().items()
                if name == "leasequeue_kube_requests_total" and dict(labels)["method"] != "GET"
            )
            still = still + 1 if writes == before else 0
            before = writes
        self._say(f"settled: {still * LOOK_EVERY_S:.0f} s without a write")

    async def _quiet(self, subject: Subject, conn: psycopg.Connection[object], postmaster: int) -> list[Figure]:
        before = read(subject, conn, postmaster)
        ages = [before.oldest_sample_s]
        while time.monotonic() - before.at < self.quiet_s - LOOK_EVERY_S:
            await asyncio.sleep(LOOK_EVERY_S)
            ages.append(read(subject, conn, postmaster).oldest_sample_s)
        await asyncio.sleep(LOOK_EVERY_S)
        after = read(subject, conn, postmaster)
        return report.quiet(before, after, self.queues, self.poll_s, [*ages, after.oldest_sample_s], 1)

    async def _hour(self, kube: Kube, subject: Subject) -> list[Figure]:
        """As many rounds as an hour has, as fast as they go."""
        await fleet.poll_every(kube, self.queues, self.namespaces, LEAST_POLL_S)
        start = self._reconciled(subject)
        readings = [(0.0, subject.rss_mib())]
        told = 0
        deadline = time.monotonic() + 60 * self.minutes
        while readings[-1][0] < self.polls and time.monotonic() < deadline:
            await asyncio.sleep(LOOK_EVERY_S)
            rounds = (self._reconciled(subject) - start) / self.queues
            readings.append((rounds, subject.rss_mib()))
            if rounds >= told:
                self._say(f"{rounds:.0f} rounds, {readings[-1][1]:.1f} MiB")
                told = int(rounds) + self.polls // 10
        return report.memory(readings, self.polls)

    @staticmethod
    def _reconciled(subject: Subject) -> float:
        return sum(value for (name, _), value in subject.scrape().items() if name == "leasequeue_reconcile_total")
