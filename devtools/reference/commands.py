"""The four programs with every option, from their click definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click
from pydantic_core import PydanticUndefined

from devtools.reference.markdown import code, head, section, table
from leasequeue.cli.app import cli
from leasequeue.config import SETTINGS, Setting
from leasequeue_operator.main import main as operator
from leasequeue_operator.settings import Settings as OperatorSettings
from leasequeue_reclaimer.main import main as reclaimer
from leasequeue_reclaimer.settings import RUN_SETTINGS
from leasequeue_worker.main import main as worker
from leasequeue_worker.settings import PROCESS_SETTINGS

PROGRAMS: dict[str, click.Command] = {
    "leasequeue": cli,
    "leasequeue-worker": worker,
    "leasequeue-reclaimer": reclaimer,
    "leasequeue-operator": operator,
}
NUMBERS: dict[str, Setting] = {**SETTINGS, **PROCESS_SETTINGS, **RUN_SETTINGS}
COLUMNS = ("option", "what it is", "unit, range", "default", "variable")
# What `--help` adds in brackets: unit, range, default, variable. Here they have columns of their own.
_BRACKET = re.compile(r"\s*\[([^\[\]]*)\]$")
_VARIABLE = re.compile(r"\b(LEASEQUEUE_[A-Z_]+|POD_[A-Z]+)\b")
_DEFAULT = re.compile(r"default:? ([^;\]]+)")


def page() -> str:
    """The page."""
    first = (
        "An option wins over its variable. `leasequeue COMMAND --help` says the same as this page. Exit codes: "
        "[here](exit-codes.md)."
    )
    parts = [
        section(code(name), _command(command)) + _below(name, command, shared(command)) for name, command in PROGRAMS.items()
    ]
    return head("Command line", "the programs' own definitions", first) + "".join(parts)


def shared(command: click.Command) -> dict[str, click.Option]:
    """Options that every command below has, by name."""
    leaves = [one for _, one in _walk("", command) if not isinstance(one, click.Group)]
    if not isinstance(command, click.Group):
        return {}
    options = [{str(p.name): p for p in leaf.params if isinstance(p, click.Option)} for leaf in leaves]
    return {name: p for name, p in options[0].items() if all(name in other for other in options)}


def _walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    for name, one in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _walk(f"{path} {name}", one)


def _below(path: str, command: click.Command, common: dict[str, click.Option]) -> str:
    if not isinstance(command, click.Group):
        return ""
    parts = []
    if path == "leasequeue":
        rows = [row for row in map(option, common.values()) if row]
        parts.append(f"\nEvery command takes:\n\n{table(COLUMNS, rows)}")
    for name, below in command.commands.items():
        where = f"{path} {name}"
        parts.append(section(code(where), _command(below, frozenset(common)), level=3) + _below(where, below, common))
    return "".join(parts)


def _command(command: click.Command, common: frozenset[str] = frozenset()) -> str:
    if not command.help:
        raise ValueError(f"command {command.name} has no help text; add a docstring")
    paragraphs = [" ".join(part.split()) for part in command.help.split("\n\n")]
    text = "\n\n".join(_escaped(part) for part in paragraphs)
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    if arguments:
        text += f"\n\nArgument: {', '.join(code(str(a.name).upper()) for a in arguments)}."
    own = [p for p in command.params if isinstance(p, click.Option) and p.name not in common]
    found = [row for row in map(option, own) if row]
    return f"{text}\n\n{table(COLUMNS, found)}" if found else text


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def option(parameter: click.Option) -> tuple[str, ...] | None:
    """A row for one option; None for --version.

    Raises:
        ValueError: it has no help text.
    """
    name = str(parameter.name)
    if name == "version":
        return None
    if not parameter.help:
        raise ValueError(f"option {parameter.opts[0]} has no help text; add one")
    field = OperatorSettings.model_fields.get(name)
    if field is not None and field.description and parameter.help.startswith(field.description):
        return (
            _flag(parameter),
            field.description,
            _pydantic_range(parameter.help),
            shown(field.default),
            code(_env(parameter)),
        )
    about, bracket = _split(parameter.help)
    setting = NUMBERS.get(name)
    if setting is not None and setting.help == about:
        limits = f"{setting.unit}, {setting.low} to {setting.high}"
        return _flag(parameter), about, limits, code(setting.default), code(setting.env)
    repeat = " May be repeated." if parameter.multiple and "repeat" not in about else ""
    return _flag(parameter), about + repeat, _limits(parameter), _default(parameter, bracket), code(_env(parameter))


def _flag(parameter: click.Option) -> str:
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    unit = f" {parameter.metavar}" if parameter.metavar and not parameter.is_flag else ""
    return code(names + unit) + (" **required**" if parameter.required else "")


def _split(text: str) -> tuple[str, str]:
    """A help text without the bracket at its end, and what stood in it."""
    found = _BRACKET.search(text)
    return (text[: found.start()], found[1]) if found else (text, "")


def _env(parameter: click.Option) -> str:
    if isinstance(parameter.envvar, str):
        return parameter.envvar
    named = _VARIABLE.findall(_split(parameter.help or "")[1])
    return named[0] if named else ""


def _limits(parameter: click.Option) -> str:
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return ", ".join(code(choice) for choice in kind.choices)
    unit = {"SECONDS": "seconds"}.get(parameter.metavar or "", "")
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        low = "" if kind.min is None else f"{kind.min:,g}"
        span = f"{low} to {kind.max:,g}" if kind.max is not None else f"at least {low}"
        return ", ".join(part for part in (unit, span) if part)
    return unit


def _pydantic_range(text: str) -> str:
    return "; ".join(" ".join(part) for part in re.findall(r"(One of|Range:) ([^.]*(?:\.\d+)?[^.]*)\.", text)).replace(
        "Range: ", ""
    )


def _default(parameter: click.Option, bracket: str) -> str:
    value: Any = parameter.to_info_dict().get("default")
    if parameter.is_flag and not parameter.secondary_opts:
        return "off"
    if isinstance(value, bool):
        return code("yes" if value else "no")
    if value not in (None, (), []) and "Sentinel" not in str(value):
        return code(value)
    told = _DEFAULT.search(bracket)
    return told[1] if told else ""


def shown(value: object) -> str:
    """A default as inline code; nothing where there is none, or where the description tells it."""
    return "" if value in ((), None, PydanticUndefined) else code(value)
