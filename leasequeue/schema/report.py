"""What `verify` says about a table."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Args:
        code: stable name, for programs.
        text: one sentence, for people.
        fix: SQL or command that mends it; None where `adopt` does.
        adoptable: whether `adopt` mends it.
    """

    code: str
    text: str
    fix: str | None = None
    adoptable: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Verdict on one table.

    Args:
        table: `schema.table`.
        version: schema version that was applied to it; None where none was.
        problems: what keeps it from being a lease queue.
        warnings: what works, but costs or risks something.
        command: the command that mends what `adopt` can mend; None where there is nothing to do.
    """

    table: str
    version: int | None
    problems: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    command: str | None

    @property
    def ok(self) -> bool:
        """Whether the table is ready."""
        return not self.problems

    @property
    def missing(self) -> list[str]:
        """The problems, as texts."""
        return [problem.text for problem in self.problems]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table": self.table,
            "ok": self.ok,
            "version": self.version,
            "problems": [_finding(f) for f in self.problems],
            "warnings": [_finding(f) for f in self.warnings],
            "command": self.command,
        }


def _finding(finding: Finding) -> dict[str, Any]:
    return {"code": finding.code, "text": finding.text, "fix": finding.fix}


def adopt_command(schema: str, table: str, *, strict_lanes: bool, confirm: bool) -> str:
    """The command line that adopts a table, quoted for a shell."""
    words = ["leasequeue", "schema", "adopt", "--schema", schema, "--table", table]
    words += ["--strict-lanes"] if strict_lanes else []
    words += ["--confirm", f"{schema}.{table}"] if confirm else []
    return shlex.join(words)
