"""The list of mutants fits the source, and the judge of their runs is not easily satisfied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from devtools.mutants import ROOT, Mutant, MutantError, apply, judge, read_list

MUTANTS = read_list()


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 25
    assert all(mutant.tests and mutant.edits and mutant.guarantee for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_changes_apply_and_change_something(mutant: Mutant, tmp_path: Path) -> None:
    for file in {file for file, _, _ in mutant.edits}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    apply(mutant, tmp_path)
    assert any((tmp_path / file).read_text() != (ROOT / file).read_text() for file, _, _ in mutant.edits)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_named_tests_exist(mutant: Mutant) -> None:
    for test in mutant.tests:
        file, *names = test.split("::")
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        for name in names:
            assert f"def {name}(" in source or f"class {name}:" in source, test


def test_old_text_must_occur_once(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("x x")
    for old in ("x", "y"):
        with pytest.raises(MutantError, match="not once"):
            apply(Mutant("m", "g", (("a.sql", old, "z"),), ("t.py",), ""), tmp_path)


CASE = '<testsuite><testcase classname="tests.postgres.test_a" name="test_b[sync]">{}</testcase></testsuite>'


@pytest.mark.parametrize(
    ("inside", "killed"),
    [
        ('<failure message="AssertionError: assert 1 == 2"/>', True),
        ('<failure message="assert 1 == 2"/>', True),
        ('<failure message="Failed: DID NOT RAISE ValueError"/>', True),
        ('<failure message="psycopg.errors.SyntaxError: syntax error"/>', False),
        ('<failure message="ImportError: cannot import"/>', False),
        ('<error message="AssertionError: in a fixture"/>', False),
        ("<skipped/>", False),
        ("", False),
    ],
)
def test_only_a_failed_assertion_counts(inside: str, killed: bool) -> None:
    mutant = Mutant("m", "g", (), ("postgres/test_a.py::test_b",), "")
    assert judge(mutant, CASE.format(inside)).killed is killed


def test_every_named_test_must_fail() -> None:
    mutant = Mutant("m", "g", (), ("postgres/test_a.py::test_b", "postgres/test_a.py::test_c"), "")
    verdict = judge(mutant, CASE.format('<failure message="assert 1 == 2"/>'))
    assert (verdict.killed, list(verdict.survived)) == (False, ["postgres/test_a.py::test_c"])
