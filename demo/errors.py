"""What ends the demo early."""

from __future__ import annotations


class DemoError(Exception):
    """A step failed or took too long; the message says which, what was seen, and the way out."""
