"""File locks between processes, whose files do not stay behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from devcluster.errors import DevClusterError


@contextlib.contextmanager
def locked(path: Path, timeout: float = 1800.0, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive lock on ``path`` for the duration of the block; the file goes with the lock.

    :param timeout: seconds to wait for another holder.
    :param on_wait: called once if there is another holder.
    :raises DevClusterError: the other holder kept it for too long.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout
    while (descriptor := _try(path)) is None:
        if on_wait is not None:
            on_wait()
            on_wait = None
        if time.monotonic() > deadline:
            raise DevClusterError(f"another process holds {path} for more than {timeout:.0f} s: end it, or wait for it")
        time.sleep(0.1)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _try(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder may have removed the file after we opened it; a lock on a nameless file locks nobody out.
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
