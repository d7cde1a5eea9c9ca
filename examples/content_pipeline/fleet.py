"""Two workers and a reclaimer as ordinary processes of this machine: the programs that run in pods, by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

STOP_SECONDS = 60.0
ROOT = Path(__file__).resolve().parents[2]


class FleetError(Exception):
    """A process of the fleet ended by itself, or would not end."""


@dataclass(frozen=True, slots=True)
class Program:
    """One process: its name, its command, and where its log goes."""

    name: str
    command: tuple[str, ...]
    log: Path


@dataclass
class Fleet:
    """Starts programs on entry and ends them on exit: SIGTERM, which a worker answers by draining, then SIGKILL.

    Args:
        programs: what to start.
        environment: variables beside this process's own.
    """

    programs: Sequence[Program]
    environment: Mapping[str, str] = field(default_factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, **self.environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        for program in self.programs:
            with program.log.open("ab") as log:
                self._running[program.name] = subprocess.Popen(
                    program.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
                )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        codes = self.stop()
        if kind is None and any(codes.values()):
            raise FleetError(f"exit codes {codes}; logs: {', '.join(str(p.log) for p in self.programs)}")

    def check(self) -> None:
        """Make sure that every process still runs.

        Raises:
            FleetError: one ended; the end of its log is in the message.
        """
        for program in self.programs:
            code = self._running[program.name].poll()
            if code is not None:
                tail = program.log.read_text(errors="replace")[-800:]
                raise FleetError(f"{program.name} ended by itself with code {code}: {tail}")

    def stop(self) -> dict[str, int]:
        """End every process; returns their exit codes."""
        for process in self._running.values():
            if process.poll() is None:
                process.terminate()
        codes = {name: self._end(process) for name, process in self._running.items()}
        self._running.clear()
        return codes

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(STOP_SECONDS)


def programs(
    *, workers: int, concurrency: int, lease_ms: int, reclaim_after_s: int, policy: str, dsn_file: Path, logs: Path
) -> list[Program]:
    """The pipeline's programs.

    Args:
        workers: worker processes.
        concurrency: jobs that each runs at a time.
        lease_ms: lease duration, milliseconds.
        reclaim_after_s: how long past its end a lease is left, seconds.
        policy: Block or Pass.
        dsn_file: file that holds the connection string.
        logs: directory for the logs.
    """
    queue = ["--dsn-file", str(dsn_file), "--table", "content_jobs", "--lock-timeout-ms", str(lease_ms)]
    queue += ["--reclaim-after-s", str(reclaim_after_s)]
    work = ["--handler", "examples.content_pipeline.handler:handle", "--concurrency", str(concurrency), "--http-port", "0"]
    work += ["--strict-lanes", "--on-blocked-head", policy, "--poll-interval-ms", "100", "--max-replicas", str(workers)]
    sweep = ["--sweep-interval-s", "2", "--run-for-s", "3600"]
    worker = (sys.executable, "-m", "leasequeue_worker.main", *queue, *work)
    reclaimer = (sys.executable, "-m", "leasequeue_reclaimer.main", *queue, *sweep)
    found = [Program(f"worker-{n}", worker, logs / f"worker-{n}.log") for n in range(1, workers + 1)]
    return [*found, Program("reclaimer", reclaimer, logs / "reclaimer.log")]
