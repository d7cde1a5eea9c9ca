"""What a drill is: steps that break something until alerts are told, and one that mends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from devtools.alertrun.receiver import Identity, Inbox

Action = Callable[[], object]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done.

    Args:
        what: in words.
        do: does it.
        alerts: that must be told as firing before the next step.
    """

    what: str
    do: Action
    alerts: tuple[str, ...]


@dataclass(slots=True)
class Drill:
    """Steps one after another, then the mending.

    Args:
        queue: its LeaseQueue; "" for an alert that names none.
        steps: in order.
        mended: the mending in words.
        mend: does it.
        seconds: bound on the whole drill.
    """

    queue: str
    steps: Sequence[Step]
    mended: str
    mend: Action
    seconds: float = 240.0
    _at: int = field(default=-1, init=False)
    _began: float = field(default=0.0, init=False)

    @property
    def alerts(self) -> list[Identity]:
        """All alerts that it is about."""
        return [(alert, self.queue) for step in self.steps for alert in step.alerts]

    @property
    def waits_for(self) -> str:
        """For messages: what has not come yet."""
        if self._at < len(self.steps):
            return f"{', '.join(self.steps[self._at].alerts)} of {self.queue or 'the operator'} to fire"
        return f"alerts of {self.queue or 'the operator'} to resolve"

    def turn(self, inbox: Inbox, say: Say) -> bool:
        """Go on as far as the inbox allows; True when all has fired and resolved.

        Raises:
            AssertionError: the time is over.
        """
        if self._at < 0:
            self._began = time.monotonic()
            self._next(say)
        while self._at < len(self.steps) and all(inbox.fired((a, self.queue)) for a in self.steps[self._at].alerts):
            self._next(say)
        if self._at == len(self.steps) and all(inbox.resolved(identity) for identity in self.alerts):
            return True
        if time.monotonic() - self._began > self.seconds:
            raise AssertionError(f"not within {self.seconds:.0f} s: {self.waits_for}")
        return False

    def _next(self, say: Say) -> None:
        self._at += 1
        what, do = (
            (self.mended, self.mend) if self._at == len(self.steps) else (self.steps[self._at].what, self.steps[self._at].do)
        )
        say(f"{self.queue or 'operator'}: {what}")
        do()


def play(drills: Sequence[Drill], inbox: Inbox, say: Say) -> list[str]:
    """Run drills side by side to their ends; returns what went wrong."""
    problems: list[str] = []
    left = list(drills)
    while left:
        for drill in list(left):
            try:
                done = drill.turn(inbox, say)
            except Exception as ex:  # noqa: BLE001  (one drill that fails must not hide the others' outcome)
                problems.append(f"{drill.queue or 'operator'}: {type(ex).__name__}: {ex}")
                say(problems[-1])
                done = True
            if done:
                left.remove(drill)
        time.sleep(0.5)
    return problems
