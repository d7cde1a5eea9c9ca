"""JSON that keeps every digit: results of handlers, command-line output, log fields.

Two directions, two rules (B32): into jsonb a Decimal is a JSON *number* with all its digits (PostgreSQL stores jsonb numbers as
numeric, exactly); out to logs and the command line a Decimal, a big integer id, a uuid and a time are *strings*, since most JSON
readers turn numbers into floats.
"""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from leasequeue.errors import BadInput

# Integers beyond this lose digits in readers that hold numbers as IEEE doubles (RFC 8259 §6).
SAFE_INTEGER = 2**53 - 1
# Digits that PostgreSQL's numeric, and so jsonb, can hold before and after the point. Written out in full, a Decimal of a few
# characters such as 1e999999999 would take a gigabyte.
DIGITS_BEFORE, DIGITS_AFTER = 131_072, 16_383
# A result that cannot be sent within a call's time limit would be sent for ever, and hold up every other.
MOST_RESULT = 16 * 2**20


class _Exact(float):
    """A float whose JSON text is a Decimal's digits: the json module writes floats by `float.__repr__` of the subclass."""

    __slots__ = ("digits",)
    digits: str

    def __new__(cls, value: Decimal) -> _Exact:
        if not has_digits(value):
            raise ValueError(f"{value} is no number that PostgreSQL can hold")
        made = super().__new__(cls, 0.0)
        made.digits = format(value, "f")
        return made

    def __repr__(self) -> str:
        return self.digits


def has_digits(value: Decimal) -> bool:
    """True for a number that PostgreSQL's numeric can hold; only those are written out in digits."""
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and -DIGITS_AFTER <= exponent <= DIGITS_BEFORE and value.adjusted() < DIGITS_BEFORE


def dumps_result(value: Any) -> str:
    """JSON text of a handler's result, for a jsonb column: as `dumps_exact`, and at most `MOST_RESULT` bytes.

    Raises:
        BadInput: as `dumps_exact`, or larger.
    """
    text = dumps_exact(value)
    if len(text) > MOST_RESULT:
        raise BadInput(
            "result", type(value).__name__, f"has {len(text)} bytes as JSON; at most {MOST_RESULT}: store it elsewhere"
        )
    return text


def dumps_exact(value: Any) -> str:
    """JSON text for a jsonb column, in ASCII, with every digit.

    Args:
        value: None, bool, int, float, str, Decimal, UUID, date, datetime, or lists and dicts of these.

    Raises:
        BadInput: a value has no JSON form (NaN, Infinity, an object of an unknown class, a non-string key), or is nested too
            deeply.
    """
    try:
        return "".join(_ENCODER.iterencode(_exact(value)))
    except (ValueError, TypeError) as ex:
        raise BadInput("result", type(value).__name__, f"cannot be stored as JSON: {ex}") from None
    except RecursionError:
        raise BadInput(
            "result", type(value).__name__, "cannot be stored as JSON: nested too deeply, or contains itself"
        ) from None


def _exact(value: Any) -> Any:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is not a JSON number")
        return _Exact(value)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is not a string")
        return {k: _exact(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(v) for v in value]
    return value


class _ResultEncoder(json.JSONEncoder):
    """The pure-Python encoder (`iterencode` with a custom float text), which the C one has no hook for."""

    def iterencode(self, o: Any, _one_shot: bool = False) -> Any:
        def floatstr(value: float) -> str:
            if isinstance(value, _Exact):
                return value.digits
            if value != value or value in (float("inf"), float("-inf")):
                raise ValueError(f"{value} is not a JSON number")
            return float.__repr__(value)

        make = json.encoder._make_iterencode  # type: ignore[attr-defined]
        return make({}, self.default, json.encoder.encode_basestring_ascii, None, floatstr, ":", ",", False, False, False)(o, 0)

    def default(self, o: Any) -> Any:
        text = as_text(o)
        if text is None:
            raise TypeError(f"{type(o).__name__} has no JSON form")
        return text


_ENCODER = _ResultEncoder()


def as_text(value: Any) -> str | None:
    """Text of a value that JSON has no type for, or None where there is no such text."""
    if isinstance(value, Decimal):
        return format(value, "f") if has_digits(value) else str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, timedelta):
        return f"{value.total_seconds()} s"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "\\x" + bytes(value).hex()
    return None


def printable(value: Any) -> Any:
    """`value` with everything that JSON readers would round or refuse turned into strings, for logs and command output."""
    if isinstance(value, dict):
        return {str(k): printable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [printable(v) for v in value]
    if value is None or isinstance(value, (bool, str)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return value if abs(value) <= SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    text = as_text(value)
    return text if text is not None else str(value)


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON text for people and programs: exact, never refused."""
    return json.dumps(printable(value), indent=indent, ensure_ascii=False)


def _refuse(token: str) -> Any:
    raise BadInput("json", token, "is not a JSON number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise BadInput("json", twice, "is a key that occurs twice in one object; which of its values is meant cannot be told")
    return found


def loads(text: str | bytes, *, distinct: bool = False) -> Any:
    """Parse JSON with numbers as int and Decimal, never float.

    Args:
        text: one JSON value.
        distinct: refuse an object in which a key occurs twice; otherwise the last one counts, as in jsonb.

    Raises:
        BadInput: not JSON, NaN/Infinity, an integer of more than 4,300 digits, nested too deeply, or a key twice.
    """
    try:
        hook = _distinct if distinct else None
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=hook)
    except json.JSONDecodeError as ex:
        raise BadInput("json", ex.doc[:80], f"not valid JSON: {ex.msg} at character {ex.pos}") from None
    except RecursionError:
        raise BadInput("json", text[:80], "is nested too deeply") from None
    except (BadInput, UnicodeDecodeError):
        raise
    except ValueError as ex:  # Python's bound on the digits of an integer
        raise BadInput("json", text[:80], f"cannot be read: {ex}") from None
