"""Proves that the tests would notice: removes one guarantee at a time from a copy of the source and demands that named tests fail.

    python -m devtools.mutants [--jobs 4] [--out build/mutants.md] [NAME…]

The result is a table of guarantees, also written as Markdown while the run goes on: guarantee, test, the line that went red without it.

`tests/mutants.toml` lists the guarantees: the change that removes each (exact old text → new text), and the tests that must go red. A
test counts as red when an assertion of its own fails; an import error, a syntax error or an error in a fixture does not count. The
working tree is never touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants.toml"
COPIED = (
    "leasequeue",
    "worker",
    "reclaimer",
    "operator",
    "devtools",
    "devcluster",
    "examples",
    "tests",
    "pyproject.toml",
    "README.md",
)
OUT = Path("build/mutants.md")
MOST_LINE = 300
TIMEOUT_S = 600
# How the message of a failed test begins when the test itself judged; everything else is an accident.
JUDGED = ("AssertionError", "assert ", "Failed: ")


class MutantError(Exception):
    """The list does not fit the source."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One guarantee, the change that removes it, and who must notice.

    Args:
        name: short name.
        guarantee: what is removed, as a sentence.
        edits: file, old text, new text; each old text occurs exactly once in its file.
        tests: pytest ids below tests/; each must have a red case.
        select: pytest -k expression that keeps the run short.
    """

    name: str
    guarantee: str
    edits: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]
    select: str

    @classmethod
    def read(cls, entry: Mapping[str, Any], default_select: str) -> Mutant:
        """From its table in the list."""
        edits = tuple((e["file"], e["old"], e["new"]) for e in entry["edits"])
        return cls(entry["name"], entry["guarantee"], edits, tuple(entry["tests"]), entry.get("select", default_select))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant. `red` is the line that failed, per test; `survived` names tests that noticed nothing."""

    mutant: Mutant
    red: Mapping[str, str]
    survived: Sequence[str]
    trouble: str = ""
    took_s: float = 0.0

    @property
    def killed(self) -> bool:
        """Every named test failed by an assertion."""
        return not self.survived and not self.trouble


def read_list(path: Path = LIST) -> list[Mutant]:
    """All mutants of the list.

    Raises:
        MutantError: two of one name.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    mutants = [Mutant.read(entry, content["select"]) for entry in content["mutant"]]
    names = [mutant.name for mutant in mutants]
    if len(set(names)) != len(names):
        raise MutantError(f"names occur twice: {sorted({name for name in names if names.count(name) > 1})}")
    return mutants


def apply(mutant: Mutant, root: Path) -> None:
    """Change the copy of the source at `root`.

    Raises:
        MutantError: an old text does not occur exactly once.
    """
    for file, old, new in mutant.edits:
        path = root / file
        text = path.read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise MutantError(f"mutant {mutant.name}: {file} has {text.count(old)} times, not once: {old!r}")
        path.write_text(text.replace(old, new), encoding="utf-8")


def try_mutant(mutant: Mutant) -> Verdict:
    """Copy the source, change it, run the named tests."""
    with tempfile.TemporaryDirectory(prefix="lqmutant-") as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
            else:
                shutil.copy(source, root / name)
        apply(mutant, root)
        report = root / "report.xml"
        files = [f"tests/{test}" for test in mutant.tests]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
            "-k",
            mutant.select,
            *files,
        ]
        path = os.pathsep.join(str(root / part) for part in (".", "worker", "reclaimer", "operator"))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=root, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Verdict(mutant, {}, mutant.tests, f"no end within {TIMEOUT_S} s")
        if not report.exists():
            return Verdict(mutant, {}, mutant.tests, done.stdout[-300:] + done.stderr[-300:])
        return judge(mutant, report.read_text(encoding="utf-8"))


def timed(mutant: Mutant) -> Verdict:
    """`try_mutant`, and how long it took."""
    start = time.monotonic()
    return replace(try_mutant(mutant), took_s=time.monotonic() - start)


def judge(mutant: Mutant, junit: str) -> Verdict:
    """Verdict from pytest's JUnit report: for each named test the first case that failed by an assertion."""
    red: dict[str, str] = {}
    accidents: list[str] = []
    for case in ElementTree.fromstring(junit).iter("testcase"):  # noqa: S314  (our own pytest wrote it)
        names = [test for test in mutant.tests if _is_case_of(case, test)]
        for failure in (*case.iter("failure"), *case.iter("error")):
            line = (failure.get("message") or "").strip().splitlines()[0:1]
            message = line[0] if line else ""
            if failure.tag == "failure" and message.startswith(JUDGED):
                for name in names:
                    red.setdefault(name, _asserted(failure, message))
            else:
                accidents.append(message[:200])
    survived = [test for test in mutant.tests if test not in red]
    return Verdict(mutant, red, survived, accidents[0] if survived and accidents else "")


