"""The load of the queue that the pictures show: waves of items, some of which fail, a worker killed and one frozen."""

from __future__ import annotations

import math
import random
import signal
import threading
import time
from collections.abc import Callable

from devtools.alertrun.world import LOAD, World, signal_container

PERIOD_S = 100.0
LEAST_PER_S, WAVE_PER_S = 2.0, 6.0
BURST = 120
BURST_AT_S = 20.0
LANES = ("books", "music", "films")
# Longer than the lease, the reclaimer's patience and the pause between two of its runs together.
FROZEN_S = 45.0
# The second wave has begun then, so that no scale-down ends the frozen one.
KILL_AT_S, FREEZE_AT_S = 40.0, 105.0


class Load:
    """Enqueues until stopped, in a thread of its own. Use as a context manager.

    Args:
        world: to act on.
        say: told what is done to workers.
    """

    def __init__(self, world: World, say: Callable[[str], None]) -> None:
        self._world, self._say = world, say
        self._rng = random.Random(7)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._go, name="load", daemon=True)
        self._frozen = ""
        self.problem: Exception | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _go(self) -> None:
        try:
            self._waves()
        except Exception as ex:  # noqa: BLE001  (told by the run, which must end its drills first)
            self.problem = ex

    def _waves(self) -> None:
        began = time.monotonic()
        due = [
            (BURST_AT_S, self._burst), (KILL_AT_S, self._kill), (FREEZE_AT_S, self._freeze), (FREEZE_AT_S + FROZEN_S, self._thaw),
        ]  # fmt: skip
        owed = 0.0
        while not self._stopping.wait(1.0):
            passed = time.monotonic() - began
            owed += LEAST_PER_S + WAVE_PER_S * max(0.0, math.sin(2 * math.pi * passed / PERIOD_S))
            self._enqueue(int(owed))
            owed %= 1
            while due and passed >= due[0][0]:
                due.pop(0)[1]()

    def _enqueue(self, count: int) -> None:
        self._world.enqueue_tasks(LOAD, [self._task() for _ in range(count)])

    def _burst(self) -> None:
        self._say(f"{LOAD}: {BURST} items at once")
        self._enqueue(BURST)

    def _task(self) -> tuple[str, str | None]:
        dice = self._rng.random()
        # One in twenty lives by renewal.
        seconds = "8" if self._rng.random() < 0.05 else f"{self._rng.lognormvariate(-0.9, 0.6):.2f}"
        task = "fail" if dice < 0.02 else f"retry {seconds}" if dice < 0.08 else f"work {seconds}"
        return task, self._rng.choice(LANES) if self._rng.random() < 0.2 else None

    def _kill(self) -> None:
        pod, container = self._world.busiest_worker(LOAD)
        signal_container(container, signal.SIGKILL)
        self._say(f"{LOAD}: worker {pod} is killed")

    def _freeze(self) -> None:
        pod, self._frozen = self._world.busiest_worker(LOAD)
        signal_container(self._frozen, signal.SIGSTOP)
        self._say(f"{LOAD}: worker {pod} is frozen for {FROZEN_S:.0f} s")

    def _thaw(self) -> None:
        signal_container(self._frozen, signal.SIGCONT)
