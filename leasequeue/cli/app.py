"""Entry point: the commands, and what becomes of their errors.

Exit codes: 0 done; 1 found something (a table that is not ready, an item that is not there, a lease that is LOST); 2 usage;
3 database. An error is one line on stderr, or with --json one object {"error": {…}} there; never a traceback, never a password.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from leasequeue.cli import failures
from leasequeue.cli.doctor import doctor_command
from leasequeue.cli.enqueue import enqueue_command
from leasequeue.cli.items import list_command, requeue_command, show_command
from leasequeue.cli.lease import LEASE_COMMANDS
from leasequeue.cli.schema import schema_group
from leasequeue.cli.stats import stats_command
from leasequeue.cli.upkeep import reclaim_command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="leasequeue", prog_name="leasequeue")
def cli() -> None:
    """Lease rows of a PostgreSQL table to many workers.

    The database comes from --dsn-file or LEASEQUEUE_DSN_FILE (a file, or a mounted Secret), or from --dsn or LEASEQUEUE_DSN.
    Prefer the file: --dsn and its password show in the process list.

    Exit codes: 0 done, 1 found something or LOST, 2 usage, 3 database.
    """


cli.add_command(schema_group)
cli.add_command(enqueue_command)
for _command in LEASE_COMMANDS:
    cli.add_command(_command)
for _command in (reclaim_command, stats_command, list_command, show_command, requeue_command, doctor_command):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(run(words))


def run(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code.

    Args:
        words: arguments without the program's name.
    """
    try:
        result = cli.main(args=list(words), prog_name="leasequeue", standalone_mode=False)
    except BrokenPipeError:
        return failures.broken_pipe()
    except BaseException as error:  # noqa: BLE001 - the edge: every error becomes one line and a code
        return failures.tell(error, as_json="--json" in words)
    return result if isinstance(result, int) else failures.DONE
