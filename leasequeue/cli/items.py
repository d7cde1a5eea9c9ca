"""`leasequeue list | show | requeue`: look at items, and give those that were given up a fresh start."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any

import click
import psycopg

from leasequeue import jsonio
from leasequeue.cli import failures
from leasequeue.cli.lease import item_id
from leasequeue.cli.options import Target, target
from leasequeue.cli.output import print_fields, print_grid, print_json, say
from leasequeue.errors import BadInput
from leasequeue.look import ORDER, list_items, show
from leasequeue.requeue import REQUEUED_FROM, Requeued, requeue
from leasequeue.states import State
from leasequeue.table import Table

SHOWN_COLUMNS = ("id", "state", "priority", "lane", "idempotency_key", "attempt", "leased_by", "run_at", "last_error")
PAGE = 1_000


@click.command("list")
@target
@click.option("--state", "states", type=click.Choice([state.value for state in State]), multiple=True, help="Only this state; may be repeated. Without it: all, finished items last.")  # fmt: skip
@click.option("--lane", help="Only items of this lane.")
@click.option("--worker-id", help="Only items that this worker holds or completed.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, metavar="N", help="Most items.")
def list_command(target: Target, states: tuple[str, ...], lane: str | None, worker_id: str | None, limit: int) -> int:
    """List items. --json prints every column."""
    wanted = [State(state) for state in states] or list(ORDER)
    with target.queue() as (conn, table):
        items = list_items(conn, table, states=wanted, lane=lane, worker_id=worker_id, limit=limit)
    if target.as_json:
        print_json([item.as_dict() for item in items])
    else:
        print_grid(SHOWN_COLUMNS, [[item[column] for column in SHOWN_COLUMNS] for item in items])
    return failures.DONE


@click.command("show")
@target
@click.option("--id", "item", help="Primary key of the item.")
@click.option("--key", help="Or its idempotency key.")
def show_command(target: Target, item: str | None, key: str | None) -> int:
    """Show one item, every column, and its audit log. Exit code 1: there is no such item."""
    with target.queue() as (conn, table):
        found = show(conn, table, item_id=None if item is None else item_id(table, item), key=key)
    if found is None:
        raise NoSuchItem(f"no item with {'id ' + item if item is not None else 'key ' + repr(key)} in {table.label}")
    audit = [{"at": e.at, "actor": e.actor, "action": e.action, "reason": e.reason} for e in found.audit]
    if target.as_json:
        print_json({"item": found.item.as_dict(), "audit": audit})
        return failures.DONE
    print_fields(found.item.as_dict())
    for entry in audit:
        say(f"{jsonio.as_text(entry['at'])} {entry['actor']}: {entry['action']} ({entry['reason']})")
    return failures.DONE


class NoSuchItem(click.ClickException):
    """There is no such item."""

    exit_code = failures.FOUND


@click.command("requeue")
@target
@click.option("--id", "items", multiple=True, help="Primary key of an item; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="All items in the given states.")
@click.option("--state", "states", type=click.Choice([state.value for state in REQUEUED_FROM]), multiple=True, help="With --all: only FAILED or only REPAIR.")  # fmt: skip
@click.option("--reason", required=True, help="Why; written to the audit log.")
@click.option("--actor", help="Who; written to the audit log [default user@host]")
def requeue_command(
    target: Target, items: tuple[str, ...], everything: bool, states: tuple[str, ...], reason: str, actor: str | None
) -> int:
    """Put FAILED and REPAIR items back to PENDING, attempts and crashes at 0. Items in other states are left alone.

    Exit code 1: an item named by --id was in another state, or is not there.
    """
    if bool(items) == everything:
        raise BadInput("id", list(items), "give --id (repeatable) or --all")
    wanted = [State(state) for state in states] or list(REQUEUED_FROM)
    with target.queue() as (conn, table):
        ids = [item_id(table, item) for item in items] if items else None
        moved = _requeue(conn, table, ids, wanted, actor or whoami(), reason)
    missed = [] if ids is None else [item for item in ids if item not in {one.id for one in moved}]
    _tell(moved, missed, as_json=target.as_json)
    return failures.FOUND if missed else failures.DONE


def _requeue(
    conn: psycopg.Connection[Any], table: Table, ids: list[Any] | None, states: list[State], actor: str, reason: str
) -> list[Requeued]:
    moved: list[Requeued] = []
    while True:
        page = requeue(conn, table, ids=ids, states=states, actor=actor, reason=reason, limit=PAGE)
        moved += page
        if len(page) < PAGE:
            return moved


def whoami() -> str:
    """Who runs this command: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an arbitrary uid without an entry in passwd
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _tell(moved: list[Requeued], missed: list[Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"requeued": [{"id": one.id, "was": one.was} for one in moved], "missed": missed})
        return
    say(f"{len(moved)} items back to PENDING")
    for item in missed:
        say(f"  {item}: not FAILED or REPAIR, or not there; left alone")
