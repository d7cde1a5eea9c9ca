"""The table of values in the chart's README, made from values.yaml.

A comment directly above a key documents it; a line `# ---- Title` starts a part. A key whose own keys are documented
too is left out of the table unless its comment says something of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
VALUES = ROOT / "charts/leasequeue/values.yaml"
README = ROOT / "charts/leasequeue/README.md"
BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"


@dataclass(frozen=True)
class Value:
    """One documented key: its part of the file, dotted path, comment, and default."""

    part: str
    path: str
    comment: str
    default: Any
    is_group: bool


def read_values(text: str) -> list[Value]:
    """Every key that has a comment, in the order of the file.

    Raises:
        ValueError: a key has neither a comment nor a documented parent that stands for it.
    """
    lines = text.splitlines()
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode), "values.yaml is a map"
    return list(_walk(root, lines, yaml.safe_load(text), ""))


def _walk(node: yaml.MappingNode, lines: list[str], data: dict[str, Any], prefix: str) -> Iterator[Value]:
    for key_node, value_node in node.value:
        key, line = key_node.value, key_node.start_mark.line
        path, comment = f"{prefix}{key}", _comment_above(lines, line)
        children: list[Value] = []
        if isinstance(value_node, yaml.MappingNode) and not value_node.flow_style:
            documented = [_comment_above(lines, child.start_mark.line) for child, _ in value_node.value]
            if any(documented) or not comment:
                children = list(_walk(value_node, lines, data[key], f"{path}."))
        if not comment and not children:
            raise ValueError(f"values.yaml line {line + 1}: {path} has no comment above it")
        if comment:
            yield Value(_part_of(lines, line), path, comment, data[key], bool(children))
        yield from children


def _comment_above(lines: list[str], line: int) -> str:
    """The block of comment lines that ends directly above `line` (counted from 0), as one text."""
    block: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("# ") and not lines[line - 1].startswith("# ----"):
        line -= 1
        block.insert(0, lines[line].strip().removeprefix("# "))
    return " ".join(block)


def _part_of(lines: list[str], line: int) -> str:
    titles = [text.removeprefix("# ---- ") for text in lines[:line] if text.startswith("# ---- ")]
    return titles[-1] if titles else ""


def table(values: list[Value]) -> str:
    """The values as Markdown, one table a part."""
    out: list[str] = []
    part = None
    for value in values:
        if value.part != part:
            part = value.part
            out += ["", f"### {part}", "", "| value | what it is | default |", "|---|---|---|"]
        default = "" if value.is_group else f"`{json.dumps(value.default)}`"
        out.append(f"| `{value.path}` | {_cell(value.comment)} | {_cell(default)} |")
    return "\n".join(out[1:]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def render() -> dict[Path, str]:
    """The README with a fresh table, by its path.

    Raises:
        ValueError: the README lacks the marks that the table goes between.
    """
    text = README.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{README}: wants {BEGIN} and {END} once each")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    return {README: f"{head}{BEGIN}\n\n{table(read_values(VALUES.read_text()))}\n{END}{tail}"}
