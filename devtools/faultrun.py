"""Thousands of items under every fault we can make, then the count: lost 0, doubled 0.

    python -m devtools.faultrun [--items 20000] [--workers 4] [--seed 1] [--limit 600]

Real PostgreSQL with fsync, real worker processes, a real reclaimer. Half of the items post their amount to a ledger without any key
in `ctx.transaction()`: exactly one posting each is demanded. The other half post on a connection of their own, as code that calls
an outside service does: for them the number of repeated executions is shown, which is what `idempotency_key` is for.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import click
import psycopg
from rich.console import Console
from rich.table import Table as RichTable

import leasequeue
from devtools.pgserver import PgServer
from devtools.tcpproxy import TcpProxy
from leasequeue import schema
from leasequeue.bulk import enqueue_many

ROOT = Path(__file__).resolve().parent.parent
TABLE = "fault_item"
LEASE_MS = 5_000
PASSWORD = "fault-run"  # noqa: S105  (a throwaway server on loopback)
LEDGER = "CREATE TABLE posting (item uuid, amount numeric(18, 2), kind text, worker text, attempt int)"


@dataclass
class Fleet:
    """The worker processes; whoever dies is replaced, as a Deployment would."""

    size: int
    environment: dict[str, str]
    log: IO[bytes]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: int = 0

    def top_up(self) -> None:
        """Replace what has ended."""
        self.processes = [p for p in self.processes if p.poll() is None]
        while len(self.processes) < self.size:
            self.processes.append(self._spawn())

    def _spawn(self) -> subprocess.Popen[bytes]:
        self.started += 1
        command = [sys.executable, "-m", "leasequeue_worker.main"]
        return subprocess.Popen(
            command, env=self.environment, cwd=ROOT, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def kill_one(self, rng: random.Random) -> None:
        """SIGKILL one worker in the middle of whatever it does."""
        alive = [p for p in self.processes if p.poll() is None]
        if alive:
            rng.choice(alive).kill()

    def stop(self) -> None:
        """SIGTERM all, SIGKILL what does not end."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


@dataclass
class Faults:
    """What can go wrong, each a method; `counts` says how often each did."""

    server: PgServer
    proxy: TcpProxy
    fleet: Fleet
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    def menu(self) -> dict[str, Callable[[], None]]:
        """Faults by name."""
        return {
            "worker killed (SIGKILL)": lambda: self.fleet.kill_one(self.rng),
            "backend terminated": self._terminate,
            "reply to COMMIT lost": lambda: self.proxy.lose_commits(self.rng.randint(1, 4)),
            "all connections cut": lambda: (self.proxy.cut(), None)[1],
            "connections half-open for 4 s": self._freeze,
            "server full for 3 s": self._fill_up,
            "old snapshot held": self._pin,
        }

    def make(self, name: str) -> None:
        """Make one fault; a server that is down just now refuses some of them, which is no failure of the run."""
        try:
            self.menu()[name]()
            self.counts[name] += 1
        except psycopg.OperationalError:
            self.counts[f"{name} (not possible at that moment)"] += 1

    def crash_server(self) -> None:
        """kill -9 of every PostgreSQL process, then a restart with crash recovery."""
        self.server.kill9()
        time.sleep(self.rng.uniform(0.5, 2))
        self.server.start()
        self.counts["PostgreSQL killed (SIGKILL) and restarted"] += 1

    def lock_table(self, seconds: float) -> None:
        """ACCESS EXCLUSIVE on the queue, in the background."""

        def hold() -> None:
            try:
                with self._admin() as conn, conn.transaction():
                    conn.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
                    time.sleep(seconds)
                    self.counts[f"table locked for {seconds:g} s"] += 1
            except psycopg.Error:
                self.counts["table lock cut short by a crash"] += 1

        threading.Thread(target=hold, daemon=True).start()

    def _admin(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.server.dsn("faults"), autocommit=True, connect_timeout=3)

    def _terminate(self) -> None:
        with self._admin() as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE usename = 'faulty'"
                " ORDER BY random() LIMIT %s) AS chosen", [self.rng.randint(1, 4)],
            )  # fmt: skip

    def _freeze(self) -> None:
        self.proxy.freeze()
        threading.Timer(4.0, self.proxy.thaw).start()

    def _fill_up(self) -> None:
        """Take every connection that the server has left to give."""
        dsn = self.server.dsn("faults", "faulty", PASSWORD, tcp=True)
        taken: list[psycopg.Connection[Any]] = []
        try:
            while len(taken) < 200:
                taken.append(psycopg.connect(dsn, connect_timeout=3))
        except psycopg.OperationalError:
            pass

        def free() -> None:
            for conn in taken:
                conn.close()

        threading.Timer(3.0, free).start()

    def _pin(self) -> None:
        def hold() -> None:
            try:
                with self._admin() as conn, conn.transaction():
                    conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    conn.execute("SELECT count(*) FROM posting")
                    time.sleep(15)
            except psycopg.Error:
                pass

        threading.Thread(target=hold, daemon=True).start()


