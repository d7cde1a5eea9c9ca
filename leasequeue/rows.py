"""Rows of a statement as plain tuples, decoded so that no stored value can make a claim fail for ever.

psycopg refuses timestamps outside Python's range (`infinity`, BC years) with DataError at fetch time, after the transaction
committed: one such row in a batch would lose all its leases. So would JSON nested deeper than Python's stack. The fast path stays
psycopg's own; only when it refuses are the cells decoded one by one: times are clamped to the nearest that Python can hold, any
other value stays the text that the server sent.

A worker takes most cells only to hand them back or to write them down, so on its own connections a claim's rows stay text
(`Query.raw`): a `Codec` decodes a cell when a handler asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import abc, errors
from psycopg.adapt import AdaptersMap, Transformer
from psycopg.pq import Format
from psycopg.pq.abc import PGresult
from psycopg.types.string import TextLoader

# What loaders raise: psycopg's own; json for numbers of more than 4,300 digits and for deep nesting; decimal for huge exponents.
UNDECODABLE = (errors.DataError, ValueError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class Result:
    """What one statement returned: column names and rows.

    Args:
        names: of the columns.
        rows: values; with a codec, the text of each.
        codec: decodes the cells of `rows`; None where they are decoded.
    """

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    codec: Codec | None = None

    def column(self, name: str) -> list[Any]:
        """All values of one column."""
        index = self.names.index(name)
        return [row[index] for row in self.rows]

    def dicts(self) -> list[dict[str, Any]]:
        """Rows as dictionaries."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]

    def typed(self) -> Result:
        """The same with every cell decoded."""
        codec = self.codec
        if codec is None:
            return self
        return Result(self.names, [tuple([codec.value(i, cell) for i, cell in enumerate(row)]) for row in self.rows])

    @property
    def scalar(self) -> Any:
        """First value of the first row, or None."""
        return self.rows[0][0] if self.rows else None


def in_utc(at: datetime | None) -> datetime | None:
    """The same instant in UTC. Differences between two times of one zone are wrong by an hour across its hour change: Python
    subtracts their wall clocks."""
    try:
        return at and at.astimezone(UTC)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def result_of(cursor: psycopg.Cursor[Any], conn: psycopg.Connection[Any]) -> Result:
    """Fetch a cursor's rows; waits for the answer when the statement was pipelined."""
    try:
        rows = cursor.fetchall()
    except UNDECODABLE as ex:
        rows = _rescue(cursor.pgresult, conn, ex)
    return Result(names_of(cursor.pgresult, conn.info.encoding), rows)


async def aresult_of(cursor: psycopg.AsyncCursor[Any], conn: psycopg.AsyncConnection[Any]) -> Result:
    """Async twin of `result_of`."""
    try:
        rows = await cursor.fetchall()
    except UNDECODABLE as ex:
        rows = _rescue(cursor.pgresult, conn, ex)
    return Result(names_of(cursor.pgresult, conn.info.encoding), rows)


def names_of(result: PGresult | None, encoding: str) -> tuple[str, ...]:
    """Column names; `cursor.description` would cost 4 µs a column."""
    return () if result is None else _decoded_names(tuple([result.fname(i) or b"" for i in range(result.nfields)]), encoding)


@lru_cache(maxsize=256)
def _decoded_names(names: tuple[bytes, ...], encoding: str) -> tuple[str, ...]:
    return tuple(name.decode(encoding) for name in names)


def decoded(transformer: abc.Transformer, result: PGresult, conn: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """All rows of a result, as psycopg decodes them for `conn`."""
    transformer.set_pgresult(result)
    try:
        return transformer.load_rows(0, result.ntuples, tuple)
    except UNDECODABLE as ex:
        return _rescue(result, conn, ex)


class TextContext:
    """Adapters that leave every cell as the text that the server sent, for a `Transformer`."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.connection: psycopg.Connection[Any] | None = conn
        self.adapters = AdaptersMap()
        self.adapters.register_loader(0, TextLoader)  # of every type that has no loader: there is no other


def texts(transformer: abc.Transformer, result: PGresult) -> list[tuple[Any, ...]] | None:
    """All rows of a result as text, None for NULL; None as a whole where a cell is no text in the connection's encoding.

    Args:
        transformer: made with a `TextContext`; it knows the columns of the statement.
        result: the statement's.
    """
    transformer.set_pgresult(result, set_loaders=False)
    try:
        return transformer.load_rows(0, result.ntuples, tuple)
    except UnicodeDecodeError:
        return None


class Codec:
    """Decodes cells of one row shape that were left as text, as psycopg would have.

    Args:
        types: oid of each column's type.
        conn: its adapters and its time zone count.

    `as_they_are` has the positions of columns whose text is their value.
    """

    def __init__(self, types: tuple[int, ...], conn: psycopg.Connection[Any]) -> None:
        transformer = Transformer(conn)
        self._loaders = [transformer.get_loader(oid, Format.TEXT) for oid in types]
        self._types = [_type_name(oid) for oid in types]
        plain = type(transformer.get_loader(0, Format.TEXT))
        self.as_they_are = frozenset(i for i, loader in enumerate(self._loaders) if type(loader) is plain)

    def value(self, position: int, text: str | None) -> Any:
        """Value of a cell.

        Args:
            position: of its column.
            text: as the server sent it; None for NULL.
        """
        if text is None or position in self.as_they_are:
            return text
        try:
            return self._loaders[position].load(text.encode())
        except UNDECODABLE:
            return _load(self._loaders[position], text.encode(), self._types[position])


def _rescue(
    result: PGresult | None, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], error: Exception
) -> list[tuple[Any, ...]]:
    """Decode cell by cell. An error of the server (it has a SQLSTATE) is no decoding error and is raised again."""
    if result is None or getattr(error, "sqlstate", None) is not None:
        raise error
    transformer = Transformer(conn)
    columns = range(result.nfields)
    loaders = [transformer.get_loader(result.ftype(c), Format(result.fformat(c))) for c in columns]
    types = [_type_name(result.ftype(c)) for c in columns]
    rows = []
    for r in range(result.ntuples):
        cells = []
        for c in columns:
            raw = result.get_value(r, c)
            cells.append(None if raw is None else _load(loaders[c], raw, types[c]))
        rows.append(tuple(cells))
    return rows


def _type_name(oid: int) -> str:
    info = psycopg.adapters.types.get(oid)
    return info.name if info else ""


def _load(loader: Any, raw: bytes, type_name: str) -> Any:
    try:
        return loader.load(raw)
    except UNDECODABLE:
        text = bytes(raw).decode(errors="replace")
        early = text.startswith("-") or text.endswith("BC")
        if type_name == "timestamptz":
            return (datetime.min if early else datetime.max).replace(tzinfo=UTC)
        if type_name == "timestamp":
            return datetime.min if early else datetime.max
        if type_name == "date":
            return date.min if early else date.max
        return text
