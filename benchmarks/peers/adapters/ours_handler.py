"""The no-op handler that `leasequeue-worker` imports in a benchmark: it counts its calls and speaks the harness's protocol.

Importing it says READY and waits for GO: so loading is not timed, and connecting, registering and everything later is.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from _proto import Worker

WORKER = Worker(os.fdopen(int(os.environ["LQBENCH_CONTROL"]), "w"))
LOG = Path(os.environ["LQBENCH_LOG"])

LINES_S = 5.0


def handle(item: Any, _ctx: Any) -> None:
    """Count one item."""
    WORKER.job(int(item["variance_amount"]), float(item["source_hash"]) if item["match_decision"] == "LAT" else None)


def _end() -> None:
    """Give account, audit lines among it, then end the worker as Kubernetes would."""
    wanted = WORKER.n if os.environ["LQBENCH_AUDIT"] else 0
    until = time.monotonic() + LINES_S  # the database may say "resolved" a moment before the worker writes it down
    while _lines("item_resolved") < wanted and time.monotonic() < until:
        time.sleep(0.01)
    checks = {f"{event} lines": (_lines(event), wanted) for event in ("item_leased", "item_resolved")}
    LOG.unlink()
    WORKER.account(checks=checks)
    os.kill(os.getpid(), signal.SIGTERM)


def _lines(event: str) -> int:
    start = f'{{"event": "{event}"'.encode()
    with LOG.open("rb") as log:
        return sum(line.startswith(start) for line in log)


WORKER.on_stop = _end
WORKER.ready_and_wait()
