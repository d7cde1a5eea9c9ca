"""Wakes one thread that waits for nothing else: a lock alone, an eighth of the work of an Event."""

from __future__ import annotations

import threading


class Bell:
    """Rung from any thread, heard by one; many rings before it listens count once."""

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()
        self._rung = False

    def ring(self) -> None:
        """End the current or the next `wait`. Cheap when somebody did already."""
        if not self._rung:
            self._rung = True
            try:
                self._silence.release()
            except RuntimeError:
                return  # two rang at once

    def wait(self, timeout_s: float = -1) -> bool:
        """Block until rung, at most `timeout_s` seconds (-1: without end). True when rung."""
        heard = self._silence.acquire(timeout=timeout_s)
        # Heard first, then the flag: a ring in between is skipped, but the waiter looks at what there is only after this line. The
        # other way round that ring would be heard by nobody, and its flag would keep all later ones from ringing.
        self._rung = False
        return heard
