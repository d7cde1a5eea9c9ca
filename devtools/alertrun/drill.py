"""What a drill is: steps that break something until alerts are told, and one that mends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from devtools.alertrun.receiver import Identity, Inbox

Action = Callable[[], object]
Say = Callable[[str], None]
LOOK_S = 0.5


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


@dataclass(frozen=True, slots=True)
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
    seconds: float = 300.0

    @property
    def alerts(self) -> list[Identity]:
        """All alerts that it is about."""
        return [(alert, self.queue) for step in self.steps for alert in step.alerts]

    def run(self, inbox: Inbox, say: Say) -> None:
        """Break, wait to be told, and so on; then mend and wait for the ends.

        Raises:
            AssertionError: the time is over; says what did not come.
        """
        deadline = time.monotonic() + self.seconds
        name = self.queue or "operator"
        for step in self.steps:
            say(f"{name}: {step.what}")
            step.do()
            for alert in step.alerts:
                _wait(deadline, f"{alert} to fire", partial(inbox.fired, (alert, self.queue)))
        say(f"{name}: {self.mended}")
        self.mend()
        for alert, _ in self.alerts:
            _wait(deadline, f"{alert} to resolve", partial(inbox.resolved, (alert, self.queue)))


def _wait(deadline: float, what: str, holds: Callable[[], bool]) -> None:
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited too long for {what}")
        time.sleep(LOOK_S)


def play(drills: Sequence[Drill], inbox: Inbox, say: Say, pool: ThreadPoolExecutor) -> list[str]:
    """Run drills side by side to their ends; returns what went wrong.

    Args:
        drills: any number.
        inbox: what the webhook was told.
        say: told each step.
        pool: of at least as many threads. It must outlive what drills start: a PostgreSQL server ends with the thread that started it.
    """
    runs = {drill.queue or "operator": pool.submit(drill.run, inbox, say) for drill in drills}
    wait(runs.values())
    return [f"{name}: {type(error).__name__}: {error}" for name, run in runs.items() if (error := run.exception()) is not None]
