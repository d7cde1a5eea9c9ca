"""Turns any error into one line (or one JSON object) and an exit code. Passwords of DSNs never pass."""

from __future__ import annotations

import os
import sys

import click
import psycopg

from leasequeue import jsonio
from leasequeue.dsn import redact
from leasequeue.enqueue import DuplicateKey
from leasequeue.errors import BadInput, LeaseQueueError, NotAQueue
from leasequeue.schema import CannotAdopt

DONE, FOUND, USAGE, DATABASE = 0, 1, 2, 3
INTERRUPTED = 130
EXIT_CODES = {
    DONE: "Done.",
    FOUND: "Found something: a table that is not ready, an item that is not there, a finding of doctor, a lease that is LOST, "
    "a duplicate under `--on-duplicate error`.",
    USAGE: "Usage: an option, a value or an input line is wrong; nothing was done.",
    DATABASE: "The database could not be reached, refused, or did not answer in time.",
    INTERRUPTED: "Interrupted.",
}


def tell(error: BaseException, *, as_json: bool) -> int:
    """Print the error and return its exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else DONE
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return INTERRUPTED
    text, code = redact(one_line(_text(error))), _code(error)
    if as_json:
        click.echo(jsonio.dumps({"error": {"kind": kind(error), "message": text, "exit_code": code}}), err=True)
    else:
        click.echo(f"leasequeue: {text}", err=True)
    return code


def kind(error: BaseException) -> str:
    """Stable name of an error, for programs: our class, or the SQLSTATE's name."""
    if isinstance(error, click.UsageError):
        return "Usage"
    return type(error).__name__


def one_line(text: str) -> str:
    """`text` without line breaks; what follows them is kept, since libpq puts reasons there."""
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _text(error: BaseException) -> str:
    if isinstance(error, click.UsageError):
        command = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        return error.format_message() + command
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, psycopg.Error):
        return f"database: {_database(error)}"
    if isinstance(error, LeaseQueueError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"


def _database(error: psycopg.Error) -> str:
    if error.sqlstate is None:
        return str(error) or type(error).__name__
    hint = f"; {error.diag.message_detail}" if error.diag.message_detail else ""
    row = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))  # of a load: the line at fault
    return f"{row}{error.diag.message_primary} (SQLSTATE {error.sqlstate}){hint}"


def _code(error: BaseException) -> int:
    if isinstance(error, (click.UsageError, BadInput, NotAQueue)):
        return USAGE
    if isinstance(error, (CannotAdopt, DuplicateKey)):
        return FOUND
    if isinstance(error, click.ClickException):
        return error.exit_code
    return DATABASE


def broken_pipe() -> int:
    """The reader of our output left (`| head`): end quietly, and keep the interpreter from flushing into the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
