"""Hook of mkdocs: fills in the navigation's entries that end in `*`.

Design notes, runbooks and reference pages come and go with the code; each such entry stands for the pages of its folder that the
navigation does not name, by their file names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Called by mkdocs once the configuration is read."""
    config["nav"] = filled(config["nav"], Path(config["docs_dir"]))
    return config


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