@dataclass(frozen=True)
class Verdict:
    """What the tables say at the end."""

    items: int
    resolved: int
    fenced_postings: int
    fenced_missing: int
    fenced_doubled: int
    plain_missing: int
    plain_repeated: int
    total: Decimal
    fenced_total_exact: bool
    executions: int

    @property
    def good(self) -> bool:
        """Nothing lost; nothing doubled where the fence was used; totals exact."""
        nothing_lost = self.resolved == self.items and self.fenced_missing == 0 and self.plain_missing == 0
        return nothing_lost and self.fenced_doubled == 0 and self.fenced_total_exact


def judge(conn: psycopg.Connection[Any]) -> Verdict:
    """Count lost and doubled from the tables alone."""
    items, resolved, total, executions, expected = conn.execute(
        f"SELECT count(*), count(*) FILTER (WHERE state = 'RESOLVED'), sum(amount), sum(attempt),"
        f" sum(amount) FILTER (WHERE kind = 'fenced') FROM {TABLE}"
    ).fetchone()  # type: ignore[misc]  # an aggregate always has a row
    per_item = conn.execute(
        f"SELECT i.kind, count(p.item) FROM {TABLE} AS i LEFT JOIN posting AS p ON p.item = i.id GROUP BY i.id, i.kind"
    ).fetchall()
    fenced = [n for kind, n in per_item if kind == "fenced"]
    plain = [n for kind, n in per_item if kind == "plain"]
    posted = conn.execute("SELECT sum(amount) FROM posting WHERE kind = 'fenced'").fetchone()
    return Verdict(
        items, resolved, sum(fenced), fenced.count(0), sum(n > 1 for n in fenced), plain.count(0), sum(n - 1 for n in plain if n > 1),
        total, posted is not None and posted[0] == expected, executions,
    )  # fmt: skip


def prepare(server: PgServer, items: int, seed: int) -> None:
    """Database, role, queue, ledger and items."""
    server.create_database("faults")
    with leasequeue.connect(server.dsn("faults")) as conn:
        conn.execute(f"CREATE ROLE faulty LOGIN PASSWORD '{PASSWORD}'", prepare=False)
        columns = [schema.ColumnSpec("amount", "numeric(18,2)"), schema.ColumnSpec("kind", "text")]
        schema.create(conn, TABLE, columns=columns)
        conn.execute(LEDGER, prepare=False)
        conn.execute("GRANT USAGE ON SCHEMA leasequeue, public TO faulty", prepare=False)
        conn.execute("GRANT ALL ON ALL TABLES IN SCHEMA leasequeue, public TO faulty", prepare=False)
        conn.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA leasequeue TO faulty", prepare=False)
        rng = random.Random(seed)
        table = leasequeue.Table.load(conn, TABLE)
        rows = (
            {
                "idempotency_key": f"item-{n}", "amount": Decimal(rng.randint(1, 10**9)) / 100,
                "kind": "fenced" if n % 2 else "plain",
            }
            for n in range(items)
        )  # fmt: skip
        enqueue_many(conn, table, rows)


def environment(server: PgServer, proxy: TcpProxy) -> dict[str, str]:
    """Environment of the workers: everything goes through the proxy."""
    direct = server.dsn("faults", "faulty", PASSWORD, tcp=True)
    through = psycopg.conninfo.make_conninfo(direct, host="127.0.0.1", port=proxy.port)
    path = os.pathsep.join(str(ROOT / p) for p in (".", "worker", "reclaimer"))
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("LEASEQUEUE_", "PG"))},
        "PYTHONPATH": path, "FAULTRUN_DSN": through, "LEASEQUEUE_DSN": through, "LEASEQUEUE_TABLE": TABLE,
        "LEASEQUEUE_HANDLER": "devtools.faultrun_handler:handle", "LEASEQUEUE_CONCURRENCY": "4",
        "LEASEQUEUE_LOCK_TIMEOUT_MS": str(LEASE_MS), "LEASEQUEUE_RECLAIM_AFTER_S": "10", "LEASEQUEUE_MAX_ATTEMPTS": "1000",
        "LEASEQUEUE_MAX_CRASHES": "1000", "LEASEQUEUE_HTTP_PORT": "0", "LEASEQUEUE_GRACE_S": "10",
        "LEASEQUEUE_POLL_INTERVAL_MS": "200",
    }  # fmt: skip


