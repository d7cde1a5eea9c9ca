"""The logs of worker pods, followed from each pod's beginning, so that they outlive it."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.autoscaling.live.pods import PodWatch
from demo import kube

BEGAN, ENDED = "job_began", "job_ended"


class JobLogs:
    """Follows the log of every pod that a watch shows ready.

    Args:
        watch: of the namespace's worker pods.
    """

    def __init__(self, watch: PodWatch) -> None:
        self._watch = watch
        self._folder = tempfile.TemporaryDirectory(prefix="lqlogs-")
        self._followers: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look_for_pods, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, tuple[int, int]]:
        """End, and count by pod: jobs begun and jobs ended, each as the job itself logged it."""
        self._stopped.set()
        self._thread.join(10)
        for follower in self._followers.values():
            try:
                follower.wait(5)  # of a pod that is gone the log ends by itself
            except subprocess.TimeoutExpired:
                follower.terminate()
                follower.wait(5)
        found = {}
        for name in self._followers:
            text = self._file(name).read_text(errors="replace")
            found[name] = (text.count(BEGAN), text.count(ENDED))
        self._folder.cleanup()
        return found

    def _file(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def _look_for_pods(self) -> None:
        while not self._stopped.is_set():
            for life in self._watch.alive():
                if life.ready_at is not None and life.name not in self._followers:
                    self._follow(life.name)
            time.sleep(0.3)

    def _follow(self, name: str) -> None:
        command = [kube.program("kubectl"), "-n", self._watch.namespace, "logs", "--follow", name]
        with self._file(name).open("wb") as file:
            self._followers[name] = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
