"""What the programs exit with, and what the exit codes and answers of exec and http handlers mean."""

from __future__ import annotations

from collections.abc import Mapping

from devtools.reference.markdown import code, head, section, table
from leasequeue.cli.failures import EXIT_CODES as CLI
from leasequeue_operator.exitcodes import EXIT_CODES as OPERATOR
from leasequeue_reclaimer.run import EXIT_CODES as RECLAIMER
from leasequeue_worker.exec_handler import EXIT_CODES as EXEC
from leasequeue_worker.http_handler import ANSWERS as HTTP
from leasequeue_worker.supervisor import EXIT_CODES as WORKER


def page() -> str:
    """The page."""
    first = (
        'An error is one line on standard error; with `--json` one object `{"error": {"kind", "message", "exit_code"}}` there.'
    )
    programs: tuple[tuple[str, Mapping[int, str]], ...] = (
        ("leasequeue", CLI), ("leasequeue-worker", WORKER), ("leasequeue-reclaimer", RECLAIMER), ("leasequeue-operator", OPERATOR),
    )  # fmt: skip
    return (
        head("Exit codes", "the programs' own definitions", first)
        + "".join(section(code(name), _table("exit code", told)) for name, told in programs)
        + section("Exec handlers", f"What a handler's command says by its exit code:\n\n{_table('exit code', EXEC)}")
        + section("HTTP handlers", f"What a service says by its status:\n\n{_table('status', HTTP)}")
    )


def _table(column: str, told: Mapping[int, str] | Mapping[str, str]) -> str:
    return table((column, "meaning"), ((code(number), text) for number, text in told.items()))
