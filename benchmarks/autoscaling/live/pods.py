"""Worker pods as the API server tells of them: when each came, was ready, was told to go, and was gone."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from demo import kube

SELECTOR = "leasequeue.dev/component=worker"


@dataclass
class PodLife:
    """One pod; seconds since 1970.

    Args:
        name: of the pod.
        came_at: when the watch first showed it.
        ready_at: first time it was ready; None before.
        doomed_at: first time it had a deletion timestamp; None before.
        gone_at: when it was deleted; None before.
    """

    name: str
    came_at: float
    ready_at: float | None = None
    doomed_at: float | None = None
    gone_at: float | None = None

    def there(self, start: float, end: float) -> float:
        """Seconds between `start` and `end` in which it existed."""
        return max(0.0, min(end, self.gone_at or end) - max(start, self.came_at))


@dataclass
class PodWatch:
    """Follows the worker pods of one namespace until `stop`."""

    namespace: str
    lives: dict[str, PodLife] = field(default_factory=dict)

    def start(self) -> None:
        """Begin to follow."""
        command = [
            kube.program("kubectl"), "-n", self.namespace, "get", "pods", "-l", SELECTOR, "--watch", "--output-watch-events",
            "-o", "json",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following; a pod that is still there keeps no end."""
        self._process.terminate()
        self._process.wait(10)
        self._thread.join(10)

    @property
    def failed(self) -> bool:
        """The watch ended by itself: the figures would be wrong."""
        return self._process.poll() is not None

    def alive(self) -> list[PodLife]:
        """Pods that exist now."""
        return [life for life in list(self.lives.values()) if life.gone_at is None]

    def _follow(self) -> None:
        for line in self._process.stdout or ():
            event = json.loads(line)
            self._take(event["type"], event["object"], time.time())

    def _take(self, kind: str, pod: dict[str, Any], now: float) -> None:
        meta = pod["metadata"]
        life = self.lives.setdefault(meta["uid"], PodLife(meta["name"], now))
        conditions = (pod.get("status") or {}).get("conditions") or ()
        if life.ready_at is None and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
            life.ready_at = now
        if life.doomed_at is None and meta.get("deletionTimestamp"):
            life.doomed_at = now
        if kind == "DELETED":
            life.gone_at = now
