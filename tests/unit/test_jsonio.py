"""JSON in and out: exact numbers, and values that no result column can hold are refused at once."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal
from typing import Any

import pytest

from leasequeue import jsonio
from leasequeue.encode import encoder_of
from leasequeue.errors import BadInput

HUGE = ["1e999999999", "-1e-999999999", "0e-999999999", "0e999999999"]


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def itself() -> Any:
    """A list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [nested(5_000), itself(), {"a": nested(5_000)}])
def test_results_nested_without_end_are_refused(value: Any) -> None:
    with pytest.raises(BadInput, match="nested too deeply"):
        jsonio.dumps_result(value)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5_000])
def test_texts_that_python_cannot_read_are_bad_input(text: str) -> None:
    with pytest.raises(BadInput):
        jsonio.loads(text)


@pytest.mark.parametrize("text", HUGE)
def test_a_short_number_never_becomes_a_gigabyte(text: str) -> None:
    value = jsonio.loads(text)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="PostgreSQL"):
            jsonio.dumps_result({"a": value})
        assert Decimal(jsonio.printable(value)) == value
        with pytest.raises(ValueError, match="digits"):
            encoder_of("numeric")(value)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ["1e131071", "1e-16383", "0.1000", "-12345678901234567890.123456789"])
def test_numbers_that_numeric_holds_keep_every_digit(text: str) -> None:
    value = Decimal(text)
    for written in (jsonio.dumps_result(value), jsonio.printable(value), encoder_of("numeric")(value)):
        assert "e" not in written.lower()
        assert Decimal(written) == value


def test_a_result_too_large_to_send_is_refused() -> None:
    assert len(jsonio.dumps_result("x" * (jsonio.MOST_RESULT - 2))) == jsonio.MOST_RESULT
    with pytest.raises(BadInput, match="at most 16777216"):
        jsonio.dumps_result({"a": "x" * jsonio.MOST_RESULT})


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"deep": {"b": 1, "c": 2, "b": 1}}]'])
def test_a_key_given_twice_is_refused_where_a_person_wrote_it(text: str) -> None:
    """Which value is meant nobody can tell; jsonb and Python silently take the last."""
    with pytest.raises(BadInput, match="occurs twice"):
        jsonio.loads(text, distinct=True)
    assert jsonio.loads(text)