def _asserted(failure: ElementTree.Element, message: str) -> str:
    """Where the assertion stands, its source line, and what it found: `test_x.py:12: assert n == 1 → assert 2 == 1`."""
    text = failure.text or ""
    places = re.findall(r"^(?:\S*/)?(\w+\.py):(\d+): ", text, re.MULTILINE)
    sources = re.findall(r"^>\s+(.*)$", text, re.MULTILINE)
    place = f"{places[-1][0]}:{places[-1][1]}: " if places else ""
    source = f"{sources[-1].strip()} → " if sources else ""
    return f"{place}{source}{message.removeprefix('AssertionError: ')}"


def _is_case_of(case: ElementTree.Element, test: str) -> bool:
    file, *names = test.split("::")
    where = (case.get("classname") or "").split(".")
    name = (case.get("name") or "").split("[")[0]
    if Path(file).stem not in where:
        return False
    return not names or (names[-1] in (name, where[-1]))


def show(verdicts: Sequence[Verdict], console: Console) -> None:
    """Table guarantee | test | red line."""
    table = Table("mutant", "guarantee that it removes", "test", "red line", title="Mutants", expand=True)
    for verdict in verdicts:
        for number, test in enumerate(verdict.mutant.tests):
            said = verdict.red.get(test, f"SURVIVED {verdict.trouble}")
            name, guarantee = (verdict.mutant.name, verdict.mutant.guarantee) if number == 0 else ("", "")
            table.add_row(
                name, guarantee, test.rpartition("/")[2], escape(said[:160]), style="" if test in verdict.red else "bold red"
            )
    console.print(table)
    killed = sum(verdict.killed for verdict in verdicts)
    console.print(f"{killed} of {len(verdicts)} mutants noticed by every test named for them")


def markdown(verdicts: Sequence[Verdict], total: int) -> str:
    """The table of guarantees, for documents."""
    killed = sum(verdict.killed for verdict in verdicts)
    lines = [
        "# Guarantees, and what goes red without them",
        "",
        f"{killed} of {len(verdicts)} mutants tried ({total} listed) were noticed by every test named for them.",
        "",
        "| guarantee | mutant | test | red line |",
        "|---|---|---|---|",
    ]
    for verdict in verdicts:
        for test in verdict.mutant.tests:
            said = verdict.red.get(test, f"**NOT NOTICED** {verdict.trouble}")
            cells = (verdict.mutant.guarantee, verdict.mutant.name, test.rpartition("/")[2], f"`{said[:MOST_LINE]}`")
            lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


@click.command(
    help="Removes guarantees one at a time and demands that their tests fail. NAMES: mutants to try; none tries all."
)
@click.argument("names", nargs=-1)
@click.option("--jobs", default=3, show_default=True, help="Mutants tried at a time.")
@click.option(
    "--out", type=click.Path(path_type=Path), default=OUT, show_default=True, help="Markdown table, written after each mutant."
)
def main(names: tuple[str, ...], jobs: int, out: Path) -> None:
    """Command line of the module."""
    mutants = read_list()
    unknown = set(names) - {mutant.name for mutant in mutants}
    if unknown:
        raise click.BadParameter(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in mutants if not names or mutant.name in names]
    console = Console(width=None if sys.stdout.isatty() else 200)
    out.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = []
        for verdict in pool.map(timed, chosen):
            console.print(f"{'killed  ' if verdict.killed else 'SURVIVED'} {verdict.mutant.name} ({verdict.took_s:.0f} s)")
            verdicts.append(verdict)
            out.write_text(markdown(verdicts, len(mutants)), encoding="utf-8")
    show(verdicts, console)
    console.print(f"table: {out}")
    sys.exit(0 if all(verdict.killed for verdict in verdicts) else 1)


if __name__ == "__main__":
    main()
