"""The job of the live runs: it sleeps as long as its item says. Mounted into worker pods from a ConfigMap."""

from __future__ import annotations

import time
from typing import Any


def handle(item: Any, ctx: Any) -> None:
    """Sleep, and say so before and after: an execution that was cut off has no second line."""
    ctx.log.info("job_began", seconds=item["seconds"])
    time.sleep(item["seconds"])
    ctx.log.info("job_ended")
