"""What a handler may say about an item, and how long a failed one waits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Verdict(Exception):
    """Base of all verdicts: a handler returns one, or raises it from any depth."""


@dataclass(eq=False)
class Resolve(Verdict):
    """Done. Args: result: any JSON value; columns: the user's own columns to set in the same statement."""

    result: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Retry(Verdict):
    """Try again. Args: after_s: seconds from now, ≥ 0; None means exponential back-off; error: why, for last_error."""

    after_s: float | None = None
    error: str = ""


@dataclass(eq=False)
class Fail(Verdict):
    """Terminal failure. Args: error: why."""

    error: str


@dataclass(eq=False)
class Repair(Verdict):
    """A person must look. Args: error: why."""

    error: str


@dataclass(eq=False)
class Release(Verdict):
    """Give the item back without counting the attempt. Args: after_s: seconds from now, ≥ 0."""

    after_s: float = 0.0


def backoff_s(attempt: int, *, base_s: float = 1.0, cap_s: float = 3600.0, rng: random.Random | None = None) -> float:
    """Seconds to wait before the next attempt: exponential with full jitter, never under a tenth of the step.

    Full jitter (a uniform draw up to the step) spreads retries of items that failed together better than a jitter around the
    step: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.

    Args:
        attempt: number of the attempt that failed, ≥ 1.
        base_s: step after the first attempt, seconds, > 0.
        cap_s: longest step, seconds.
        rng: source of randomness, for tests.
    """
    step = min(cap_s, base_s * 2.0 ** min(max(attempt - 1, 0), 60))
    return (rng or random).uniform(step / 10, step)
