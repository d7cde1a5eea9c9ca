"""What the supervisor tells the world: one small JSON file, replaced as a whole at each change."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

STARTING = "starting"
READY = "ready"
FAILED = "failed"


@dataclass
class State:
    """``phase`` is starting, ready or failed; ``milestones`` holds seconds since the start."""

    phase: str = STARTING
    message: str = ""
    milestones: dict[str, float] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)


def write(path: Path, state: State) -> None:
    """Replace the file at ``path``; a reader sees the old or the new text, never half of one."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(state), indent=1))
    temporary.replace(path)


def read(path: Path) -> State | None:
    """The last state written, or None if there is none (yet)."""
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        return State(**json.loads(path.read_text()))
    return None


@dataclass(frozen=True)
class ProcessId:
    """A process that is not confused with a later one of the same number."""

    pid: int
    started: int

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        fields = _stat(self.pid)
        return fields is not None and int(fields[19]) == self.started and fields[0] != "Z"


def identify(pid: int) -> ProcessId | None:
    """The identity of the running process ``pid``, or None if there is none."""
    fields = _stat(pid)
    return None if fields is None else ProcessId(pid, int(fields[19]))


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def children(pid: int) -> list[int]:
    """Process ids of the direct children of ``pid``."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
