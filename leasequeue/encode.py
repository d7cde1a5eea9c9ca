"""Turns a row given to `enqueue` into texts that fit their columns exactly, or refuses it by row and column.

Texts, since a value then goes through its column's own input function on the server: numerics keep every digit, arrays and enums
work, and a row needs no Python type for its column. What PostgreSQL would take and change silently is refused here: floats and
surplus digits for numeric, times without a zone, NaN and Infinity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from json.encoder import encode_basestring as quote
from typing import Any
from uuid import UUID

from leasequeue import jsonio
from leasequeue.errors import BadInput
from leasequeue.table import LEASE_COLUMNS, Table

Encoder = Callable[[Any], str]
Texts = list[str | None]
Where = Callable[[int], str]

# Lease columns that a caller may give; the others belong to the engine.
GIVEN_LEASE_COLUMNS = frozenset({"id", "idempotency_key", "priority", "run_at", "lane", "trace_id", "source_hash"})
MAX_SHAPES = 1_000
NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_PLAIN_NUMBER = re.compile(r"-?[0-9]{1,100}(?:\.([0-9]{1,100}))?")
TEXT = re.compile(r"text|character varying(\(\d+\))?|character\(\d+\)|citext")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # not the text of a backslash and u0000
_JSON = ("json", "jsonb")
INTEGERS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}


class _Unfit(ValueError):
    """A value does not fit its column; the message says what would."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A set of columns that rows give.

    Args:
        columns: their names, sorted.
        fields: name and encoder of each.
        labels: name of each as a JSON key, and whether its text is JSON already.
        kinds: type of each.
        run_at: position of that column; None where it is not given.
        statements: what was rendered for this set.
    """

    columns: tuple[str, ...]
    fields: tuple[tuple[str, Encoder], ...]
    labels: tuple[tuple[str, bool], ...]
    kinds: tuple[str, ...] = ()
    run_at: int | None = None
    statements: dict[str, str] = field(default_factory=dict, compare=False)

    def json(self, texts: Texts) -> str:
        """The row as a JSON object."""
        parts = []
        for (label, raw), text in zip(self.labels, texts, strict=True):
            parts.append(label + ("null" if text is None else text if raw else quote(text)))
        return "{" + ",".join(parts) + "}"


class RowEncoder:
    """Encodes rows for one table.

    Args:
        table: the queue.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._shapes: dict[tuple[Any, ...], Shape] = {}

    @classmethod
    def of(cls, table: Table) -> RowEncoder:
        """The table's own: it keeps what it has learnt from call to call."""
        kept: RowEncoder = table.kept.setdefault("encoder", cls(table))
        return kept

    def encode(self, row: Mapping[str, Any], number: int, where: Where) -> tuple[Shape, Texts]:
        """The row's set of columns, and its values as texts in their order.

        Args:
            row: column → value.
            number: which row it is, from 1.
            where: names a row by its number, for errors, such as `row 3` or `line 12`.

        Raises:
            BadInput: names the row, the column, the value and what would be right.
        """
        if type(row) is not dict and not isinstance(row, Mapping):
            raise BadInput(where(number), type(row).__name__, "must be an object of columns and values")
        shape = self.shape(tuple(row), number, where)
        try:
            return shape, [None if (value := row[name]) is None else encode(value) for name, encode in shape.fields]
        except ValueError:
            raise _refused(shape, row, number, where) from None

    def shape(self, names: tuple[str, ...], number: int, where: Where) -> Shape:
        """The set of these columns, given in any order.

        Raises:
            BadInput: one of them may not be given; see `encode`.
        """
        return self._shapes.get(names) or self._learn(names, number, where)

    def _learn(self, names: tuple[str, ...], number: int, where: Where) -> Shape:
        for name in names:
            self._check(name, number, where)
        columns = tuple(sorted(names))
        kinds = tuple(self._table.columns[name] for name in columns)
        fields = tuple((name, encoder_of(kind)) for name, kind in zip(columns, kinds, strict=True))
        labels = tuple((quote(name) + ":", kind in _JSON) for name, kind in zip(columns, kinds, strict=True))
        run_at = columns.index("run_at") if "run_at" in columns else None
        shape = self._shapes.get(columns) or Shape(columns, fields, labels, kinds, run_at)
        if len(self._shapes) >= MAX_SHAPES:  # rows of ever new sets of columns must not fill the memory
            self._shapes.clear()
        self._shapes[columns] = self._shapes[names] = shape
        return shape

    def _check(self, name: Any, number: int, where: Where) -> None:
        if name in LEASE_COLUMNS and name not in GIVEN_LEASE_COLUMNS:
            allowed = ", ".join(sorted(GIVEN_LEASE_COLUMNS))
            raise BadInput(
                where(number), name, f"is a column of the engine's own; of the lease columns a row may give {allowed}"
            )
        if not isinstance(name, str) or not self._table.has(name):
            own = ", ".join(c for c in self._table.columns if c not in LEASE_COLUMNS or c in GIVEN_LEASE_COLUMNS)
            raise BadInput(where(number), name, f"is no column of {self._table.label}; a row may give: {own}")


def _refused(shape: Shape, row: Mapping[str, Any], number: int, where: Where) -> BadInput:
    """Which of the row's values does not fit, and why."""
    for name, encode in shape.fields:
        value = row[name]
        try:
            if value is not None:
                encode(value)
        except ValueError as ex:
            return BadInput(f"{where(number)}, column {name}", value, ex.problem if isinstance(ex, BadInput) else str(ex))
    return BadInput(where(number), row, "changed while it was read")


def encoder_of(type_name: str) -> Encoder:
    """The encoder for a column's type, as `format_type` names it."""
    numeric = NUMERIC.fullmatch(type_name)
    if numeric:
        return partial(_numeric, scale=int(numeric[2]) if numeric[2] else None)
    if type_name in INTEGERS:
        return partial(_integer, bound=INTEGERS[type_name], type_name=type_name)
    if TEXT.fullmatch(type_name):
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
    return exact.get(type_name, _array if type_name.endswith("[]") else _other)


def _numeric(value: Any, *, scale: int | None) -> str:
    if type(value) is Decimal or type(value) is str or (type(value) is int and -(10**18) < value < 10**18):
        text = str(value)
        plain = _PLAIN_NUMBER.fullmatch(text)
        if plain and (scale is None or len(plain[1] or "") <= scale):
            return text  # most amounts by far; what follows is ten times slower
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
    return value if value.isprintable() else _clean(value)


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
        return value.hex
    if isinstance(value, str):
        try:
            return UUID(value).hex
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
    return value.isoformat()


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
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "\\x" + bytes(value).hex()
    raise _Unfit("must be bytes, or text such as \\x00ff")


def _json(value: Any) -> str:
    text = _plain_json(value)
    if "\\u0000" in text and _NUL.search(text):
        raise _Unfit("holds a NUL character (\\u0000), which jsonb cannot store")
    return text


def _plain_json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except TypeError:
        return jsonio.dumps_exact(value)  # Decimals and times: exact, but slower


def _other(value: Any) -> str:
    """Dates, intervals, enums, domains, …: the server's input function judges the text."""
    if isinstance(value, str):
        return _text(value)
    text = _json(value)
    return str(json.loads(text)) if text.startswith('"') else text


def _array(value: Any) -> str:
    """PostgreSQL's text of an array, `{…}`, from a list; a text is taken as it is."""
    if not isinstance(value, (list, tuple)):
        return _other(value)
    return "{" + ",".join(map(_element, value)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (list, tuple)):
        return _array(value)
    text = _other(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
