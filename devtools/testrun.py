"""Runs the tests layer by layer and ends with a table: layer, outcome, tests, seconds.

    python -m devtools.testrun [LAYER …]

A layer that runs no test has failed. All layers run, whatever fails before; the exit code is 1 if any failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
LINT: dict[str, list[str]] = {
    "ruff check": ["ruff", "check", "."],
    "ruff format": ["ruff", "format", "--check", "."],
    "mypy --strict": ["mypy"],
    "import-linter": ["lint-imports"],
}
# xdist workers: the layers that wait for PostgreSQL more than they compute run in two processes.
PYTEST: dict[str, list[str]] = {
    "unit": ["tests/unit"],
    "postgres": ["tests/postgres", "-n", "2", "--dist", "loadgroup"],
    "operator": ["tests/operator"],
    "chart": ["tests/chart"],
    "cluster": ["tests/cluster"],
}
LAYERS = ("lint", *PYTEST)


@dataclass(frozen=True)
class Outcome:
    """What one layer did. `tests` counts checks in the layer lint."""

    layer: str
    passed: int
    failed: int
    skipped: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Something ran and nothing failed."""
        return self.failed == 0 and self.passed > 0


def run_lint() -> Outcome:
    """Run every check, all of them even when one fails."""
    start = time.monotonic()
    failed = 0
    for name, command in LINT.items():
        print(f"--- {name}", flush=True)
        failed += subprocess.run(command, cwd=ROOT, check=False).returncode != 0
    return Outcome("lint", len(LINT) - failed, failed, 0, time.monotonic() - start)


def run_pytest(layer: str) -> Outcome:
    """Run one layer's tests in a pytest process of its own."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--durations=5", f"--junitxml={report}", *PYTEST[layer]]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        passed, failed, skipped = counts(report.read_text()) if report.exists() else (0, 0, 0)
    if code != 0 and failed == 0:
        failed = 1  # pytest itself failed: a crash, a collection error, no test found
    return Outcome(layer, passed, failed, skipped, time.monotonic() - start)


def counts(report: str) -> tuple[int, int, int]:
    """Passed, failed (errors included) and skipped tests of a JUnit report."""
    suites = list(ET.fromstring(report).iter("testsuite"))  # noqa: S314  (written by our own pytest)
    total, failures, errors, skipped = (
        sum(int(suite.get(key, "0")) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    return total - failures - errors - skipped, failures + errors, skipped


def table_of(outcomes: list[Outcome]) -> Table:
    """The closing table."""
    table = Table(title="tests by layer")
    for name in ("layer", "outcome", "passed", "failed", "skipped", "seconds"):
        table.add_column(name, justify="left" if name in ("layer", "outcome") else "right")
    for o in outcomes:
        outcome = "ok" if o.ok else "FAILED"
        table.add_row(o.layer, outcome, str(o.passed), str(o.failed), str(o.skipped), f"{o.seconds:.0f}")
    return table


def main(names: list[str]) -> int:
    """Run the named layers, or all."""
    unknown = [n for n in names if n not in LAYERS]
    if unknown:
        print(f"unknown layer {unknown[0]!r}; layers are: {', '.join(LAYERS)}", file=sys.stderr)
        return 2
    outcomes = []
    for layer in names or LAYERS:
        print(f"=== {layer}", flush=True)
        outcomes.append(run_lint() if layer == "lint" else run_pytest(layer))
    width = int(os.environ.get("COLUMNS", "100")) if re.fullmatch(r"\d+", os.environ.get("COLUMNS", "100")) else 100
    Console(width=width).print(table_of(outcomes))
    print(f"{sum(o.passed for o in outcomes)} passed, {sum(o.failed for o in outcomes)} failed, "
          f"{sum(o.skipped for o in outcomes)} skipped")  # fmt: skip
    return 0 if all(o.ok for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
