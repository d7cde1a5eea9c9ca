"""The codes of `leasequeue doctor`, from its definitions."""

from __future__ import annotations

import ast
from collections import defaultdict

from devtools.reference.markdown import code, codes, head, table
from devtools.reference.source import PACKAGES
from leasequeue.doctor.finding import MEANINGS, Code


def signs() -> dict[Code, set[tuple[str, str]]]:
    """For each code the signs and severities that some judge can give."""
    found: dict[Code, set[tuple[str, str]]] = defaultdict(set)
    for path in sorted((PACKAGES["leasequeue"] / "doctor").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code":
                found.setdefault(Code[node.attr], set())
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding" and len(node.args) > 2:
                kind, severity = ast.unparse(node.args[0]), ast.unparse(node.args[2])
                if kind.startswith("Code."):
                    found[Code[kind.partition(".")[2]]].add((ast.unparse(node.args[1]).strip("'"), severity))
    return found


def page() -> str:
    """The page.

    Raises:
        ValueError: a code without a meaning.
    """
    silent = [c for c in Code if c not in MEANINGS]
    if silent:
        raise ValueError(f"leasequeue/doctor/finding.py: {silent[0]} has no entry in MEANINGS; add one")
    first = (
        "Each finding has a `code` and a `sign`, both stable. [The how-to](../howto/doctor.md) says for each sign what was seen and what "
        "to do; `leasequeue doctor` itself prints the command or SQL that mends it."
    )
    seen = signs()
    rows = ((code(c), MEANINGS[c], codes(sorted({s for s, _ in seen[c] if s.isidentifier()}))) for c in Code)
    return head("Doctor's codes", "leasequeue/doctor", first) + "\n" + table(("code", "what it says", "signs"), rows)
