"""`leasequeue claim`, and the writes about a lease: resolve, renew, retry, fail, repair, release. Their answers are JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import click

from leasequeue import jsonio
from leasequeue import sync as engine
from leasequeue.cli import failures
from leasequeue.cli.options import Target, config_of, settings, target
from leasequeue.cli.output import print_json
from leasequeue.errors import BadInput
from leasequeue.fence import MAX_DELAY_S, Completion
from leasequeue.item import Lease
from leasequeue.states import Outcome
from leasequeue.table import Table

Command = TypeVar("Command", bound=Callable[..., Any])

INTEGER_BITS = {"smallint": 16, "integer": 32, "bigint": 64}


def item_id(table: Table, text: str) -> Any:
    """An item's id as the table's key has it.

    Raises:
        BadInput: not a value of the key's type.
    """
    if table.id_type == "text":
        return text
    if table.id_type == "uuid":
        return _uuid("id", text)
    bound = 1 << (INTEGER_BITS[table.id_type] - 1)
    digits = text[1:] if text.startswith("-") else text
    if not (digits.isascii() and digits.isdecimal()) or not -bound <= int(text) < bound:
        raise BadInput("id", text, f"must be a whole number ({table.id_type}), as the key of {table.label} is")
    return int(text)


def _uuid(field: str, text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadInput(field, text, "must be a uuid") from None


@click.command("claim")
@target
@click.option("--worker-id", required=True, help="Identity of the process; its leases carry it.")
@settings("batch_size", "lock_timeout_ms", "max_inflight")
@click.option("--max-inflight-policy", type=click.Choice(["Alert", "Enforce"]), default="Alert", show_default=True, envvar="LEASEQUEUE_MAX_INFLIGHT_POLICY", help="Enforce: never lease beyond --max-inflight.")  # fmt: skip
@click.option("--lane", "lanes", multiple=True, help="Only items of this lane; may be repeated. Without it: all items.")
@click.option("--strict-lanes", is_flag=True, envvar="LEASEQUEUE_STRICT_LANES", help="Items of a lane strictly in order, one at a time.")  # fmt: skip
@click.option("--on-blocked-head", type=click.Choice(["Block", "Pass"]), default="Block", show_default=True, envvar="LEASEQUEUE_ON_BLOCKED_HEAD", help="With strict lanes: whether a SCHEDULED, FAILED or REPAIR head stops its lane.")  # fmt: skip
def claim_command(target: Target, worker_id: str, lanes: tuple[str, ...], batch_size: int, **config: Any) -> int:
    """Lease due items; prints a JSON array, every column, lease_token among them.

    Amounts are strings and integers beyond 2^53 too, so that no reader rounds them.
    """
    with target.queue() as (conn, table):
        claimed = engine.claim(
            conn,
            table,
            worker_id=worker_id,
            n=batch_size,
            config=config_of(batch_size=batch_size, **config),
            lanes=lanes or None,
        )
    print_json([item.as_dict() for item in claimed.items])
    return failures.DONE


def lease_options(command: Command) -> Command:
    """Add --id, --token and --worker-id."""
    options = (
        click.option("--id", "item", required=True, help="Primary key of the item."),
        click.option("--token", required=True, help="lease_token, as the claim printed it."),
        click.option("--worker-id", required=True, help="Identity that claimed it."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def lease_of(table: Table, item: str, token: str, worker_id: str) -> Lease:
    """The lease that options name.

    Raises:
        BadInput: an id or a token that cannot be one.
    """
    return Lease(item_id(table, item), _uuid("token", token), worker_id)


def answer(outcome: Outcome, *wanted: Outcome) -> int:
    """Print the outcome; exit code 1 when the write did not do what was asked."""
    print_json({"outcome": str(outcome)})
    return failures.DONE if outcome in wanted else failures.FOUND


after_option = click.option("--after", "after_s", type=click.FloatRange(0, MAX_DELAY_S), metavar="SECONDS", help="Due again after so many seconds, up to a year.")  # fmt: skip
reason_option = click.option("--reason", default="", help="Why; stored in last_error.")


@click.command("resolve")
@target
@lease_options
@click.option("--result", metavar="JSON", help="Stored in the column result; numbers keep every digit.")
def resolve_command(target: Target, item: str, token: str, worker_id: str, result: str | None) -> int:
    """Complete an item. Repeating one's own completion says ALREADY_RESOLVED and changes nothing."""
    value = None if result is None else _json(result)
    with target.queue() as (conn, table):
        lease = lease_of(table, item, token, worker_id)
        outcomes = engine.resolve(conn, table, Completion(lease, result=value))
    return answer(outcomes[lease.id], Outcome.RESOLVED, Outcome.ALREADY_RESOLVED)


def _json(text: str) -> Any:
    try:
        return jsonio.loads(text, distinct=True)
    except BadInput as ex:
        raise BadInput("result", text[:80], ex.problem) from None


@click.command("renew")
@target
@lease_options
@settings("lock_timeout_ms")
def renew_command(target: Target, item: str, token: str, worker_id: str, lock_timeout_ms: int) -> int:
    """Extend a lease by its full duration from now. BUSY: the row was locked, try again."""
    with target.queue() as (conn, table):
        lease = lease_of(table, item, token, worker_id)
        outcomes = engine.renew(conn, table, [lease], config=config_of(lock_timeout_ms=lock_timeout_ms))
    return answer(outcomes[lease.id], Outcome.RENEWED)


@click.command("retry")
@target
@lease_options
@after_option
@reason_option
@settings("max_attempts")
def retry_command(
    target: Target, item: str, token: str, worker_id: str, after_s: float | None, reason: str, max_attempts: int
) -> int:
    """Give an item back for another attempt, after a back-off; FAILED once its attempts are used up."""
    with target.queue() as (conn, table):
        lease = lease_of(table, item, token, worker_id)
        config = config_of(max_attempts=max_attempts)
        outcome = engine.retry(conn, table, lease, after_s=after_s, error=reason, config=config)
    return answer(outcome, Outcome.RETRIED, Outcome.FAILED)


@click.command("fail")
@target
@lease_options
@reason_option
def fail_command(target: Target, item: str, token: str, worker_id: str, reason: str) -> int:
    """Give an item up for good (state FAILED)."""
    with target.queue() as (conn, table):
        outcome = engine.fail(conn, table, lease_of(table, item, token, worker_id), error=reason)
    return answer(outcome, Outcome.FAILED)


@click.command("repair")
@target
@lease_options
@reason_option
def repair_command(target: Target, item: str, token: str, worker_id: str, reason: str) -> int:
    """Put an item aside for a person (state REPAIR)."""
    with target.queue() as (conn, table):
        outcome = engine.repair(conn, table, lease_of(table, item, token, worker_id), error=reason)
    return answer(outcome, Outcome.REPAIR)


@click.command("release")
@target
@lease_options
@after_option
def release_command(target: Target, item: str, token: str, worker_id: str, after_s: float | None) -> int:
    """Give an item back untouched: the attempt is not counted."""
    with target.queue() as (conn, table):
        lease = lease_of(table, item, token, worker_id)
        outcomes = engine.release(conn, table, [lease], after_s=after_s or 0.0)
    return answer(outcomes[lease.id], Outcome.RELEASED)


LEASE_COMMANDS = (
    claim_command,
    resolve_command,
    renew_command,
    retry_command,
    fail_command,
    repair_command,
    release_command,
)
