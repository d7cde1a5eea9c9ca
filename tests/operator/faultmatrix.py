"""What is written down of each fault: what the operator did, what it told, and how things stood afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parents[2] / "build" / "fault-matrix.md"
FAULTS: tuple[int | str, ...] = (403, 404, 409, 410, 422, 429, 500, 503, "hang", "lost", "cut")
MEANING = {
    "hang": "no answer within the deadline", "lost": "done, but the answer was a 500", "cut": "connection ended",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One cell of the matrix."""

    call: str
    fault: int | str
    met: int
    did: str
    told: str
    after: str


rows: list[Row] = []


def write(path: Path = FILE) -> None:
    """Write the matrix as a table, in the order in which the cells ran."""
    if not rows:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*_head(), *_lines(rows)]) + "\n")


def _head() -> list[str]:
    meaning = "; ".join(f"`{kind}`: {text}" for kind, text in MEANING.items())
    return [
        "# Fault matrix", "",
        "Each kind of call of the operator to the API server, with each fault. Made by `pytest tests/operator/test_fault_matrix.py`.",
        f"Numbers are HTTP statuses; {meaning}.", "",
        "| call | fault | times | the operator | conditions and events | afterwards |", "|---|---|---|---|---|---|",
    ]  # fmt: skip


def _lines(cells: Iterable[Row]) -> list[str]:
    return [f"| {r.call} | {r.fault} | {r.met} | {r.did} | {r.told} | {r.after} |" for r in cells]
