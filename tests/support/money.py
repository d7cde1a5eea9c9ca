"""A handler over money."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from leasequeue import Item


def double(item: Item, ctx: Any) -> dict[str, Decimal]:
    """Twice the amount, to the last digit."""
    amount = item["amount"]
    if not isinstance(amount, Decimal):
        raise TypeError(f"money arrived as {type(amount).__name__}")
    return {"twice": amount * 2}
