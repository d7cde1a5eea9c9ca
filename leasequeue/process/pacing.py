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


def wakeup_s(max_replicas: int, interval_s: float, rng: random.Random) -> float:
    """Wait between a notification and the claim it causes, seconds.

    Every worker hears every notification; spread over 2 ms a replica, the first ones empty a short queue before the rest ask.
    """
    return rng.uniform(0.0, min(interval_s / 2, 0.002 * max(0, max_replicas - 1)))
