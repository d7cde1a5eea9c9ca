"""Every setting in one table: its field in the resource, its flag, its variable."""

from __future__ import annotations

from collections.abc import Mapping

import click

from devtools.reference.commands import option, shown
from devtools.reference.markdown import code, head, section, table
from leasequeue.config import SETTINGS, Setting
from leasequeue_operator.settings import Settings as OperatorSettings
from leasequeue_reclaimer.settings import RUN_SETTINGS
from leasequeue_worker.main import main as worker
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
        + section("Of a queue", f"{table(COLUMNS, rows(SETTINGS))}\n{_choices()}")
        + section("Of a worker process", table(COLUMNS, rows(PROCESS_SETTINGS)))
        + section("Of a reclaimer run", table(COLUMNS, rows(RUN_SETTINGS)))
        + section("Of the operator", f"{operator}\n\n{_operator()}")
    )


# Settings of a queue that are no numbers, by their fields in the resource.
CHOICES = {
    "max_inflight_policy": "lease.maxInflightPolicy",
    "strict_lanes": "lease.lanes.strict",
    "on_blocked_head": "lease.lanes.onBlockedHead",
}


def _choices() -> str:
    parameters = {str(p.name): p for p in worker.params if isinstance(p, click.Option)}
    found = []
    for name, path in CHOICES.items():
        flag, about, allowed, default, variable = option(parameters[name]) or ("",) * 5
        found.append((code(name), code(f"spec.{path}"), f"{flag} {variable}", allowed or "yes, no", default, about))
    return table(("setting", "resource", "flag and variable", "values", "default", "what it is"), found)


def _operator() -> str:
    return table(
        ("variable", "default", "what it is"),
        (
            (code(f"LEASEQUEUE_{name.upper()}"), shown(field.default), field.description or "")
            for name, field in OperatorSettings.model_fields.items()
        ),
    )
