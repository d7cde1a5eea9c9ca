"""A real cluster for the operator's tests, and calls to its API server."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CRD = ROOT / "deploy" / "crd" / "leasequeues.leasequeue.dev.yaml"


class Lab:
    """One cluster: devcluster's, or that of KUBECONFIG."""

    def __init__(self, name: str) -> None:
        self.name = name

    def command(self, *argv: str) -> list[str]:
        """`argv` as a command line that runs inside the cluster's namespaces."""
        return [sys.executable, "-m", "devcluster", "exec", "--name", self.name, "--", *argv]

    def run(
        self, *argv: str, stdin: str | None = None, check: bool = True, timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        done = subprocess.run(self.command(*argv), input=stdin, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT)
        assert not check or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done

    def kubectl(self, *argv: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl; what it printed."""
        return self.run("kubectl", *argv, stdin=stdin, check=check).stdout

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply objects."""
        documents = "\n---\n".join(json.dumps(o) for o in objects)
        self.kubectl("apply", "--server-side", "--field-manager=user", "-f", "-", stdin=documents)

    def patch(self, namespace: str, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Merge-patch an object."""
        self.kubectl("-n", namespace, "patch", kind, name, "--type=merge", "-p", json.dumps(change))

    def get(self, namespace: str, kind: str, name: str) -> dict[str, Any] | None:
        """An object, None where there is none."""
        done = self.run("kubectl", "-n", namespace, "get", kind, name, "-o", "json", "--show-managed-fields", check=False)
        if done.returncode != 0:
            assert "NotFound" in done.stderr or "not found" in done.stderr, done.stderr
            return None
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def post_all(self, requests: list[dict[str, Any]]) -> list[tuple[int, str]]:
        """Send requests to the API server, in order; (status, message) of each.

        Args:
            requests: dicts with method, path, body, and query and content_type where needed.
        """
        done = self.run(sys.executable, "-m", "tests.operator.post_all", stdin=json.dumps(requests))
        return [(int(status), str(message)) for status, message in json.loads(done.stdout)]


def devcluster(*argv: str, timeout_s: float = 900) -> None:
    """Run ``python -m devcluster``; its output is shown when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "devcluster", *argv], capture_output=True, text=True, timeout=timeout_s, cwd=ROOT
    )
    assert done.returncode == 0, f"devcluster {argv}: {done.stdout}{done.stderr}"


@contextlib.contextmanager
def cluster(purpose: str, *images: str) -> Iterator[Lab]:
    """A cluster of this process's own, with the CRD and the images; it ends with the process at the latest."""
    lab = Lab(f"{purpose}-{os.getpid()}")
    devcluster("up", "--name", lab.name, "--with-parent", str(os.getpid()))
    try:
        if images:
            devcluster("images", *images, "--name", lab.name)
        lab.kubectl("apply", "--server-side", "-f", str(CRD))
        lab.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/leasequeues.leasequeue.dev")
        yield lab
    finally:
        devcluster("down", "--name", lab.name)


def eventually(what: str, condition: Callable[[], Any], within_s: float = 60, every_s: float = 0.5) -> Any:
    """Wait until `condition` gives something true, and return that."""
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(every_s)
