"""The log lines of the three processes, by the calls that write them and the catalogue that explains them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from devtools.reference.markdown import code, codes, head, section, table
from devtools.reference.source import calls, same, text_of, words
from leasequeue_operator.logevents import LOG_EVENTS as OPERATOR
from leasequeue_reclaimer.logevents import LOG_EVENTS as RECLAIMER
from leasequeue_worker.logevents import LOG_EVENTS as WORKER

LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
# Written by audit.py itself, a batch at a time; their fields are the identity and what audit.py adds.
AUDIT = "item_"
CATALOGUES = {"leasequeue_worker": WORKER, "leasequeue_reclaimer": RECLAIMER, "leasequeue_operator": OPERATOR}


@dataclass
class Line:
    """What the calls say about one event."""

    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)


def found(package: str) -> dict[str, Line]:
    """Events that a package logs by a plain name."""
    lines: dict[str, Line] = {}
    for call in calls(package):
        name = text_of(call.args[0]) if call.args else None
        if name is None or not _logs(call):
            continue
        line = lines.setdefault(name, Line())
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        told = {"exception": "error", "event": "info", "_write": "info", "": "varies"}
        line.levels.add(told.get(method, method))
        line.fields |= {keyword.arg for keyword in call.keywords if keyword.arg}
    return lines


def _logs(call: ast.Call) -> bool:
    """True for `log.info(…)`, `logs.get().info(…)`, `audit.event(…)`, and for `level(…)`, as the operator calls one of two."""
    if isinstance(call.func, ast.Name):
        return call.func.id == "level"
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = ast.unparse(call.func.value)
    if call.func.attr in LEVELS:
        return "log" in owner or owner.endswith("get()")
    return call.func.attr in ("event", "_write") and ("audit" in owner or owner == "self")


def explained(package: str) -> dict[str, Line]:
    """Every event of the package's catalogue with what its calls say.

    Raises:
        ValueError: an event that is logged and not explained, or explained and nowhere in the source.
    """
    lines, told = found(package), CATALOGUES[package]
    where = f"{package}/logevents.py"
    same(set(lines) | set(told), set(told), "log events", where)
    same(words(package, without="logevents") & set(told), set(told), "log events", where)
    return {name: lines.get(name, Line({"info"})) for name in told}


def page() -> str:
    """The page."""
    first = (
        "JSON lines on standard output, one an event: `event`, `level`, `timestamp`, the fields below, and for workers `worker_id` and "
        "`queue`. Never a payload, never a password."
    )
    audit = (
        "The audit log (`--no-audit` switches it off): one line for what happens to an item. Every line carries `item_id`, `trace_id`, "
        "`source_hash`, `idempotency_key`, `attempt`, `worker_id` and `queue`."
    )
    worker = explained("leasequeue_worker")
    items = {name: line for name, line in worker.items() if name.startswith(AUDIT) and "info" in line.levels}
    rest = {name: line for name, line in worker.items() if name not in items}
    source = "the logevents.py of worker, reclaimer and operator, and the calls that log"
    return (
        head("Log events", source, first)
        + section("Items", f"{audit}\n\n{_table(items, WORKER)}")
        + section("Worker", _table(rest, WORKER))
        + section("Reclaimer", _table(explained("leasequeue_reclaimer"), RECLAIMER))
        + section("Operator", _table(explained("leasequeue_operator"), OPERATOR))
    )


def _table(lines: dict[str, Line], told: dict[str, str]) -> str:
    columns = ("event", "level", "fields of its own", "when")
    rows = ((code(n), ", ".join(sorted(line.levels)), codes(sorted(line.fields)), told[n]) for n, line in lines.items())
    return table(columns, rows)
