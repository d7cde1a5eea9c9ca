"""Where benchmarks keep what they install and measure: outside the checkout."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    """Directory below the project's cache (`LEASEQUEUE_CACHE`, by default ~/.cache/leasequeue), made where it is missing."""
    given, shared = os.environ.get("LEASEQUEUE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    root = Path(given) if given else Path(shared or Path.home() / ".cache") / "leasequeue"
    found = root.joinpath(*parts)
    found.mkdir(parents=True, exist_ok=True)
    return found
