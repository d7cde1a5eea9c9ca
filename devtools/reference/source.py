"""What a page needs to know from the program text itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "leasequeue": ROOT / "leasequeue",
    "leasequeue_worker": ROOT / "worker/leasequeue_worker",
    "leasequeue_reclaimer": ROOT / "reclaimer/leasequeue_reclaimer",
    "leasequeue_operator": ROOT / "operator/leasequeue_operator",
}


@cache
def trees(package: str) -> tuple[tuple[Path, ast.Module], ...]:
    """Every module of a package, parsed."""
    return tuple((path, ast.parse(path.read_text())) for path in sorted(PACKAGES[package].rglob("*.py")))


def calls(package: str) -> Iterator[ast.Call]:
    """Every call in a package."""
    for _, tree in trees(package):
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def words(package: str, *, without: str) -> set[str]:
    """Every string constant of a package, but for the module of that name."""
    return {
        node.value
        for path, tree in trees(package)
        if path.stem != without
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def text_of(node: ast.expr | None) -> str | None:
    """The value of a string constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def module_texts(tree: ast.Module) -> dict[str, str]:
    """A module's own constants that are strings, by their names."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            text = text_of(node.value)
            if text is not None:
                found[node.targets[0].id] = text
    return found


def same(found: set[str], told: set[str], what: str, where: str) -> None:
    """Refuse a catalogue that differs from what the source has.

    Raises:
        ValueError: names both sides' surplus, and where to write it.
    """
    if found - told:
        raise ValueError(f"{where}: {what} without an explanation: {', '.join(sorted(found - told))}; add it there")
    if told - found:
        raise ValueError(
            f"{where}: explains {what} that the source does not have: {', '.join(sorted(told - found))}; remove it"
        )
