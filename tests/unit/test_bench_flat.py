"""Figures of the flat benchmark: ratios are judged on medians, facts on their own."""

from __future__ import annotations

import pytest

from benchmarks.flat.cli import table
from benchmarks.flat.figures import compare, ends, fact, tail


@pytest.mark.parametrize(("found", "ok"), [([1.1, 1.2, 9.0], True), ([1.1, 1.3, 9.0], False)])
def test_a_ratio_is_judged_by_medians(found: list[float], ok: bool) -> None:
    figure = compare("x", [1.0, 1.0, 5.0], found, 1.2)
    assert figure.ok is ok
    assert figure.ratio == pytest.approx(found[1])


def test_without_a_limit_nothing_fails() -> None:
    assert compare("x", [1.0], [100.0], None).ok


def test_ends_are_never_empty() -> None:
    assert ends([1.0]) == ([1.0], [1.0])
    assert ends([float(n) for n in range(20)]) == ([0.0, 1.0], [18.0, 19.0])


def test_tail() -> None:
    assert tail([float(n) for n in range(100)]) == 95.0
    assert tail([3.0]) == 3.0


def test_the_table_says_what_fails() -> None:
    figures = [
        compare("slow", [1.0], [3.0], 2.0),
        compare("only shown", [1.0], [3.0], None),
        fact("hot", "80 %", "≥ 90 %", False),
    ]
    words = list(table(figures).columns[-1].cells)
    assert words == ["[red]fails[/]", "shown", "[red]fails[/]"]
