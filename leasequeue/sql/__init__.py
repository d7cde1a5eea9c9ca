"""The named statements: one file each, read once, headed by a comment that says what the statement guarantees."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files


@cache
def text(name: str) -> str:
    """Return the statement in `<name>.sql` without its leading comment lines.

    Args:
        name: file name without suffix.

    Raises:
        FileNotFoundError: there is no such statement.
    """
    lines = files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8").splitlines()
    body = [line for line in lines if not line.lstrip().startswith("--")]
    return "\n".join(body).strip().rstrip(";")


_CHANGE = re.compile(r"(?:UPDATE|DELETE FROM) \{table\} AS t\n(?:   SET .*?\n(?=  FROM| WHERE))?(  FROM )?", re.DOTALL)


@cache
def looking(name: str) -> str:
    """The rows that the statement `name` would change now, as a SELECT of id, priority and created_at in claim order."""
    body, _, _ = text(name).rpartition("\nRETURNING")

    def look(found: re.Match[str]) -> str:
        return f"SELECT t.id, t.priority, t.created_at FROM {{table}} AS t{', ' if found[1] else chr(10)}"

    return _CHANGE.sub(look, body, count=1) + "\n ORDER BY -t.priority, t.created_at, t.id"


@cache
def only(name: str) -> str:
    """The statement `name`, changing none but the rows `%(only)s` of those that it finds."""
    body, found, tail = text(name).rpartition("\nRETURNING")
    return f"{body}\n   AND t.id = ANY (%(only)s::{{id_type}}[]){found}{tail}"
