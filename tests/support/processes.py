"""Real worker and reclaimer processes for the tests: started as users start them, watched through their JSON log."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0


def wait_for(what: str, found: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """Poll `found` until it returns something true; its value. Fails with `what` after `timeout_s` seconds."""
    until = time.monotonic() + timeout_s
    while True:
        value = found()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {timeout_s} s: {what} (last seen: {value!r})")
        time.sleep(0.03)


class Process:
    """One process of ours with JSON lines on standard output.

    Args:
        module: what `python -m` runs.
        environment: variables beside the inherited ones.
        arguments: command line.
        launcher: words in front, such as faketime.
    """

    def __init__(
        self, module: str, environment: dict[str, str], arguments: list[str] | None = None, launcher: list[str] | None = None
    ) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("LEASEQUEUE_", "PG", "POD_"))}
        path = os.pathsep.join(str(p) for p in (ROOT, ROOT / "worker", ROOT / "reclaimer"))
        command = [*(launcher or []), sys.executable, "-m", module, *(arguments or [])]
        self.events: list[dict[str, Any]] = []
        self.stray: list[str] = []
        self.process = subprocess.Popen(
            command, env={**inherited, "PYTHONPATH": path, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, cwd=ROOT,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.stray.append(line.decode(errors="replace"))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def named(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Log lines of one event with these fields, so far."""
        return [e for e in list(self.events) if e.get("event") == event and all(e.get(k) == v for k, v in fields.items())]

    def wait_event(self, event: str, count: int = 1, timeout_s: float = WAIT_S, **fields: Any) -> list[dict[str, Any]]:
        """Wait for at least `count` lines of one event."""

        def found() -> list[dict[str, Any]] | None:
            lines = self.named(event, **fields)
            return lines if len(lines) >= count else None

        try:
            lines: list[dict[str, Any]] = wait_for(f"{count} × {event} {fields}", found, timeout_s)
        except AssertionError as ex:
            raise AssertionError(f"{ex}\n{self.tail()}") from None
        return lines

    def tail(self) -> str:
        """The end of what it wrote."""
        lines = [json.dumps(e) for e in self.events[-25:]] + self.stray[-25:]
        return f"exit code {self.process.poll()}; last output:\n" + "\n".join(lines)

    def terminate(self, timeout_s: float = WAIT_S) -> int:
        """SIGTERM, and wait for the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, as an out-of-memory killer would."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Exit code."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {timeout_s} s\n{self.tail()}") from None
        self._reader.join(10)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        if kind is not None:
            sys.stderr.write(self.tail() + "\n")


def worker(dsn: str, table: str, handler: str | None = None, *, launcher: list[str] | None = None, **settings: Any) -> Process:
    """A worker on `table`; `settings` become LEASEQUEUE_<NAME> (or POD_<NAME>)."""
    environment = {"LEASEQUEUE_DSN": dsn, "LEASEQUEUE_TABLE": table, "LEASEQUEUE_HTTP_PORT": "0"}
    if handler:
        environment["LEASEQUEUE_HANDLER"] = f"tests.support.handlers:{handler}" if ":" not in handler else handler
    return Process("leasequeue_worker.main", {**environment, **variables(settings)}, launcher=launcher)


def reclaimer(dsn: str, table: str, **settings: Any) -> Process:
    """A reclaimer on `table`; by default one sweep."""
    environment = {"LEASEQUEUE_DSN": dsn, "LEASEQUEUE_TABLE": table, "LEASEQUEUE_SWEEP_INTERVAL_S": "0"}
    return Process("leasequeue_reclaimer.main", {**environment, **variables(settings)})


def variables(settings: dict[str, Any]) -> dict[str, str]:
    """Environment variables of keyword settings."""

    def text(value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        return json.dumps(value) if isinstance(value, list) else str(value)

    return {(k if k.isupper() else f"LEASEQUEUE_{k.upper()}"): text(v) for k, v in settings.items()}
