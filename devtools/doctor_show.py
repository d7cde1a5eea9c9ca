"""Makes each fault that `leasequeue doctor` knows on a real PostgreSQL, one queue a fault, and shows what the doctor says.

    python -m devtools.doctor_show [CODE…]

Exit code 1 where the doctor did not find the fault that was made.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import click
import psycopg

import leasequeue
from devtools.pgserver import PgServer
from leasequeue.config import LeaseConfig
from leasequeue.doctor import Code
from leasequeue.enqueue import enqueue
from leasequeue.schema import ColumnSpec, create
from leasequeue.table import Table

Conn = psycopg.Connection[Any]


@dataclass
class Scene:
    """One fault in the making.

    Args:
        conn: autocommit.
        dsn: of its database.
        name: of its table.
        stack: connections that must stay open while the doctor looks.
        words: further arguments of the command.
    """

    conn: Conn
    dsn: str
    name: str
    stack: ExitStack
    words: list[str] = field(default_factory=list)

    def queue(self, items: int = 0, **columns: Any) -> Table:
        """A queue in good order with some items."""
        create(self.conn, self.name, columns=[ColumnSpec("amount", "numeric(18,2)")], id_type="bigint")
        table = Table.load(self.conn, self.name)
        if items:
            enqueue(self.conn, table, [{"amount": "1.50", **columns} for _ in range(items)])
        return table

    def lease(self, table: Table, n: int, worker: str = "worker-a") -> None:
        """Lease n items."""
        for start in range(0, n, 200):
            leasequeue.claim(self.conn, table, worker_id=worker, n=min(200, n - start), config=LeaseConfig())

    def run(self, statement: str) -> None:
        """SQL with `{t}` for the table."""
        self.conn.execute(statement.replace("{t}", self.name))

    def other(self) -> Conn:
        """Another session, inside a transaction."""
        return self.stack.enter_context(psycopg.connect(self.dsn, application_name="forgotten-client"))


FAULTS: dict[Code, Callable[[Scene], None]] = {}


def fault(code: Code) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register how a code's fault is made."""

    def register(make: Callable[[Scene], None]) -> Callable[[Scene], None]:
        FAULTS[code] = make
        return make

    return register


@fault(Code.DOUBLE_LEASE)
def double_lease(scene: Scene) -> None:
    """A repair script copies a row with its lease."""
    scene.lease(scene.queue(2), 2)
    scene.run("UPDATE {t} SET lease_token = (SELECT lease_token FROM {t} ORDER BY id LIMIT 1)")


@fault(Code.LEASE_LEAK)
def lease_leak(scene: Scene) -> None:
    """A script set leases that never end: the reclaimer cannot take them."""
    scene.lease(scene.queue(3), 3)
    scene.run("UPDATE {t} SET lease_expires_at = 'infinity'")


@fault(Code.STUCK)
def stuck(scene: Scene) -> None:
    """A registered worker died with a lease that has not ended."""
    table = scene.queue(1)
    leasequeue.register(scene.conn, table, "worker-a")
    scene.lease(table, 1)
    scene.run(f"UPDATE leasequeue.worker SET seen_at = now() - interval '5 minutes' WHERE queue = {table.oid}")


@fault(Code.INFLIGHT_EXCEEDED)
def inflight_exceeded(scene: Scene) -> None:
    """More leases than the ceiling allows, under the policy that only tells."""
    scene.lease(scene.queue(120), 120)
    scene.words += ["--max-inflight", "100"]


@fault(Code.STARVATION)
def starvation(scene: Scene) -> None:
    """Items are due since two hours and no worker is there."""
    scene.queue(4)
    scene.run("UPDATE {t} SET created_at = now() - interval '2 hours', run_at = now() - interval '2 hours'")


@fault(Code.POISON)
def poison(scene: Scene) -> None:
    """One item killed two workers; two others break a CHECK that was added NOT VALID."""
    scene.queue(3)
    scene.run("UPDATE {t} SET crash_count = 2, attempt = 2 WHERE id = 1")
    scene.run("UPDATE {t} SET amount = -1 WHERE id > 1")
    scene.run("ALTER TABLE {t} ADD CONSTRAINT amount_positive CHECK (amount > 0) NOT VALID")


@fault(Code.BYPASS)
def bypass(scene: Scene) -> None:
    """A client with SQL of its own claims without a token."""
    scene.queue(2)
    scene.run(
        "UPDATE {t} SET state = 'ASSIGNED', leased_by = 'cron-script', leased_at = now(), lease_expires_at = now() + interval '1 min'"
    )


@fault(Code.LOCK_CONTENTION)
def lock_contention(scene: Scene) -> None:
    """A client forgot to commit an ALTER TABLE."""
    scene.queue(2)
    scene.other().execute(f"LOCK TABLE {scene.name} IN SHARE ROW EXCLUSIVE MODE")
    time.sleep(0.2)
    scene.words += ["--lock-held-s", "0.1"]


