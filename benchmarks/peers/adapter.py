"""Talking to adapters: one call, or worker processes that report how far they are. The protocol is in README.md."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.readings import cpu_s, resident_bytes

READY_S = 60.0
STOP_S = 30.0


class Failed(RuntimeError):
    """A contender did not do what was measured, or not in time."""


def call(command: list[str], action: str, options: dict[str, Any], dsn: str, timeout_s: float = 180.0) -> dict[str, Any]:
    """Run one action of an adapter; its last line of output, as JSON.

    Raises:
        Failed: it ended with an error or not in time.
    """
    environment = {**os.environ, "DSN": dsn}
    try:
        done = subprocess.run(
            [*command, action, json.dumps(options)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{action}: no end within {timeout_s:.0f} s") from None
    if done.returncode:
        raise Failed(f"{action}: exit code {done.returncode}: {done.stderr.strip()[-800:]}")
    lines = done.stdout.strip().splitlines()
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found


class Workers:
    """Worker processes of one contender, started and ready; they begin at `go`.

    Args:
        command: the adapter.
        options: of every process.
        dsn: their database.
        procs: how many.

    Raises:
        Failed: one of them did not become ready in time: a minute, and two seconds more a process.
    """

    def __init__(self, command: list[str], options: dict[str, Any], dsn: str, procs: int) -> None:
        self.timeline: list[tuple[float, int]] = []  # when how many handler calls had been reported
        self._counts = [0] * procs
        self._answers: list[dict[str, Any] | None] = [None] * procs
        self._ready = 0
        self._changed = threading.Condition()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (lives as long as the processes)
        environment = {**os.environ, "DSN": dsn}
        self._processes = [
            subprocess.Popen(
                [*command, "work", json.dumps(options)],
                env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, bufsize=1,
            )
            for _ in range(procs)
        ]  # fmt: skip
        self._readers = [threading.Thread(target=self._read, args=(number,), daemon=True) for number in range(procs)]
        for reader in self._readers:
            reader.start()
        self._wait(lambda: self._ready == procs, READY_S + 2 * procs, "not ready")

    def _read(self, number: int) -> None:
        stream = self._processes[number].stdout
        assert stream is not None
        for line in stream:
            with self._changed:
                if line.startswith("P "):
                    self._counts[number] = int(line[2:])
                    self.timeline.append((time.perf_counter(), sum(self._counts)))
                elif line.startswith("READY"):
                    self._ready += 1
                elif line.startswith("{"):
                    self._answers[number] = json.loads(line)
                self._changed.notify_all()

    def _wait(self, reached: Callable[[], bool], timeout_s: float, what: str) -> None:
        until = time.perf_counter() + timeout_s
        with self._changed:
            while not reached():
                self._changed.wait(0.2)
                died = any(process.poll() not in (None, 0) for process in self._processes)
                if died or time.perf_counter() > until:
                    self.kill()
                    raise Failed(f"{what}: calls so far {self._counts}; {self._said()}")

    def _said(self) -> str:
        self._errors.seek(0)
        codes = [process.poll() for process in self._processes]
        return f"exit codes {codes}; {self._errors.read()[-1500:]}"

    def go(self) -> float:
        """Let them begin; the time of the signal, by `time.perf_counter()`."""
        began = time.perf_counter()
        self._tell("GO")
        return began

    def wait_count(self, n: int, timeout_s: float) -> None:
        """Wait until handlers were called `n` times in all."""
        self._wait(lambda: sum(self._counts) >= n, timeout_s, f"fewer than {n} handler calls within {timeout_s:.0f} s")

    @property
    def count(self) -> int:
        """Handler calls reported so far."""
        return sum(self._counts)

    def cpu_s(self) -> float:
        """CPU seconds of all of them."""
        return sum(cpu_s(process.pid) for process in self._processes)

    def resident_bytes(self) -> list[int]:
        """Resident memory of each."""
        return [resident_bytes(process.pid) for process in self._processes]

    def stop(self) -> list[dict[str, Any]]:
        """End them; what each of them counted.

        Raises:
            Failed: one of them gave no account.
        """
        self._tell("STOP")
        for process in self._processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
        for reader in self._readers:
            reader.join(5)
        answers = [answer for answer in self._answers if answer is not None]
        if len(answers) < len(self._processes):
            raise Failed(f"a worker gave no account; {self._said()}")
        self.kill()
        return answers

    def _tell(self, word: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()

    def kill(self) -> None:
        """End whatever still runs."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait(10)
