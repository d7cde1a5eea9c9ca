"""An item as a worker holds it: the row, and the lease on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

ItemId = UUID | int | str


class Lease(NamedTuple):
    """Proof of ownership: every later write must match all three.

    Args:
        id: primary key of the item.
        token: fresh uuid of this lease.
        worker_id: identity of the process that holds it.
    """

    id: Any
    token: UUID
    worker_id: str


@lru_cache(maxsize=256)
def column_index(names: tuple[str, ...]) -> dict[str, int]:
    """Position of each column; shared by all items of one row shape."""
    return {name: i for i, name in enumerate(names)}


class Item:
    """One leased row. Columns by `item["variance_amount"]`, lease columns as attributes.

    Money columns are `Decimal`, times are aware datetimes, `id` has its column's type.
    """

    __slots__ = ("_index", "_row")

    def __init__(self, index: Mapping[str, int], row: tuple[Any, ...]) -> None:
        self._index, self._row = index, row

    def __getitem__(self, column: str) -> Any:
        try:
            return self._row[self._index[column]]
        except KeyError:
            raise KeyError(f"the table has no column {column!r}; it has: {', '.join(self._index)}") from None

    def get(self, column: str, default: Any = None) -> Any:
        """Value of a column, or `default` where the table has no such column."""
        index = self._index.get(column)
        return default if index is None else self._row[index]

    def __contains__(self, column: object) -> bool:
        return column in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def as_dict(self) -> dict[str, Any]:
        """All columns."""
        return {name: self._row[i] for name, i in self._index.items()}

    @property
    def lease(self) -> Lease:
        """The lease that fences every write about this item."""
        row, index = self._row, self._index
        return Lease(row[index["id"]], row[index["lease_token"]], row[index["leased_by"]])

    @property
    def id(self) -> Any:
        return self._row[self._index["id"]]

    @property
    def lease_token(self) -> UUID:
        token: UUID = self._row[self._index["lease_token"]]
        return token

    @property
    def leased_by(self) -> str:
        worker: str = self._row[self._index["leased_by"]]
        return worker

    @property
    def attempt(self) -> int:
        attempt: int = self._row[self._index["attempt"]]
        return attempt

    @property
    def priority(self) -> int:
        priority: int = self._row[self._index["priority"]]
        return priority

    def __getattr__(self, name: str) -> Any:
        if name in LEASE_ATTRIBUTES:
            return self.get(name)
        raise AttributeError(f'an item has no attribute {name!r}; columns are read as item["{name}"]')

    def __repr__(self) -> str:
        return f"<Item {self.id} attempt {self.attempt}>"  # never the payload


def columns_of(items: Sequence[Item], *names: str) -> list[tuple[Any, ...]]:
    """The same columns of all items of one claim, None where the table has no such column; two or more names."""
    index = items[0]._index if items else {}
    if all(name in index for name in names):
        pick = itemgetter(*[index[name] for name in names])
        return [pick(item._row) for item in items]
    return [tuple([item.get(name) for name in names]) for item in items]


LEASE_ATTRIBUTES = frozenset(
    {
        "state", "run_at", "lane", "created_at", "leased_at", "lease_expires_at", "crash_count", "last_error",
        "result", "resolved_at", "trace_id", "source_hash", "idempotency_key",
    }
)  # fmt: skip
