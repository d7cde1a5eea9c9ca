"""`leasequeue doctor`: what is wrong with a queue, why, and what mends it."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from leasequeue.cli import failures
from leasequeue.cli.options import Target, settings, target
from leasequeue.cli.output import console, print_json
from leasequeue.config import BlockedHead
from leasequeue.doctor import Diagnosis, Finding, Limits, Severity, diagnose
from leasequeue.doctor.limits import MAX_WATCH_S

COLOURS = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.UNKNOWN: "cyan"}
DEFAULT = Limits()


@click.command("doctor")
@target
@settings("lock_timeout_ms", "reclaim_after_s", "max_attempts", "max_crashes")
@click.option("--max-inflight", type=click.IntRange(min=1), metavar="N", envvar="LEASEQUEUE_MAX_INFLIGHT", help="Ceiling to judge by [default: that of the reclaimer's last run; env LEASEQUEUE_MAX_INFLIGHT]")  # fmt: skip
@click.option("--max-workers", type=click.IntRange(min=1), metavar="N", help="Worker processes that there may be (maxReplicas): compared with what the server allows.")  # fmt: skip
@click.option("--watch-s", type=click.FloatRange(0, MAX_WATCH_S), default=DEFAULT.watch_s, show_default=True, metavar="SECONDS", help="Time between the two looks; 0 looks once. Below 6 workers' heartbeats cannot be compared.")  # fmt: skip
@click.option("--statement-s", type=click.FloatRange(0.1, 600), default=DEFAULT.statement_s, show_default=True, metavar="SECONDS", help="Most that one look may take.")  # fmt: skip
@click.option("--oldest-due-s", type=click.FloatRange(0), default=DEFAULT.oldest_due_s, show_default=True, metavar="SECONDS", help="A due item that waits longer starves.")  # fmt: skip
@click.option("--xmin-s", type=click.FloatRange(0), default=DEFAULT.xmin_s, show_default=True, metavar="SECONDS", help="A transaction open for longer pins dead rows.")  # fmt: skip
@click.option("--lock-held-s", type=click.FloatRange(0), default=DEFAULT.lock_held_s, show_default=True, metavar="SECONDS", help="A transaction that holds locks on the table for longer.")  # fmt: skip
@click.option("--strict-lanes/--no-strict-lanes", default=None, envvar="LEASEQUEUE_STRICT_LANES", help="Whether lanes run strictly in order [default: by the form of the claim index; env LEASEQUEUE_STRICT_LANES]")  # fmt: skip
@click.option("--on-blocked-head", type=click.Choice(["Block", "Pass"]), default="Block", show_default=True, envvar="LEASEQUEUE_ON_BLOCKED_HEAD", help="What the queue does with a lane whose head cannot run.")  # fmt: skip
def doctor_command(
    target: Target, lock_timeout_ms: int, strict_lanes: bool | None, on_blocked_head: BlockedHead, **thresholds: Any
) -> int:
    """Examine a queue: leases held twice or leaked, starvation, poison items, locks, indexes, writers that bypass the lease.

    Reads only, twice, some seconds apart; nobody waits for it. Each finding says what was seen (never payload), why, and what to
    run. Exit code 0: nothing found; 1: something, or something could not be seen.
    """
    limits = Limits(lease_s=lock_timeout_ms / 1000, strict_lanes=strict_lanes, on_blocked_head=on_blocked_head, **thresholds)
    with target.connect() as conn:
        diagnosis = diagnose(conn, target.table, target.schema, limits=limits)
    if target.as_json:
        print_json(diagnosis.as_dict())
    else:
        _tell_people(diagnosis)
    return failures.DONE if diagnosis.healthy else failures.FOUND


def _tell_people(diagnosis: Diagnosis) -> None:
    out = console()
    if diagnosis.healthy:
        out.print(Text(f"{diagnosis.table}: nothing found"))
        return
    out.print(Text(f"{diagnosis.table}: {len(diagnosis.findings)} found"))
    for finding in diagnosis.findings:
        out.print(_lines(finding), soft_wrap=True)


def _lines(finding: Finding) -> Text:
    text = Text("\n")
    text.append(f"{finding.code} {finding.severity}", style=COLOURS[finding.severity])
    text.append(f"  {finding.summary}\n  why: {finding.cause}\n  fix: {finding.fix}")
    if finding.ids:
        text.append(f"\n  ids: {', '.join(finding.ids)}", style="dim")
    return text
