"""Array parameters as text: every element comes back as it was, whatever characters it has (read by a parser of PostgreSQL's rules)."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasequeue.arrays import text_array


def parsed(literal: str) -> list[str | None]:
    """Elements of an array literal, by the rules of PostgreSQL's array_in (one dimension)."""
    assert literal[0] == "{"
    assert literal[-1] == "}"
    found: list[str | None] = []
    rest = literal[1:-1]
    position = 0
    while position < len(rest):
        if rest[position] == '"':
            position += 1
            text = ""
            while rest[position] != '"':
                position += rest[position] == "\\"
                text += rest[position]
                position += 1
            position += 1
            found.append(text)
        else:
            end = rest.find(",", position)
            end = len(rest) if end < 0 else end
            word, position = rest[position:end], end
            found.append(None if word == "NULL" else word)
        assert position == len(rest) or rest[position] == ","
        position += 1
    return found


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_texts_come_back_as_they_were(values: list[str]) -> None:
    assert parsed(text_array(values)) == values


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "{}"),
        ([UUID(int=1)], "{00000000000000000000000000000001}"),
        ([-(2**31), 7], "{-2147483648,7}"),
        ([None, "NULL", ""], '{NULL,"NULL",""}'),
        ([datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)], '{"2026-03-01T12:00:00.000005+00:00"}'),
    ],
)
def test_forms(values: list[object], text: str) -> None:
    assert text_array(values) == text
