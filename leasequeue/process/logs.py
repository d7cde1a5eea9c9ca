"""Logging: structlog JSON lines on standard output, one writer for ordinary lines and for the audit log."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import MutableMapping
from typing import Any

import structlog

from leasequeue.dsn import redact
from leasequeue.jsonio import printable


class Sink:
    """Writes whole lines to a file descriptor. A reader that went away costs lines, never the worker.

    Args:
        fd: descriptor to write to; standard output by default.
    """

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def write(self, lines: bytes) -> None:
        """Write complete lines; those of two threads never mix."""
        with self._lock, contextlib.suppress(OSError):
            view = memoryview(lines)
            while view:
                view = view[os.write(self._fd, view) :]

    def msg(self, line: str) -> None:
        """structlog's end of a processor chain."""
        self.write(line.encode(errors="backslashreplace") + b"\n")

    debug = info = warning = error = critical = exception = log = msg


SINK = Sink()


def _safe(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Numbers that JSON readers would round become strings; a DSN that slipped in loses its password."""
    return {k: redact(v) if isinstance(v, str) else printable(v) for k, v in event.items()}


class _Forward(logging.Handler):
    """Lines of libraries and of handlers that use `logging`, in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name, "message": record.getMessage()}
        if record.exc_info and record.exc_info[0] is not None:
            fields["error_type"] = record.exc_info[0].__name__
        structlog.get_logger().log(record.levelno, "log", **fields)


def configure(level: str = "INFO", **bound: Any) -> None:
    """Set up structlog for this process.

    Args:
        level: DEBUG, INFO, WARNING or ERROR.
        bound: fields of every line, such as worker_id and queue.
    """

    def bind(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {**bound, **event}

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            bind,
            _safe,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level.lower()),
        logger_factory=lambda *_: SINK,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_Forward()], level=logging.WARNING)
    # psycopg warns when a pipeline ends after an error that the caller gets anyway.
    logging.getLogger("psycopg").setLevel(logging.ERROR)


def get() -> Any:
    """The process's logger."""
    return structlog.get_logger()


def flush() -> None:
    """Push out what Python still buffers (prints of handlers) before a hard exit."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
