"""`leasequeue reclaim`: one sweep by hand, pages until there is nothing left."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from leasequeue import sync as engine
from leasequeue.cli import failures
from leasequeue.cli.options import Target, config_of, settings, target
from leasequeue.cli.output import print_grid, print_json, say
from leasequeue.maintain import ReclaimedItem


@click.command("reclaim")
@target
@settings("reclaim_after_s", "reclaim_batch", "lock_timeout_ms", "max_crashes")
def reclaim_command(target: Target, **config: int) -> int:
    """Take back leases that ended long enough ago: to PENDING, or to REPAIR after too many crashes.

    Nothing is taken within one lease duration and 15 s of the server's start, so that workers get to renew first.
    """
    settings_now = config_of(**config)
    items: list[ReclaimedItem] = []
    with target.queue() as (conn, table):
        while True:
            page = engine.reclaim(conn, table, config=settings_now)
            items += page.items
            if not page.full:
                break
    _tell(items, as_json=target.as_json)
    return failures.DONE


def _tell(items: list[ReclaimedItem], *, as_json: bool) -> None:
    repaired = sum(item.state == "REPAIR" for item in items)
    if as_json:
        rows: list[dict[str, Any]] = [asdict(item) for item in items]
        print_json({"reclaimed": len(items) - repaired, "repaired": repaired, "items": rows})
        return
    say(f"{len(items) - repaired} items back to PENDING, {repaired} to REPAIR")
    if items:
        rows_shown = [[i.id, i.state, i.leased_by, i.attempt, i.crash_count] for i in items]
        print_grid(["id", "state", "leased_by", "attempt", "crash_count"], rows_shown)
