"""Markdown that is the same each time: headings, tables, code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def head(title: str, source: str, *paragraphs: str) -> str:
    """Beginning of a page: its title, where it comes from, and what there is to say first."""
    note = f"<!-- Made from {source} by `python -m devtools.sync`: edit that. -->"
    return "\n\n".join((f"# {title}", note, *paragraphs)) + "\n"


def section(title: str, body: str, *, level: int = 2) -> str:
    """A heading with what belongs to it."""
    return f"\n{'#' * level} {title}\n\n{body.strip()}\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; line breaks and bars in cells are taken care of."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(cell(text) for text in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """Text that fits into a cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;") if "`" not in text else _with_code(text)


def _with_code(text: str) -> str:
    """As `cell`, with what stands between backticks left as it is but for bars."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))


def code(text: object) -> str:
    """Inline code; nothing stays nothing."""
    return f"`{text}`" if str(text) else ""


def codes(texts: Iterable[object]) -> str:
    """Several pieces of inline code."""
    return ", ".join(code(text) for text in texts)
