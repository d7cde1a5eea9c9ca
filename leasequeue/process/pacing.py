"""Waits: back-off with full jitter, and the jitter of polls and wake-ups. Pure, apart from the random draw."""

from __future__ import annotations

import random


class Backoff:
    """Exponential back-off with full jitter, reset by success.

    Args:
        base_s: longest first wait, seconds.
        cap_s: longest wait, seconds.
        rng: source of randomness, for tests.
    """

    def __init__(self, base_s: float = 0.2, cap_s: float = 10.0, rng: random.Random | None = None) -> None:
        self._base_s, self._cap_s, self._rng = base_s, cap_s, rng or random.Random()
        self.failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure; at least a tenth of the step, so that nothing spins."""
        step = min(self._cap_s, self._base_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return self._rng.uniform(step / 10, step)

    def reset(self) -> None:
        """Something worked."""
        self.failures = 0


def poll_s(interval_s: float, rng: random.Random) -> float:
    """Wait of an idle worker, seconds: the interval ± 50 %, so that workers started together drift apart."""
    return interval_s * rng.uniform(0.5, 1.5)


class Eagerness:
    """How long to wait between a notification and the claim that it causes.

    Every worker hears every notification. Whose last such claim found something claims at once; whose found nothing, since others were
    faster, lets them go first: spread over 2 ms a replica, the first ones empty a short queue before the rest ask. So few items at a time
    go to the same few workers without delay, and the others take over within milliseconds when those are busy.

    Args:
        max_replicas: most workers that may hear a notification.
        interval_s: between polls; no wait is longer than half of it.
        rng: source of randomness.
    """

    def __init__(self, max_replicas: int, interval_s: float, rng: random.Random) -> None:
        self._longest_s, self._rng = min(interval_s / 2, 0.002 * max(0, max_replicas - 1)), rng
        self._eager, self._asked = True, False

    def wait_s(self) -> float:
        """A notification came: seconds until the claim."""
        self._asked = True
        return 0.0 if self._eager else self._rng.uniform(0.0, self._longest_s)

    def claimed(self, items: int) -> None:
        """A claim found so many items. Counts once for a notification."""
        if self._asked:
            self._asked, self._eager = False, items > 0
