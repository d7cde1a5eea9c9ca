"""What commands print: tables for people, JSON for programs, both with every digit."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from leasequeue import jsonio


def print_json(value: Any) -> None:
    """One JSON document: indented for a terminal, one line for a program."""
    click.echo(jsonio.dumps(value, indent=2 if sys.stdout.isatty() else None))


def cell(value: Any) -> Text:
    """A value for a table cell; None is a dash. `Text`, so that brackets in data are no markup."""
    if value is None:
        return Text("–", style="dim")
    return Text(value if isinstance(value, str) else _short(value))


def _short(value: Any) -> str:
    text = jsonio.as_text(value)
    return text if text is not None else jsonio.dumps(value)


def grid(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Grid:
    """A plain table."""
    table = Grid(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    return table


def print_grid(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; piped, it is as wide as its content."""
    console().print(grid(columns, rows))


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one a line."""
    table = Grid(box=None, show_header=False, pad_edge=False)
    for name, value in fields.items():
        table.add_row(Text(name, style="bold"), cell(value))
    console().print(table)


def console() -> Console:
    """Console on stdout."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)


def say(text: str) -> None:
    """One line for people."""
    click.echo(text)
