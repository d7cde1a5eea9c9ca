"""The job of the live runs: it sleeps as long as its item says. Mounted into worker pods from a ConfigMap.

Each execution leaves a row, written apart from the item: one that was cut off has no end, whoever gave the item back.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from leasequeue.dsn import DsnSource, connect

BEGIN = "INSERT INTO execution (item, pod) VALUES (%s, %s) RETURNING id"
END = "UPDATE execution SET ended_at = clock_timestamp() WHERE id = %s"

_lock = threading.Lock()
_open: list[Any] = []


def _write(statement: str, *values: Any) -> Any:
    """One statement on the process's own connection; what it returned."""
    with _lock:
        if not _open:
            _open.append(connect(DsnSource(path=Path(os.environ["LEASEQUEUE_DSN_FILE"])), application_name="live-job"))
        cursor = _open[0].execute(statement, values)
        return cursor.fetchone() if cursor.description else None


def handle(item: Any, ctx: Any) -> None:
    """Sleep, and say so before and after, to the database and to the log."""
    execution = _write(BEGIN, str(item.id), os.environ.get("POD_NAME", ""))[0]
    ctx.log.info("job_began", seconds=item["seconds"])
    time.sleep(item["seconds"])
    _write(END, execution)
    ctx.log.info("job_ended")
