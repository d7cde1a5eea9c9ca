"""Logging: structlog JSON lines on standard output, kopf's and the libraries' own lines among them."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from leasequeue.dsn import redact


def _redacted(_logger: Any, _name: str, event: Any) -> Any:
    return {k: _deep(v) for k, v in event.items()}


def _deep(value: Any) -> Any:
    """A traceback is a list of objects: its texts are passed on without passwords too."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {k: _deep(v) for k, v in value.items()}
    return [_deep(v) for v in value] if isinstance(value, list) else value


def configure(level: str) -> None:
    """Set up structlog and the standard library's logging for this process.

    Args:
        level: DEBUG, INFO, WARNING or ERROR. Below DEBUG the libraries tell warnings only.
    """
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # Never locals: a traceback with them would show a DSN.
        structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
        _redacted,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()],
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("kopf", "asyncio", "aiohttp", "kubernetes"):
        logging.getLogger(noisy).setLevel("DEBUG" if level == "DEBUG" else "WARNING")
    # Never lower: its lines about connects quote what the DSN holds.
    logging.getLogger("psycopg").setLevel("WARNING")
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level.lower()),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
