"""The end of a worker, as a state machine over what is observed. Pure.

SIGTERM: no new claims; what has not started goes back without counting the attempt; what runs may finish until a margin before
the grace ends. Then what still runs is asked to stop, its lease is given back as SCHEDULED for 10 s later, and the process exits at
once: by the time anybody can run it again this process is gone. A second signal skips the waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# How long cancelled handlers may clean up before their leases are given back over their heads.
STOP_S = 1.0


class Phase(StrEnum):
    """Where a worker is on its way out."""

    WORKING = "working"
    FINISHING = "finishing"
    """No claims; running items finish; completions flush."""
    STOPPING = "stopping"
    """Handlers are told to stop; those that do hand their items back themselves."""
    RELEASING = "releasing"
    """Renewal has ended; what still runs is given back for later."""
    EXIT = "exit"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is observed.

    Args:
        now: monotonic seconds.
        signals: how many times the process was told to end.
        held: leases held, in whatever stage.
        running: items in a handler.
        claiming: True while a claim may still be under way.
    """

    now: float
    signals: int
    held: int
    running: int
    claiming: bool


def margin_s(grace_s: float) -> float:
    """Time kept for giving back and flushing at the end of the grace, seconds."""
    return min(5.0, max(0.5, grace_s / 4))


def leave_s(grace_s: float) -> float:
    """Time kept for taking leave of the database after the last phase, seconds."""
    return margin_s(grace_s) / 3


@dataclass
class Drain:
    """The state machine.

    Args:
        grace_s: seconds from the first signal to SIGKILL.
    """

    grace_s: float
    phase: Phase = Phase.WORKING
    _began: float = 0.0
    _stopping_since: float = 0.0

    def step(self, facts: Facts) -> Phase:
        """The phase now; call it again and again. Never goes back."""
        if self.phase is Phase.WORKING and facts.signals:
            self._began, self.phase = facts.now, Phase.FINISHING
        if self.phase is Phase.FINISHING:
            if facts.held == 0 and not facts.claiming:
                self.phase = Phase.EXIT
            elif facts.signals > 1 or facts.now >= self._ends - margin_s(self.grace_s):
                self._stopping_since, self.phase = facts.now, Phase.STOPPING
        if self.phase is Phase.STOPPING and self._stopped(facts):
            self.phase = Phase.RELEASING
        if self.phase is Phase.RELEASING:
            done = facts.held == 0 and not facts.claiming
            if done or facts.now >= min(self._ends, self._stopping_since + margin_s(self.grace_s)) - leave_s(self.grace_s):
                self.phase = Phase.EXIT
        return self.phase

    @property
    def _ends(self) -> float:
        return self._began + self.grace_s

    def _stopped(self, facts: Facts) -> bool:
        return facts.running == 0 or facts.now - self._stopping_since >= min(STOP_S, margin_s(self.grace_s) / 3)
