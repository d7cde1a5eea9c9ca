"""Turns a row given to `enqueue` into JSON text whose values fit their columns exactly, or refuses it by row and column.

JSON text, since a value then goes through its column's own input function on the server: numerics keep every digit, arrays and
enums work, and a row needs no Python type for its column. What PostgreSQL would take and change silently is refused here: floats
and surplus digits for numeric, times without a zone, NaN and Infinity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any
from uuid import UUID

from leasequeue import jsonio
from leasequeue.errors import BadInput
from leasequeue.table import LEASE_COLUMNS, Table

Encoder = Callable[[Any], str]

# Lease columns that a caller may give; the others belong to the engine.
GIVEN_LEASE_COLUMNS = frozenset({"id", "idempotency_key", "priority", "run_at", "lane", "trace_id", "source_hash"})
_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_TEXT = re.compile(r"text|character varying(\(\d+\))?|character\(\d+\)|citext")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # not the text of a backslash and u0000
_INTEGERS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}


class _Unfit(ValueError):
    """A value does not fit its column; the message says what would."""


_quote = partial(json.dumps, ensure_ascii=False)


class RowEncoder:
    """Encodes rows for one table.

    Args:
        table: the queue.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._encoders: dict[str, tuple[str, Encoder]] = {}

    def encode(self, row: Mapping[str, Any], where: str) -> tuple[tuple[str, ...], str]:
        """Columns of the row, sorted, and its JSON text.

        Args:
            row: column → value.
            where: which row it is, for errors, such as `row 3` or `line 12`.

        Raises:
            BadInput: names the row, the column, the value and what would be right.
        """
        if not isinstance(row, Mapping):
            raise BadInput(where, type(row).__name__, "must be an object of columns and values")
        names = tuple(sorted(row))
        parts = []
        for name in names:
            label, encoder = self._encoders.get(name) or self._learn(name, where)
            value = row[name]
            try:
                parts.append(label + ("null" if value is None else encoder(value)))
            except ValueError as ex:
                raise BadInput(f"{where}, column {name}", value, _reason(ex)) from None
        return names, "{" + ",".join(parts) + "}"

    def _learn(self, name: str, where: str) -> tuple[str, Encoder]:
        if name in LEASE_COLUMNS and name not in GIVEN_LEASE_COLUMNS:
            allowed = ", ".join(sorted(GIVEN_LEASE_COLUMNS))
            raise BadInput(where, name, f"is a column of the engine's own; of the lease columns a row may give {allowed}")
        if not isinstance(name, str) or not self._table.has(name):
            own = ", ".join(c for c in self._table.columns if c not in LEASE_COLUMNS or c in GIVEN_LEASE_COLUMNS)
            raise BadInput(where, name, f"is no column of {self._table.label}; a row may give: {own}")
        learnt = self._encoders[name] = (_quote(name) + ":", encoder_of(self._table.columns[name]))
        return learnt


def _reason(error: ValueError) -> str:
    return error.problem if isinstance(error, BadInput) else str(error)


def encoder_of(type_name: str) -> Encoder:
    """The encoder for a column's type, as `format_type` names it."""
    numeric = _NUMERIC.fullmatch(type_name)
    if numeric:
        return partial(_numeric, scale=int(numeric[2]) if numeric[2] else None)
    if type_name in _INTEGERS:
        return partial(_integer, bound=_INTEGERS[type_name], type_name=type_name)
    if _TEXT.fullmatch(type_name):
        return _text
    exact = {
        "uuid": _uuid,
        "timestamp with time zone": _instant,
        "boolean": _boolean,
        "json": _json,
        "jsonb": _json,
        "double precision": _float,
        "real": _float,
        "bytea": _bytes,
    }
    return exact.get(type_name, _other)


def _numeric(value: Any, *, scale: int | None) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise _Unfit("must be a Decimal, a whole number or a string of digits")
    if isinstance(value, float) and not value.is_integer():
        raise _Unfit("a float is not exact; give a Decimal or a string of digits")
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise _Unfit("must be a number in plain digits") from None
    if not number.is_finite():
        raise _Unfit("NaN and Infinity are refused: no amount compares or adds up with them")
    if not jsonio.has_digits(number):
        raise _Unfit("has more digits than numeric can hold")
    if scale is not None and -int(number.normalize().as_tuple().exponent) > max(scale, 0):
        raise _Unfit(f"has more than {scale} digits after the point, which the column would round")
    return format(number, "f")


def _integer(value: Any, *, bound: int, type_name: str) -> str:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)  # a 64-bit id travels as a string in JSON
    if isinstance(value, bool) or not isinstance(value, int) or not -bound <= value < bound:
        raise _Unfit(f"must be a whole number from {-bound} to {bound - 1} ({type_name})")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unfit("must be text")
    return _quote(_clean(value))


def _clean(value: str) -> str:
    if "\0" in value:
        raise _Unfit("holds a NUL character (\\u0000), which PostgreSQL text cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Unfit("holds half of a surrogate pair, which is no text") from None
    return value


def _uuid(value: Any) -> str:
    if isinstance(value, UUID):
        return f'"{value}"'
    if isinstance(value, str):
        try:
            return f'"{UUID(value)}"'
        except ValueError:
            pass
    raise _Unfit("must be a uuid")


def _instant(value: Any) -> str:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise _Unfit("must be a time in ISO 8601 with its offset, such as 2026-01-31T12:00:00Z") from None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise _Unfit("must be a time with its offset (UTC or other): without one its meaning depends on the session")
    return f'"{value.isoformat()}"'


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise _Unfit("must be true or false")
    return "true" if value else "false"


def _float(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise _Unfit("must be a number")
    if not Decimal(value).is_finite():
        raise _Unfit("NaN and Infinity have no JSON form")
    return repr(value) if not isinstance(value, Decimal) else str(value)


def _bytes(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"\\x([0-9a-fA-F]{2})*", value):
        return _quote(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _quote("\\x" + bytes(value).hex())
    raise _Unfit("must be bytes, or text such as \\x00ff")


def _json(value: Any) -> str:
    text = _plain_json(value)
    if _NUL.search(text):
        raise _Unfit("holds a NUL character (\\u0000), which jsonb cannot store")
    return text


def _plain_json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except TypeError:
        return jsonio.dumps_exact(value)  # Decimals and times: exact, but slower


def _other(value: Any) -> str:
    """Dates, intervals, arrays, enums, …: the server's input function judges the text."""
    if isinstance(value, str):
        return _quote(_clean(value))
    return _json(value)
