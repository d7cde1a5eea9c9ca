"""Errors of the engine: what went wrong, the field and value at fault, and the way out.

No message carries a DSN or a password: connection errors pass through `leasequeue.dsn.redact` first.
"""

from __future__ import annotations

from typing import Any


class LeaseQueueError(Exception):
    """Base of every error that LeaseQueue raises by itself."""


class BadInput(LeaseQueueError, ValueError):
    """A value is refused before anything was done.

    Args:
        field: name of the setting, column or argument, as the user wrote it.
        value: what was given (never a secret).
        problem: what is wrong with it and what would be right.
    """

    def __init__(self, field: str, value: Any, problem: str) -> None:
        self.field, self.value, self.problem = field, value, problem
        super().__init__(f"{field}={value!r}: {problem}")


class TableMissing(LeaseQueueError):
    """The table does not exist (or the role may not see its schema)."""

    def __init__(self, table: str, problem: str) -> None:
        self.table = table
        super().__init__(f"table {table}: {problem}")


class NotAdopted(LeaseQueueError):
    """The table exists but lacks lease columns, indexes or checks.

    Args:
        table: qualified name as SQL.
        missing: what `leasequeue schema verify` found missing.
    """

    def __init__(self, table: str, missing: list[str]) -> None:
        self.table, self.missing = table, missing
        super().__init__(
            f"table {table} is not ready as a lease queue: {'; '.join(missing)}. Run: leasequeue schema adopt --table {table}"
        )


class NotAQueue(LeaseQueueError):
    """Adoption refused: the table does not look like a queue and was not named explicitly as one."""


class LeaseNotHeld(LeaseQueueError):
    """A write inside the caller's transaction found that the lease is no longer held.

    Raised only there: it makes the caller's effects roll back together with the refused write.

    Args:
        outcomes: outcome per item id, for every item whose outcome was not the wanted one.
    """

    def __init__(self, outcomes: dict[Any, Any]) -> None:
        self.outcomes = outcomes
        told = ", ".join(f"{item}: {outcome}" for item, outcome in list(outcomes.items())[:5])
        super().__init__(f"lease not held ({told}); the transaction must roll back")


class OutcomeUnknown(LeaseQueueError):
    """The connection broke at COMMIT and the outcome could not be read back in time."""
