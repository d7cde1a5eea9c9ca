"""Items run by a command: the item as JSON on its standard input, the result as JSON on its standard output.

Exit codes follow sysexits.h: 0 resolves, 75 (EX_TEMPFAIL) retries, 65 (EX_DATAERR) sets aside for REPAIR, any other retries with
back-off until max_attempts. The last lines of its standard error become `last_error`. Each command runs in a group of its own; what it
leaves running is ended with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from typing import IO, Any

from leasequeue import jsonio
from leasequeue.errors import BadInput
from leasequeue.item import Item
from leasequeue.tracing import carrier
from leasequeue.verdict import Repair, Resolve, Retry, Verdict
from leasequeue_worker.context import Context
from leasequeue_worker.held import Held
from leasequeue_worker.processes import ended_how, reap, signal_group

EX_DATAERR, EX_TEMPFAIL = 65, 75
EXIT_CODES = {
    "0": "Resolved; standard output, as JSON, is the result.",
    str(EX_DATAERR): "REPAIR: this payload will never do.",
    str(EX_TEMPFAIL): "Retried with back-off, until max_attempts.",
    "other": "The same; the end of standard error becomes `last_error`.",
}
MOST_OUTPUT = 16 * 2**20
ERROR_TAIL = 1_500


def verdict_of(code: int, output: bytes, errors: str) -> Verdict:
    """Verdict of a command that ended. Pure.

    Args:
        code: exit code; negative for a signal.
        output: standard output.
        errors: end of standard error.
    """
    said = f"{ended_how(code)}: {errors.strip()}" if errors.strip() else ended_how(code)
    if code == EX_DATAERR:
        return Repair(said)
    if code != 0:
        return Retry(error=said)
    if len(output) > MOST_OUTPUT:
        return Repair(f"the result is larger than {MOST_OUTPUT} bytes")
    if not output.strip():
        return Resolve()
    try:
        return Resolve(jsonio.loads(output.decode()))
    except (BadInput, UnicodeDecodeError):
        return Repair("standard output is not JSON; a command writes its result there and everything else to standard error")


def variables(item: Item, inherited: Mapping[str, str]) -> dict[str, str]:
    """Environment of a command: ours, and the lease's facts."""
    facts = {
        "ITEM_ID": item.id, "IDEMPOTENCY_KEY": item.idempotency_key, "ATTEMPT": item.attempt,
        "TOKEN": item.lease_token, "TRACE_ID": item.trace_id,
    }  # fmt: skip
    return {**inherited, **{f"LEASEQUEUE_{k}": str(v) for k, v in facts.items() if v is not None}}


class ExecRunner:
    """Runs the items of one slot with a command.

    Args:
        command: its words; never a shell string.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._running: Held | None = None
        self._closed = False

    def __call__(self, item: Item, ctx: Context) -> Any:
        """Run the command for one item."""
        # Files, not pipes: a command that reads or writes nothing for an hour blocks nobody, and none can fill our memory.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            given.write(jsonio.dumps(item.as_dict()).encode())
            given.seek(0)
            code = self._run(ctx._held, given, output, errors)
            output.seek(0)
            return verdict_of(code, output.read(MOST_OUTPUT + 1), _tail(errors))

    def _run(self, held: Held, given: IO[bytes], output: IO[bytes], errors: IO[bytes]) -> int:
        if self._closed:
            raise RuntimeError("the worker ends")
        environment = variables(held.item, os.environ) | {name.upper(): value for name, value in carrier().items()}
        process = subprocess.Popen(
            self._command, stdin=given, stdout=output, stderr=errors, env=environment, start_new_session=True
        )
        self._process, self._running = process, held
        if held.cancelled:
            signal_group(process, signal.SIGTERM)
        code = reap(process)
        self._process = self._running = None
        if held.cancelled:
            raise RuntimeError(f"stopped: {ended_how(code)}")
        return code

    def stop(self, held: Held, *, hard: bool) -> bool:
        """SIGTERM, or SIGKILL, to the command's group. True: nothing of it will run any more."""
        process = self._process
        if process is None or self._running is not held:
            return hard  # it ended just now, or has not begun: asked again at the next tick
        signal_group(process, signal.SIGKILL if hard else signal.SIGTERM)
        return hard

    def close(self) -> None:
        """End the command; no other is started."""
        self._closed = True
        if self._process is not None:
            signal_group(self._process, signal.SIGKILL)


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - ERROR_TAIL))
    return file.read(ERROR_TAIL).decode(errors="replace")
