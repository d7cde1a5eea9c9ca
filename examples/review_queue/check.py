"""Checks a review queue against its source: `python -m examples.review_queue.check --dsn …`.

Reads items and postings in one snapshot and compares them with the items that the data set gives. Exit code 0: every
item resolved and posted exactly once, and the totals of every ledger entity are those of the source, to the cent. 1:
not so; the table and the lines below it say what is off. 2: usage, 3: the database cannot be read.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import psycopg
from rich.console import Console
from rich.table import Table

from examples.review_queue.dataset import DatasetError, load
from examples.review_queue.items import ReviewItem, derive

SELECT_ITEMS = """
    SELECT id::text, idempotency_key, ledger_entity, variance_amount, state, attempt
    FROM review_queue_item ORDER BY idempotency_key
"""
SELECT_POSTINGS = "SELECT item_id::text, ledger_entity, amount FROM ledger_posting"
CONNECT_SECONDS = 10
STATEMENT_TIMEOUT = "-c statement_timeout=30s"


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One row of `review_queue_item`. `amount` is its variance in US dollars, `attempt` how often it was leased."""

    id: str
    key: str
    entity: str
    amount: Decimal
    state: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Posting:
    """One row of `ledger_posting`, made by one execution that held its lease."""

    item_id: str
    entity: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class EntityTotal:
    """Dollars of one ledger entity: by the source, and as posted."""

    entity: str
    source: Decimal
    posted: Decimal

    @property
    def exact(self) -> bool:
        return self.source == self.posted


@dataclass(frozen=True, slots=True)
class Report:
    """What happened to the items of the source.

    Args:
        source_items: items that the data set gives.
        items_in: rows of the table.
        altered: keys that are missing in the table, not from the source, or differ from it in entity or amount.
        resolved: rows with state RESOLVED.
        postings: rows of the ledger.
        lost: rows of the table without a posting.
        doubled: postings over one an item.
        strays: postings of no item.
        executions_started: leases taken and not given back unstarted, over all items.
        totals: by entity.
    """

    source_items: int
    items_in: int
    altered: tuple[str, ...]
    resolved: int
    postings: int
    lost: int
    doubled: int
    strays: int
    executions_started: int
    totals: tuple[EntityTotal, ...]

    @property
    def totals_exact(self) -> bool:
        return all(total.exact for total in self.totals)

    @property
    def problems(self) -> list[str]:
        """One sentence for each thing that is off; empty where all is well."""
        found = []
        if self.altered:
            some = ", ".join(self.altered[:3])
            found.append(f"{len(self.altered)} items are missing, unknown or not as in the source, for example {some}")
        if self.resolved != self.items_in:
            found.append(f"{self.items_in - self.resolved} of {self.items_in} items are not resolved")
        if self.lost:
            found.append(f"{self.lost} items have no posting")
        if self.doubled:
            found.append(f"{self.doubled} postings are over one an item")
        if self.strays:
            found.append(f"{self.strays} postings belong to no item")
        if self.executions_started < self.postings:
            found.append(f"{self.postings} postings of only {self.executions_started} executions")
        found += [f"{t.entity}: posted {t.posted}, source {t.source}" for t in self.totals if not t.exact]
        return found


def compare(source: Iterable[ReviewItem], items: Sequence[StoredItem], postings: Sequence[Posting]) -> Report:
    """Compare the table and the ledger with the source. Pure; every amount is a Decimal."""
    wanted = {item.idempotency_key: (item.ledger_entity, item.variance_amount) for item in source}
    stored = {item.key: (item.entity, item.amount) for item in items}
    per_item = Counter(posting.item_id for posting in postings)
    known = {item.id for item in items}
    return Report(
        source_items=len(wanted),
        items_in=len(items),
        altered=tuple(sorted(key for key in wanted.keys() | stored.keys() if wanted.get(key) != stored.get(key))),
        resolved=sum(item.state == "RESOLVED" for item in items),
        postings=len(postings),
        lost=sum(item.id not in per_item for item in items),
        doubled=sum(count - 1 for count in per_item.values()),
        strays=sum(count for item_id, count in per_item.items() if item_id not in known),
        executions_started=sum(item.attempt for item in items),
        totals=_totals(wanted.values(), ((posting.entity, posting.amount) for posting in postings)),
    )


def _totals(source: Iterable[tuple[str, Decimal]], posted: Iterable[tuple[str, Decimal]]) -> tuple[EntityTotal, ...]:
    sums: tuple[defaultdict[str, Decimal], defaultdict[str, Decimal]] = (defaultdict(Decimal), defaultdict(Decimal))
    for side, amounts in zip(sums, (source, posted), strict=True):
        for entity, amount in amounts:
            side[entity] += amount
    entities = sorted(sums[0].keys() | sums[1].keys())
    return tuple(EntityTotal(entity, sums[0][entity], sums[1][entity]) for entity in entities)


def read(conn: psycopg.Connection[Any]) -> tuple[list[StoredItem], list[Posting]]:
    """Items and postings in one snapshot; `conn` must be outside a transaction."""
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    conn.read_only = True
    with conn.transaction():
        items = [StoredItem(*row) for row in conn.execute(SELECT_ITEMS)]
        postings = [Posting(*row) for row in conn.execute(SELECT_POSTINGS)]
    return items, postings


def check(dsn: str, limit: int | None = None) -> Report:
    """Compare the database behind `dsn` with the first `limit` items of the data set (all by default).

    Raises:
        DatasetError: the data set cannot be had.
        psycopg.Error: the database cannot be read.
    """
    source = list(derive(load(), limit))
    with psycopg.connect(dsn, connect_timeout=CONNECT_SECONDS, options=STATEMENT_TIMEOUT) as conn:
        return compare(source, *read(conn))


def render(report: Report) -> Table:
    """The report as a table for people."""
    table = Table("what", "found", "right", title="Review queue against its source")
    table.add_row("items in", str(report.items_in), str(report.source_items))
    table.add_row("resolved", str(report.resolved), str(report.source_items))
    table.add_row("postings", str(report.postings), str(report.source_items))
    table.add_row("lost", str(report.lost), "0")
    table.add_row("doubled", str(report.doubled), "0")
    table.add_row("executions started", str(report.executions_started), f">= {report.source_items}")
    for total in report.totals:
        table.add_row(f"posted to {total.entity}", str(total.posted), str(total.source))
    return table


@click.command(help="Check the review queue and its ledger against the CDNOW data set; exit code 1 if anything is off.")
@click.option("--dsn", envvar="LEASEQUEUE_DSN", help="Connection string of the database; or LEASEQUEUE_DSN.")
@click.option(
    "--dsn-file",
    envvar="LEASEQUEUE_DSN_FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that holds it.",
)
@click.option("--limit", type=click.IntRange(1), help="Compare with the first so many items; all 2,357 by default.")
def main(dsn: str | None, dsn_file: Path | None, limit: int | None) -> None:
    """Command line of this module."""
    if not dsn and not dsn_file:
        raise click.UsageError("no database: give --dsn or --dsn-file, or set LEASEQUEUE_DSN or LEASEQUEUE_DSN_FILE")
    try:
        report = check(dsn or (dsn_file or Path(os.devnull)).read_text().removesuffix("\n"), limit)
    except DatasetError as error:
        raise click.ClickException(str(error)) from error
    except psycopg.Error as error:
        click.echo(f"cannot read the database: {error.sqlstate or type(error).__name__}", err=True)
        sys.exit(3)
    console = Console()
    console.print(render(report))
    for problem in report.problems:
        console.print(f"[red]off:[/red] {problem}", highlight=False)
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