@fault(Code.CONNECTIONS)
def connections(scene: Scene) -> None:
    """maxReplicas is larger than the server's connections allow."""
    scene.queue()
    scene.words += ["--max-workers", "500"]


@fault(Code.PINNED_XMIN)
def pinned_xmin(scene: Scene) -> None:
    """A report's transaction is open."""
    scene.queue()
    reader = scene.other()
    reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT 1")
    time.sleep(0.2)
    scene.words += ["--xmin-s", "0.1"]


@fault(Code.BLOAT)
def bloat(scene: Scene) -> None:
    """Somebody switched autovacuum off."""
    scene.queue()
    scene.run("ALTER TABLE {t} SET (autovacuum_enabled = false)")


@fault(Code.PRECISION_FAULT)
def precision_fault(scene: Scene) -> None:
    """A fee in binary floating point, and an amount that is no number."""
    scene.queue(1)
    scene.run("ALTER TABLE {t} ADD COLUMN fee double precision, ADD COLUMN total numeric")
    scene.run("UPDATE {t} SET total = 'NaN'")


@fault(Code.MISSING_INDEX)
def missing_index(scene: Scene) -> None:
    """The claim index was dropped."""
    scene.queue()
    scene.run("DROP INDEX {t}_lq_claim")


@fault(Code.INVALID_INDEX)
def invalid_index(scene: Scene) -> None:
    """CREATE UNIQUE INDEX CONCURRENTLY met a duplicate."""
    scene.queue(2)
    try:
        scene.run("CREATE UNIQUE INDEX CONCURRENTLY {t}_amount ON {t} (amount)")
    except psycopg.errors.UniqueViolation:
        return
    raise RuntimeError("the index was built")


@fault(Code.UNUSED_INDEX)
def unused_index(scene: Scene) -> None:
    """An index on the expiry makes every renewal write it."""
    scene.queue()
    scene.run("CREATE INDEX {t}_expiry ON {t} (lease_expires_at)")


@fault(Code.CHECK_NOT_VALID)
def check_not_valid(scene: Scene) -> None:
    """Our CHECK on states was dropped."""
    scene.queue()
    scene.run("ALTER TABLE {t} DROP CONSTRAINT {t}_lq_state")


@fault(Code.CLOCK_TYPE)
def clock_type(scene: Scene) -> None:
    """A lease time without a zone."""
    scene.queue()
    scene.run("ALTER TABLE {t} ALTER COLUMN resolved_at TYPE timestamp")


@fault(Code.NOT_ADOPTED)
def not_adopted(scene: Scene) -> None:
    """A table that was never adopted."""
    scene.run("CREATE TABLE {t} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state text, leased_by text)")


@fault(Code.COULD_NOT_LOOK)
def could_not_look(scene: Scene) -> None:
    """The whole table is locked: even its definition cannot be read."""
    scene.queue(1)
    scene.other().execute(f"LOCK TABLE {scene.name} IN ACCESS EXCLUSIVE MODE")


def show(server: PgServer, code: Code, number: int) -> bool:
    """Make one fault in a database of its own, run the doctor, print both; True when it was found."""
    dsn = server.create_database(f"fault_{number}")
    with ExitStack() as stack:
        conn = stack.enter_context(leasequeue.connect(dsn))
        scene = Scene(conn, dsn, f"jobs_{number}", stack)
        make = FAULTS[code]
        make(scene)
        words = ["doctor", "--table", scene.name, "--watch-s", "0", *scene.words]
        ran = subprocess.run(
            [sys.executable, "-m", "leasequeue", *words, "--dsn", dsn], capture_output=True, text=True, timeout=60, check=False
        )
    found = ran.returncode == 1 and any(line.startswith(f"{code} ") for line in ran.stdout.splitlines())
    click.echo(f"\n=== {code}: {(make.__doc__ or '').strip()}\n$ leasequeue {' '.join(words)}")
    click.echo((ran.stdout + ran.stderr).rstrip())
    click.echo(f"exit code {ran.returncode}{'' if found else '   NOT FOUND'}")
    return found


@click.command(help="Makes each fault the doctor knows, and shows what it says. CODES: those to make; none makes all.")
@click.argument("codes", nargs=-1, type=click.Choice([code.value for code in Code]))
def main(codes: tuple[str, ...]) -> None:
    """Command line of the module."""
    chosen = [code for code in Code if not codes or code in codes]
    with PgServer(18) as server:
        found = [show(server, code, number) for number, code in enumerate(chosen, 1)]
    click.echo(f"\n{sum(found)} of {len(found)} faults found")
    sys.exit(0 if all(found) else 1)


if __name__ == "__main__":
    main()
