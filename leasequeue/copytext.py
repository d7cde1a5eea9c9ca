"""Rows as COPY text, a block of rows at a time: column by column, since one look at 200 values costs little more than a look at one.

Each row ends with state and created_at. What a column's fast form does not cover (NULLs, escapes, mixed types, a value that does not
fit) is left to `encode.py`, value by value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from leasequeue.encode import INTEGERS, NUMERIC, TEXT, Encoder, Shape

Values = Sequence[Any]
Column = Callable[[Values], Sequence[str] | None]  # None: not all values have the usual form

Maker = Callable[["Instants", Sequence[int]], Sequence[str]]

NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 1_000_000


class Instants:
    """created_at of one load's rows: the server's clock when the load began, and one microsecond more a row.

    Args:
        start: that reading.
        first: number of the first row.
    """

    def __init__(self, start: datetime, first: int = 1) -> None:
        self.start = start
        self._base = round((start - _EPOCH) / timedelta(microseconds=1)) - first + 1

    def micros(self, number: int) -> int:
        """created_at of a row by its number, microseconds since 1970."""
        return self._base + number

    def at(self, number: int) -> datetime:
        """created_at of a row by its number."""
        return _EPOCH + timedelta(microseconds=self._base + number)

    def texts(self, numbers: Sequence[int]) -> list[str]:
        """created_at of rows by their numbers, which rise."""
        second, low = divmod(self._base + numbers[0], _SECOND)
        text = (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%d %H:%M:%S.")
        if low + numbers[-1] - numbers[0] < _SECOND:
            offset = low - numbers[0]
            return [f"{text}{offset + number:06d}+00" for number in numbers]
        return [self.at(number).isoformat() for number in numbers]


def ordered_uuids(instants: Instants, numbers: Sequence[int]) -> list[str]:
    """uuids of version 7 by created_at, as PostgreSQL's `uuidv7()` makes them (RFC 9562, 6.2, method 3): they rise with the rows."""
    noise = os.urandom(8 * len(numbers)).hex()
    made = []
    for place, number in enumerate(numbers):
        ms, rest = divmod(instants.micros(number), 1000)
        low = 16 * place
        made.append(f"{ms:012x}7{rest * 4096 // 1000:03x}{_VARIANT[noise[low]]}{noise[low + 1 : low + 16]}")
    return made


def random_uuids(_instants: Instants, numbers: Sequence[int]) -> list[str]:
    """uuids of version 4."""
    noise = os.urandom(16 * len(numbers)).hex()
    starts = range(0, len(noise), 32)
    return [f"{noise[i : i + 12]}4{noise[i + 13 : i + 16]}{_VARIANT[noise[i + 16]]}{noise[i + 17 : i + 32]}" for i in starts]


# By the default that they stand for.
MAKERS: dict[str, Maker] = {"uuidv7()": ordered_uuids, "gen_random_uuid()": random_uuids}
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def written(
    shape: Shape, columns: Sequence[Values], numbers: Sequence[int], instants: Instants, makers: Sequence[Maker] = ()
) -> str:
    """COPY text of rows of one shape: the columns given, those that are made, state, created_at.

    Args:
        shape: theirs.
        columns: the values, column by column, in the shape's order.
        numbers: numbers of the rows, for created_at.
        instants: of the load.
        makers: of columns that the rows do not give.

    Raises:
        ValueError: a value does not fit its column.
    """
    texts = [_texts(field[1], kind, column) for field, kind, column in zip(shape.fields, shape.kinds, columns, strict=True)]
    made = instants.texts(numbers)
    if shape.run_at is None:
        ends = [f"PENDING\t{at}\n" for at in made]
    else:
        states = [_state(value, instants.start) for value in texts[shape.run_at]]
        ends = [f"{state}\t{at}\n" for state, at in zip(states, made, strict=True)]
    fresh = [maker(instants, numbers) for maker in makers]
    return "".join(map("\t".join, zip(*texts, *fresh, ends, strict=True)))


def _texts(encode: Encoder, kind: str, values: Values) -> Sequence[str]:
    found = column_of(kind)(values)
    if found is None:
        found = [NULL if value is None else encode(value).translate(_ESCAPES) for value in values]
    return found


def _state(run_at: str, now: datetime) -> str:
    return "PENDING" if run_at == NULL or datetime.fromisoformat(run_at) <= now else "SCHEDULED"


@lru_cache(maxsize=256)
def column_of(kind: str) -> Column:
    """The fast form of a column, by its type as `format_type` names it."""
    numeric = NUMERIC.fullmatch(kind)
    if numeric:
        digits = max(int(numeric[2]), 0) if numeric[2] else 100
        fraction = rf"(?:\.[0-9]{{1,{digits}}})?" if digits else ""
        return partial(_numbers, plain=re.compile(rf"(?:-?[0-9]{{1,100}}{fraction}\n)*"), bound=10**18)
    if kind in INTEGERS:
        return partial(_numbers, plain=None, bound=INTEGERS[kind])
    if TEXT.fullmatch(kind):
        return _plain
    return _uuids if kind == "uuid" else _none


def _plain(values: Values) -> Sequence[str] | None:
    """Texts that need no escape."""
    try:
        joined = "".join(values)
    except TypeError:
        return None
    # Not ASCII may be half of a surrogate pair.
    special = "\\" in joined or "\n" in joined or "\t" in joined or "\r" in joined or "\0" in joined
    return None if special or not joined.isascii() else values


def _numbers(values: Values, *, plain: re.Pattern[str] | None, bound: int) -> Sequence[str] | None:
    types = set(map(type, values))
    if types == {int} and -bound <= min(values) and max(values) < bound:
        return list(map(str, values))
    if types == {Decimal} and plain is not None:
        texts = list(map(str, values))
        return texts if plain.fullmatch("\n".join(texts) + "\n") else None
    return None


def _uuids(values: Values) -> Sequence[str] | None:
    return [f"{value.int:032x}" for value in values] if set(map(type, values)) == {UUID} else None


def _none(values: Values) -> None:
    """No fast form."""
