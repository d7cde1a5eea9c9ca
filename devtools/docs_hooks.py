"""Hooks of mkdocs.

Design notes, runbooks and reference pages come and go with the code: a navigation entry that ends in `*` stands for the pages of its
folder that the navigation does not name, by their file names.

Pages are CommonMark, as they are read in the repository; Python-Markdown is stricter about lists and tables, so their text is adapted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Called by mkdocs once the configuration is read."""
    config["nav"] = filled(config["nav"], Path(config["docs_dir"]))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    return adapted(markdown)


def adapted(text: str) -> str:
    """CommonMark as Python-Markdown reads it.

    What belongs to numbered items is indented by four columns; a list or table that follows a paragraph gets an empty line before it.
    """
    lines: list[str] = []
    in_list, in_block, before = False, False, ""
    for line in text.split("\n"):
        if line.startswith("```") and not in_list:
            in_block = not in_block
        elif not in_block:
            if line and not line.startswith(" "):
                in_list = _NUMBERED.match(line) is not None
            if _begins(line, before):
                lines.append("")
        lines.append(f" {line}" if in_list and line.startswith("   ") else line)
        before = line
    return "\n".join(lines)


_NUMBERED = re.compile(r"\d+\. ")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def _begins(line: str, before: str) -> bool:
    """True for the first line of a list or table right after a paragraph's."""
    paragraph = bool(before) and before[0] not in " |#-*<>`" and not _ITEM.match(before)
    return paragraph and (line.startswith("|") or _ITEM.match(line) is not None)


def filled(nav: list[Any], docs: Path) -> list[Any]:
    """The navigation with its entries `folder/*` replaced by pages.

    Args:
        nav: list of paths and of maps from a title to a path or to another such list.
        docs: the folder that paths are relative to.
    """
    named = set(_paths(nav))
    return _filled(nav, docs, named)


def _filled(nav: list[Any], docs: Path, named: set[str]) -> list[Any]:
    out: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            out.append({k: _filled(v, docs, named) if isinstance(v, list) else v for k, v in entry.items()})
        elif entry.endswith("/*"):
            pages = (path.relative_to(docs).as_posix() for path in sorted((docs / entry[:-2]).glob("*.md")))
            out += [page for page in pages if page not in named]
        else:
            out.append(entry)
    return out


def _paths(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else (entry,):
            if isinstance(value, list):
                yield from _paths(value)
            else:
                yield value
