"""Adjudicates one review item and posts it to the ledger, once: `--handler examples.review_queue.handler:handle`.

The rule: a MATCHED item is approved; another is approved where its variance is within the tolerance, and escalated to
a person where it is not. The posting is written in `ctx.transaction()`, in which the lease is checked first: a worker
that lost its lease posts nothing, so an item is posted once however often it is executed.

Environment:
    DEMO_HANDLER_SECONDS: seconds of pretended work before the posting, 0 to 60, default 0.
    REVIEW_TOLERANCE_DOLLARS: largest variance approved without a person, 0 or more, default 25.00.
"""

from __future__ import annotations

import os
import time
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Literal

from leasequeue.errors import BadInput
from leasequeue.item import Item
from leasequeue_worker.context import Context

Adjudication = Literal["AUTO_APPROVED", "WITHIN_TOLERANCE", "ESCALATED"]
POST = """
    INSERT INTO ledger_posting (item_id, ledger_entity, amount, decision, worker_id, attempt)
    VALUES (%s, %s, %s, %s, %s, %s)
"""


def handle(item: Item, ctx: Context) -> None:
    """Adjudicate `item` and post it; what was decided becomes the item's result, in the same commit."""
    amount: Decimal = item["variance_amount"]
    decision = adjudicate(item["match_decision"], amount, tolerance())
    time.sleep(handler_seconds())
    with ctx.transaction() as conn:
        conn.execute(POST, (item.id, item["ledger_entity"], amount, decision, item.leased_by, item.attempt))
        ctx.set_result({"decision": decision})


def adjudicate(match_decision: str, variance: Decimal, limit: Decimal) -> Adjudication:
    """Decide one item; `variance` and `limit` in US dollars, a variance of either sign."""
    if match_decision == "MATCHED":
        return "AUTO_APPROVED"
    return "WITHIN_TOLERANCE" if abs(variance) <= limit else "ESCALATED"


@cache
def tolerance() -> Decimal:
    """REVIEW_TOLERANCE_DOLLARS.

    Raises:
        BadInput: not an amount of 0 or more.
    """
    return _number("REVIEW_TOLERANCE_DOLLARS", "25.00", None)


@cache
def handler_seconds() -> float:
    """DEMO_HANDLER_SECONDS.

    Raises:
        BadInput: not a number from 0 to 60.
    """
    return float(_number("DEMO_HANDLER_SECONDS", "0", Decimal(60)))


def _number(name: str, default: str, high: Decimal | None) -> Decimal:
    text = os.environ.get(name, default)
    wanted = "must be a number of 0 or more" if high is None else f"must be a number from 0 to {high}"
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise BadInput(name, text, wanted) from None
    if not value.is_finite() or value < 0 or (high is not None and value > high):
        raise BadInput(name, text, wanted)
    return value