class Reclaimers:
    """One reclaimer after the other, beside the proxy, as the CronJob would start them."""

    def __init__(self, server: PgServer, env: dict[str, str], log: IO[bytes]) -> None:
        direct = server.dsn("faults", "faulty", PASSWORD, tcp=True)
        self._env = {**env, "LEASEQUEUE_DSN": direct, "LEASEQUEUE_SWEEP_INTERVAL_S": "2", "LEASEQUEUE_RUN_FOR_S": "10"}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.runs = 0

    def keep(self) -> None:
        """Start the next run when the last one ended."""
        if self._process is None or self._process.poll() is not None:
            self.runs += 1
            command = [sys.executable, "-m", "leasequeue_reclaimer.main"]
            self._process = subprocess.Popen(command, env=self._env, cwd=ROOT, stdout=self._log, stderr=self._log)

    def stop(self) -> None:
        """End the run under way."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(20)


def left(server: PgServer) -> int | None:
    """Items not yet RESOLVED; None while the server does not answer."""
    try:
        with psycopg.connect(server.dsn("faults"), connect_timeout=3) as conn:
            conn.execute("SET statement_timeout = '2s'")
            row = conn.execute(f"SELECT count(*) FROM {TABLE} WHERE state <> 'RESOLVED'").fetchone()
            return int(row[0]) if row else None
    except psycopg.Error:
        return None


def storm(faults: Faults, reclaimers: Reclaimers, items: int, limit_s: float, say: Callable[[str], None]) -> bool:
    """Make faults until nine tenths of the items are done, then let the fleet recover; True when all are RESOLVED in time."""
    begun = time.monotonic()
    crashes, locked, next_fault, told = 0, False, begun + 2, begun
    remaining: int | None = items
    while time.monotonic() - begun < limit_s:
        faults.fleet.top_up()
        reclaimers.keep()
        now = left(faults.server)
        remaining = now if now is not None else remaining
        if remaining == 0:
            return True
        done = 1 - (remaining or 0) / items
        elapsed = time.monotonic() - begun
        if time.monotonic() - told > 10:
            told = time.monotonic()
            say(f"{elapsed:5.0f} s  {remaining} items left, {sum(faults.counts.values())} faults made")
        if done < 0.9 and time.monotonic() > next_fault:
            next_fault = time.monotonic() + faults.rng.uniform(0.5, 2.5)
            if crashes < 3 and done > 0.2 * (crashes + 1):
                crashes += 1
                faults.crash_server()
            elif not locked and done > 0.5:
                locked = True
                faults.lock_table(30)
            else:
                faults.make(faults.rng.choice(list(faults.menu())))
        time.sleep(0.3)
    return False


def report(verdict: Verdict, faults: Faults, reclaimers: Reclaimers, seconds: float) -> RichTable:
    """The closing table."""
    table = RichTable(title=f"fault run: {'good' if verdict.good else 'NOT GOOD'}", show_header=False)
    for name, count in sorted(faults.counts.items()):
        table.add_row(f"fault: {name}", str(count))
    table.add_row("fault: replies to COMMIT really lost", str(faults.proxy.lost), end_section=True)
    rows: dict[str, Any] = {
        "items": verdict.items,
        "resolved": verdict.resolved,
        "lost (not resolved, or without a posting)": verdict.items
        - verdict.resolved
        + verdict.fenced_missing
        + verdict.plain_missing,
        "doubled, effects in ctx.transaction()": verdict.fenced_doubled,
        "ledger total of these exact": "yes" if verdict.fenced_total_exact else "NO",
        "repeated executions, effects outside the fence": verdict.plain_repeated,
        "executions started": verdict.executions,
        "worker processes started": faults.fleet.started,
        "reclaimer runs": reclaimers.runs,
        "seconds": round(seconds),
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


@click.command()
@click.option("--items", default=20_000, show_default=True, type=click.IntRange(100, 1_000_000), help="Items to run.")
@click.option("--workers", default=4, show_default=True, type=click.IntRange(1, 32), help="Worker processes, four slots each.")
@click.option("--seed", default=1, show_default=True, help="Seed of amounts and faults.")
@click.option("--limit", default=600.0, show_default=True, help="Seconds after which the run counts as failed.")
def main(items: int, workers: int, seed: int, limit: float) -> None:
    """Run the storm and exit 1 when anything was lost or doubled."""
    console = Console(width=100)
    begun = time.monotonic()
    logs = Path(tempfile.mkdtemp(prefix="faultrun-"))
    with PgServer(18, durable=True, settings={"max_connections": "60"}) as server, (logs / "output.log").open("wb") as log:
        prepare(server, items, seed)
        console.print(f"{items} items, {workers} workers, seed {seed}; output of the processes: {log.name}")
        with TcpProxy("127.0.0.1", server.port) as proxy:
            env = environment(server, proxy)
            fleet, reclaimers = Fleet(workers, env, log), Reclaimers(server, env, log)
            faults = Faults(server, proxy, fleet, random.Random(seed))
            try:
                finished = storm(faults, reclaimers, items, limit, lambda line: console.print(line, highlight=False))
            finally:
                fleet.stop()
                reclaimers.stop()
            with psycopg.connect(server.dsn("faults")) as conn:
                verdict = judge(conn)
        console.print(report(verdict, faults, reclaimers, time.monotonic() - begun))
    sys.exit(0 if verdict.good and finished else 1)


if __name__ == "__main__":
    main()
