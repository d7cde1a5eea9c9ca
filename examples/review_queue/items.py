"""Review items from the CDNOW data set: `python -m examples.review_queue.items | leasequeue enqueue -`.

An item reconciles one customer: what the ledger holds in repeat orders (all after the customer's first day, to 30 June
1998) against what the statement accounts for (closed on 30 September 1997).

    variance_amount = ledger total - statement total, in US dollars, exact to the cent
    match_decision  = MATCHED    the variance is no more than rounding can explain
                      UNMATCHED  it is, and the statement has nothing for this customer
                      PARTIAL    it is, and the statement has something

No discrepancy is made up: both sides are as published. A variance is either an order made after the statement was
closed, or the rounding of a mean to cents (half a cent a purchase at most).

The ledger entity is the cohort: the ISO week of the customer's first order, `CDNOW-1997-W01` to `CDNOW-1997-W13`.
`source_hash` is the SHA-256 of the customer's ledger lines and statement line, joined by newlines, as published.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Literal

import click

from examples.review_queue.dataset import Dataset, DatasetError, Order, Statement, load

Decision = Literal["MATCHED", "PARTIAL", "UNMATCHED"]
HALF_A_CENT = Decimal("0.005")
CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """One row of `review_queue_item`, without what the table fills in itself."""

    idempotency_key: str
    ledger_entity: str
    variance_amount: Decimal
    match_decision: Decision
    source_hash: str


def derive(dataset: Dataset, limit: int | None = None) -> Iterator[ReviewItem]:
    """Yield the items, by customer number; the same every time.

    Args:
        limit: at most this many (the data set has 2,357 customers); all by default.
    """
    orders: defaultdict[int, list[Order]] = defaultdict(list)
    for order in dataset.orders:
        orders[order.customer].append(order)
    statements = sorted(dataset.statements, key=lambda statement: statement.customer)
    for statement in statements[:limit]:
        yield reconcile(orders[statement.customer], statement)


def reconcile(orders: list[Order], statement: Statement) -> ReviewItem:
    """The item of one customer, by the rules at the top of this module."""
    first = min(order.day for order in orders)
    ledger_total = sum((order.amount for order in orders if order.day > first), Decimal(0))
    variance = (ledger_total - statement.total).quantize(CENT)
    year, week, _ = first.isocalendar()
    return ReviewItem(
        idempotency_key=f"cdnow-1998-06-30-{statement.customer:04d}",
        ledger_entity=f"CDNOW-{year}-W{week:02d}",
        variance_amount=variance,
        match_decision=decide_match(variance, statement),
        source_hash=source_hash(orders, statement),
    )


def decide_match(variance: Decimal, statement: Statement) -> Decision:
    """MATCHED within half a cent a purchase, since the statement's mean is rounded to cents; else by its total."""
    if abs(variance) <= statement.repeats * HALF_A_CENT:
        return "MATCHED"
    return "PARTIAL" if statement.total else "UNMATCHED"


def source_hash(orders: Iterable[Order], statement: Statement) -> str:
    """SHA-256, in hex, of the published lines an item was made from."""
    record = "\n".join([*(order.line for order in orders), statement.line])
    return hashlib.sha256(record.encode("ascii")).hexdigest()


def to_json(item: ReviewItem) -> str:
    """One JSON object on one line; the amount as text, so that no reader can make a binary float of it."""
    return json.dumps(asdict(item) | {"variance_amount": str(item.variance_amount)})


@click.command(help="Print the review items of the CDNOW data set as JSON lines, for `leasequeue enqueue -`.")
@click.option("--limit", type=click.IntRange(1), help="Print at most this many items; all 2,357 by default.")
def main(limit: int | None) -> None:
    """Command line of this module."""
    try:
        dataset = load()
    except DatasetError as error:
        raise click.ClickException(str(error)) from error
    sys.stdout.writelines(to_json(item) + "\n" for item in derive(dataset, limit))


if __name__ == "__main__":
    main()
