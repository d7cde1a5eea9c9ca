"""The named statements: one file each, read once, headed by a comment that says what the statement guarantees."""

from __future__ import annotations

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
