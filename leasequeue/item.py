"""An item as a worker holds it: the row, and the lease on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from leasequeue.jsonio import as_text
from leasequeue.rows import Codec

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


class TextLease(Lease):
    """A lease whose id and token are the server's text: for a worker's own bookkeeping, where nobody looks at either. Outcomes of writes
    with such leases are told by the id's text."""

    __slots__ = ()


@lru_cache(maxsize=256)
def column_index(names: tuple[str, ...]) -> dict[str, int]:
    """Position of each column; shared by all items of one row shape."""
    return {name: i for i, name in enumerate(names)}


class Item:
    """One leased row. Columns by `item["variance_amount"]`, lease columns as attributes.

    Money columns are `Decimal`, times are aware datetimes, `id` has its column's type.

    Args:
        index: position of each column.
        row: the cells.
        codec: decodes them where they are text, each when it is first asked for.
    """

    __slots__ = ("_codec", "_decoded", "_index", "_row")

    def __init__(self, index: Mapping[str, int], row: tuple[Any, ...], codec: Codec | None = None) -> None:
        self._index, self._row, self._codec = index, row, codec
        self._decoded: dict[int, Any] | None = None

    def __getitem__(self, column: str) -> Any:
        position = self._index.get(column)
        if position is None:
            raise KeyError(f"the table has no column {column!r}; it has: {', '.join(self._index)}") from None
        codec = self._codec
        if codec is None or position in codec.as_they_are:
            return self._row[position]
        decoded = self._decoded
        if decoded is None:
            decoded = self._decoded = {}
        elif position in decoded:
            return decoded[position]
        # Kept: a handler may change a list or an object in place.
        value = decoded[position] = codec.value(position, self._row[position])
        return value

    def get(self, column: str, default: Any = None) -> Any:
        """Value of a column, or `default` where the table has no such column."""
        return self[column] if column in self._index else default

    def __contains__(self, column: object) -> bool:
        return column in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def as_dict(self) -> dict[str, Any]:
        """All columns."""
        return {name: self[name] for name in self._index}

    @property
    def lease(self) -> Lease:
        """The lease that fences every write about this item."""
        return Lease(self["id"], self["lease_token"], self["leased_by"])

    @property
    def id(self) -> Any:
        return self["id"]

    @property
    def lease_token(self) -> UUID:
        token: UUID = self["lease_token"]
        return token

    @property
    def leased_by(self) -> str:
        worker: str = self["leased_by"]
        return worker

    @property
    def attempt(self) -> int:
        attempt: int = self["attempt"]
        return attempt

    @property
    def priority(self) -> int:
        priority: int = self["priority"]
        return priority

    def __getattr__(self, name: str) -> Any:
        if name in LEASE_ATTRIBUTES:
            return self.get(name)
        raise AttributeError(f'an item has no attribute {name!r}; columns are read as item["{name}"]')

    def __repr__(self) -> str:
        return f"<Item {self.id} attempt {self.attempt}>"  # never the payload


def texts_of(items: Sequence[Item], *names: str) -> list[tuple[str | None, ...]]:
    """The same columns of all items of one claim as text, None for NULL and where the table has no such column.

    Args:
        items: of one claim.
        names: two or more columns.
    """
    index = items[0]._index if items else {}
    if items and items[0]._codec is not None and all(name in index for name in names):
        pick = itemgetter(*[index[name] for name in names])
        return [pick(item._row) for item in items]
    return [tuple([text_of(item.get(name)) for name in names]) for item in items]


def text_of(value: Any) -> str | None:
    """Text of one value as logs show it; None for NULL."""
    return value if value is None or isinstance(value, str) else as_text(value) or str(value)


def text_leases(items: Sequence[Item]) -> list[TextLease]:
    """Leases of all items of one claim, in their cheapest form."""
    new = tuple.__new__  # three times as fast as a named tuple's own
    return [new(TextLease, texts) for texts in texts_of(items, "id", "lease_token", "leased_by")]


LEASE_ATTRIBUTES = frozenset(
    {
        "state", "run_at", "lane", "created_at", "leased_at", "lease_expires_at", "crash_count", "last_error",
        "result", "resolved_at", "trace_id", "source_hash", "idempotency_key",
    }
)  # fmt: skip
