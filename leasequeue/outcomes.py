"""Outcomes of one call's writes, where the call may hold two leases on one item."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
        self._rounds: list[tuple[Sequence[Lease], Mapping[Any, Outcome]]] = []
        self._by_token: dict[UUID, Outcome] = {}

    def of(self, lease: Lease) -> Outcome:
        """Outcome of one lease of the call."""
        if not self._by_token:
            self._by_token = {held.token: outcome for held, outcome in self._pairs()}
        return self._by_token[lease.token]

    def all(self, outcome: Outcome) -> bool:
        """True when every lease of the call had this outcome."""
        return all(found is outcome for _, outcomes in self._rounds for found in outcomes.values())

    def other_than(self, good: Collection[Outcome]) -> dict[Any, Outcome]:
        """Items with a lease whose outcome is not among `good`."""
        return {lease.id: outcome for lease, outcome in self._pairs() if outcome not in good}

    def add(self, leases: Sequence[Lease], outcomes: Mapping[Any, Outcome]) -> None:
        """Take note of one round, in which each item occurs once; `outcomes` has exactly its items."""
        self._rounds.append((leases, outcomes))
        self._by_token = {}
        if len(self._rounds) == 1:
            self.update(outcomes)
            return
        for item_id, outcome in outcomes.items():
            if self.get(item_id, Outcome.LOST) is Outcome.LOST:
                self[item_id] = outcome

    def _pairs(self) -> Iterator[tuple[Lease, Outcome]]:
        seen: set[UUID] = set()
        for leases, outcomes in self._rounds:
            for lease in leases:
                if lease.token not in seen:  # one lease given twice: what its first write did
                    seen.add(lease.token)
                    yield lease, outcomes[lease.id]


def rounds(writes: Sequence[W], lease_of: Callable[[W], Lease]) -> list[list[W]]:
    """Split the writes of one call so that no round has two about one item; mostly there is one."""
    if len({lease[0] for lease in map(lease_of, writes)}) == len(writes):
        return [list(writes)] if writes else []
    split: list[dict[Any, W]] = []
    for write in writes:
        free = next((round_ for round_ in split if lease_of(write).id not in round_), None)
        if free is None:
            split.append(free := {})
        free[lease_of(write).id] = write
    return [list(round_.values()) for round_ in split]
