"""Outcomes of one call's writes, where the call may hold two leases on one item."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from leasequeue.item import Lease
from leasequeue.states import Outcome

W = TypeVar("W")


class Outcomes(dict[Any, Outcome]):
    """Outcome per item id.

    One call may hold two leases on one item: a lost one, whose handler still runs, and its successor in the same process. Then the
    item shows what the successor did, and `of` tells them apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_token: dict[UUID, tuple[Any, Outcome]] = {}

    def of(self, lease: Lease) -> Outcome:
        """Outcome of one lease of the call."""
        return self._by_token[lease.token][1]

    def other_than(self, good: Collection[Outcome]) -> dict[Any, Outcome]:
        """Items with a lease whose outcome is not among `good`."""
        return {item_id: outcome for item_id, outcome in self._by_token.values() if outcome not in good}

    def add(self, leases: Iterable[Lease], outcomes: Mapping[Any, Outcome]) -> None:
        """Take note of one round, in which each item occurs once."""
        for lease in leases:
            outcome = outcomes[lease.id]
            self._by_token.setdefault(lease.token, (lease.id, outcome))
            if self.get(lease.id, Outcome.LOST) is Outcome.LOST:
                self[lease.id] = outcome


def rounds(writes: Sequence[W], lease_of: Callable[[W], Lease]) -> list[list[W]]:
    """Split the writes of one call so that no round has two about one item; mostly there is one."""
    if len({lease_of(write).id for write in writes}) == len(writes):
        return [list(writes)] if writes else []
    split: list[dict[Any, W]] = []
    for write in writes:
        free = next((round_ for round_ in split if lease_of(write).id not in round_), None)
        if free is None:
            split.append(free := {})
        free[lease_of(write).id] = write
    return [list(round_.values()) for round_ in split]
