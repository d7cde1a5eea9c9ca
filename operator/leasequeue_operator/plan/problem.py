"""What is wrong outside of the operator, in the words of a condition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault that a condition tells about.

    Args:
        reason: one word, for programs.
        message: names the object or field and the way out; never a password.
    """

    reason: str
    message: str
