"""`python -m examples.content_pipeline`: the whole pipeline by hand, without Kubernetes."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
import psycopg
from rich.console import Console

from devtools.pgbinaries import NoServerError
from devtools.pgserver import PgServer
from examples.content_pipeline.check import render
from examples.content_pipeline.fleet import FleetError
from examples.content_pipeline.run import Options, RunError, run
from examples.content_pipeline.tree import TreeError, fetch
from leasequeue.config import SETTINGS, BlockedHead
from leasequeue.dsn import redact
from leasequeue.errors import LeaseQueueError

LEASE = SETTINGS["lock_timeout_ms"]


@click.command(help="Run SQLite's documentation through generate, validate, publish; exit code 1 if anything is off.")
@click.option("--dsn", envvar="LEASEQUEUE_DSN", help="Database without a table content_jobs; by default a PostgreSQL of its own is started.")  # fmt: skip
@click.option("--tree", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Directory of HTML pages; by default Debian's sqlite3-doc, fetched by apt.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Keep published files and logs here; by default they are removed.")  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Worker processes.")
@click.option("--concurrency", type=click.IntRange(1, 64), default=4, show_default=True, help="Jobs that each runs at a time.")
@click.option("--lease-ms", type=click.IntRange(LEASE.low, LEASE.high), default=4_000, show_default=True, help="Lease duration, milliseconds.")  # fmt: skip
@click.option("--long-job-s", type=click.FloatRange(0), default=20.0, show_default=True, help="Seconds that the longest job takes at least; beyond the lease and the reclaimer's 10 s it lives by renewal.")  # fmt: skip
@click.option(
    "--window-s", type=click.FloatRange(0), default=8.0, show_default=True, help="Seconds until publishing may begin."
)
@click.option("--on-blocked-head", "policy", type=click.Choice(["Block", "Pass"]), default="Block", show_default=True, help="What the malformed page's lane does: Block until it is mended, or Pass it.")  # fmt: skip
@click.option("--deadline-s", type=click.FloatRange(1), default=900.0, show_default=True, help="Give up after so many seconds.")
def main(
    dsn: str | None, tree: Path | None, out: Path | None, workers: int, concurrency: int, lease_ms: int, long_job_s: float,
    window_s: float, policy: BlockedHead, deadline_s: float,
) -> None:  # fmt: skip
    """Command line of this module."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        with ExitStack() as stack:
            work = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="content-pipeline-")))
            work.mkdir(parents=True, exist_ok=True)
            root = tree or fetch()
            where = dsn or stack.enter_context(PgServer(18)).dsn()
            options = Options(
                where, root.resolve(), work.resolve(), workers, concurrency, lease_ms, long_job_s, window_s, policy, deadline_s
            )
            report, findings = run(options, console.print)
    except (TreeError, NoServerError, FleetError, RunError) as error:
        raise click.ClickException(redact(str(error))) from error
    except (psycopg.Error, LeaseQueueError) as error:
        click.echo(f"database: {redact(str(error))}", err=True)
        sys.exit(3)
    console.print(render(report))
    for finding in findings:
        console.print(f"doctor: {finding.code} {finding.summary}", markup=False)
    for problem in report.problems:
        console.print(f"off: {problem}", style="red", markup=False)
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
