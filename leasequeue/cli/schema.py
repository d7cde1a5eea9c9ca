"""`leasequeue schema create | adopt | verify`."""

from __future__ import annotations

import click

from leasequeue import schema
from leasequeue.cli import failures
from leasequeue.cli.options import Target, target
from leasequeue.cli.output import print_json, say
from leasequeue.schema import ColumnSpec, Report

strict_lanes_option = click.option(
    "--strict-lanes", is_flag=True, help="Claim index for queues whose lanes run strictly in order (lease.lanes.strict)."
)


@click.group("schema")
def schema_group() -> None:
    """Make, adopt or judge the table of a queue. Every command may be run again."""


@schema_group.command("create")
@target
@click.option("--column", "columns", multiple=True, metavar="NAME:TYPE", help="A column of your own, such as 'amount:numeric(18,2) NOT NULL'; may be repeated.")  # fmt: skip
@click.option("--id-type", type=click.Choice(["uuid", "bigint", "text"]), default="uuid", show_default=True, help="Type of the primary key.")  # fmt: skip
@strict_lanes_option
def create_command(target: Target, columns: tuple[str, ...], id_type: str, strict_lanes: bool) -> int:
    """Make the table of a new queue."""
    specs = [ColumnSpec.parse(text) for text in columns]
    with target.connect() as conn:
        report = schema.create(conn, target.table, target.schema, columns=specs, id_type=id_type, strict_lanes=strict_lanes)
    return tell(report, as_json=target.as_json)


@schema_group.command("adopt")
@target
@click.option("--confirm", metavar="SCHEMA.TABLE", help="Names the table again; needed where it has no state and leased_by yet.")  # fmt: skip
@strict_lanes_option
def adopt_command(target: Target, confirm: str | None, strict_lanes: bool) -> int:
    """Make a queue of an existing table, while its users go on reading and writing."""
    with target.connect() as conn:
        report = schema.adopt(conn, target.table, target.schema, confirm=confirm, strict_lanes=strict_lanes)
    return tell(report, as_json=target.as_json)


@schema_group.command("verify")
@target
@strict_lanes_option
def verify_command(target: Target, strict_lanes: bool) -> int:
    """Judge a table; changes nothing. Exit code 1: it is not ready."""
    with target.connect() as conn:
        report = schema.verify(conn, target.table, target.schema, strict_lanes=strict_lanes)
    return tell(report, as_json=target.as_json)


def tell(report: Report, *, as_json: bool) -> int:
    """Print a report; returns the exit code."""
    if as_json:
        print_json(report.as_dict())
    else:
        _tell_people(report)
    return failures.DONE if report.ok else failures.FOUND


def _tell_people(report: Report) -> None:
    say(f"{report.table}: {'ready' if report.ok else 'not ready'}")
    for title, findings in (("problem", report.problems), ("warning", report.warnings)):
        for finding in findings:
            say(f"  {title}: {finding.text}")
            if finding.fix:
                say(f"    run: {finding.fix}")
    if report.command and not report.ok:
        say(f"To mend what can be mended: {report.command}")
