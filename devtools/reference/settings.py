"""Every setting in one table: its field in the resource, its flag, its variable."""

from __future__ import annotations

from collections.abc import Mapping

from devtools.reference.markdown import code, head, section, table
from leasequeue.config import SETTINGS, Setting
from leasequeue_operator.settings import Settings as OperatorSettings
from leasequeue_reclaimer.settings import RUN_SETTINGS
from leasequeue_worker.settings import PROCESS_SETTINGS

COLUMNS = ("setting", "resource", "flag and variable", "unit", "default", "range", "what it is")


def rows(settings: Mapping[str, Setting]) -> list[tuple[str, ...]]:
    """Rows of a table with `COLUMNS`."""
    return [
        (
            code(s.name),
            code(f"spec.{s.cr}") if s.cr else "",
            f"`--{s.name.replace('_', '-')}` {code(s.env)}",
            s.unit,
            code(s.default),
            f"{s.low} to {s.high}",
            s.help,
        )
        for s in settings.values()
    ]


def page() -> str:
    """The page."""
    first = (
        "One definition serves the resource, the environment and the flags. A value out of range is refused with its name, what was "
        "given and what is allowed. Flags win over variables. The operator sets the variables of pods from the resource."
    )
    operator = "The operator has settings of its own, which the chart's values set:"
    return (
        head("Settings", "leasequeue/config.py and the settings.py of worker, reclaimer and operator", first)
        + section("Of a queue", table(COLUMNS, rows(SETTINGS)))
        + section("Of a worker process", table(COLUMNS, rows(PROCESS_SETTINGS)))
        + section("Of a reclaimer run", table(COLUMNS, rows(RUN_SETTINGS)))
        + section("Of the operator", f"{operator}\n\n{_operator()}")
    )


def _operator() -> str:
    return table(
        ("variable", "default", "what it is"),
        (
            (code(f"LEASEQUEUE_{name.upper()}"), code(field.default) if field.default != () else "", field.description or "")
            for name, field in OperatorSettings.model_fields.items()
        ),
    )
