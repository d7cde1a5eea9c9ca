"""`leasequeue stats`: how a queue stands, once or again and again."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import click
import psycopg
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from leasequeue import sync as engine
from leasequeue.cli import failures
from leasequeue.cli.options import Target, target
from leasequeue.cli.output import console, grid, print_json
from leasequeue.sample import Stats
from leasequeue.table import Table


@click.command("stats")
@target
@click.option("--watch", is_flag=True, help="Show again and again until interrupted; with --json a line each time.")
@click.option("--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, metavar="SECONDS", help="Pause between two looks with --watch.")  # fmt: skip
def stats_command(target: Target, watch: bool, interval: float) -> int:
    """Count items by state, and show what waits, what is due and what is overdue."""
    with target.queue() as (conn, table):
        if not watch:
            _show(engine.stats(conn, table), table, as_json=target.as_json)
        elif target.as_json:
            _watch_json(conn, table, interval)
        else:
            _watch(conn, table, interval)
    return failures.DONE


def _show(stats: Stats, table: Table, *, as_json: bool) -> None:
    if as_json:
        print_json(as_dict(stats, table))
    else:
        console().print(_picture(stats, table))


def _watch_json(conn: psycopg.Connection[Any], table: Table, interval: float) -> None:
    while True:
        print_json(as_dict(engine.stats(conn, table), table))
        time.sleep(interval)


def _watch(conn: psycopg.Connection[Any], table: Table, interval: float) -> None:
    with Live(_picture(engine.stats(conn, table), table), console=console(), auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(_picture(engine.stats(conn, table), table), refresh=True)


def as_dict(stats: Stats, table: Table) -> dict[str, Any]:
    """Stats for JSON."""
    return {
        "table": table.label,
        "now": stats.now,
        "items": {state.value: count for state, count in stats.counts.items()},
        "resolved_exact": stats.resolved_exact,
        "due": stats.due,
        "scheduled_due": stats.scheduled_due,
        "expired": stats.expired,
        "oldest_pending_at": stats.oldest_pending_at,
        "oldest_pending_age_s": _age_s(stats.now, stats.oldest_pending_at),
        "oldest_expired_at": stats.oldest_expired_at,
        "next_due_at": stats.next_due_at,
        "workers": stats.workers,
        "workers_busy": stats.workers_busy,
        "workers_cordoned": stats.workers_cordoned,
        "claimed_total": stats.claimed_total,
        "finished_total": stats.finished_total,
        "lost_total": stats.lost_total,
        "reclaimed_total": stats.reclaimed_total,
        "repaired_total": stats.repaired_total,
        "swept_at": stats.swept_at,
    }


def _age_s(now: datetime, then: datetime | None) -> float | None:
    return None if then is None else round((now - then).total_seconds(), 3)


def _picture(stats: Stats, table: Table) -> RenderableType:
    counts: list[list[Any]] = [[state.value, count] for state, count in stats.counts.items()]
    if not stats.resolved_exact:
        counts = [[name, f"about {count}" if name == "RESOLVED" else count] for name, count in counts]
    facts: list[list[Any]] = [
        ["oldest due item", _ago(stats.now, stats.oldest_pending_at)],
        ["leases past their end", stats.expired],
        ["scheduled items due now", stats.scheduled_due],
        ["next scheduled item due", _ago(stats.now, stats.next_due_at)],
        ["last sweep of the reclaimer", _ago(stats.now, stats.swept_at)],
        ["workers seen / busy / cordoned", f"{stats.workers} / {stats.workers_busy} / {stats.workers_cordoned}"],
    ]
    title = Text(f"{table.label} at {stats.now.isoformat(timespec='seconds')}", style="bold")
    return Group(title, grid(["state", "items"], counts), grid(["fact", "value"], facts))


def _ago(now: datetime, then: datetime | None) -> str | None:
    if then is None:
        return None
    distance = timedelta(seconds=round((now - then).total_seconds()))
    return f"{distance} ago" if distance >= timedelta(0) else f"in {-distance}"
