"""kubectl and helm, each call with a deadline."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo.errors import DemoError

FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ->")
FORWARD_SECONDS = 15.0


def program(name: str) -> str:
    """Path of `kubectl` or `helm`: the one on PATH, else the one beside this Python.

    Raises:
        DemoError: there is none.
    """
    beside = Path(sys.executable).parent / name
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    if found is None:
        raise DemoError(f"no {name} on PATH: install it, or unset KUBECONFIG to have the demo bring a cluster with it")
    return found


def run(name: str, *args: str, stdin: str | None = None, timeout: float = 20) -> str:
    """What `name` printed.

    Args:
        timeout: seconds, over the whole call.

    Raises:
        DemoError: it failed or took longer. The message has its last lines, never what went in.
    """
    command = [program(name), *args]
    shown = " ".join([name, *args[:6]])
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        raise DemoError(f"{shown}: no end within {timeout:.0f} s") from late
    if done.returncode != 0:
        raise DemoError(f"{shown}: {done.stderr.strip()[-1500:] or f'exit code {done.returncode}'}")
    return done.stdout


def kubectl(*args: str, stdin: str | None = None, timeout: float = 20) -> str:
    """What kubectl printed; see `run`."""
    return run("kubectl", *args, stdin=stdin, timeout=timeout)


def get(*args: str, timeout: float = 20) -> list[dict[str, Any]]:
    """The objects that `kubectl get ARGS` finds."""
    found = json.loads(kubectl("get", *args, "-o", "json", timeout=timeout))
    items: list[dict[str, Any]] = found.get("items", [found])
    return items


def apply(objects: Sequence[dict[str, Any]]) -> None:
    """Create or update objects."""
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    kubectl("apply", "--server-side", "--force-conflicts", "--field-manager=leasequeue-demo", "-f", "-", stdin=document)


@contextmanager
def forward(namespace: str, target: str, port: int) -> Iterator[int]:
    """A port of this machine's loopback that leads to `port` of `target`, such as `pod/postgres`.

    Raises:
        DemoError: kubectl does not say so within 15 s.
    """
    command = [program("kubectl"), "-n", namespace, "port-forward", target, f":{port}", "--address", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        yield _forwarded_port(process, target)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def _forwarded_port(process: subprocess.Popen[bytes], target: str) -> int:
    if process.stdout is None:
        raise DemoError("port-forward has no output")
    deadline, text = time.monotonic() + FORWARD_SECONDS, ""
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            break
        chunk = os.read(process.stdout.fileno(), 4096)
        text += chunk.decode(errors="replace")
        if found := FORWARDING.search(text):
            return int(found.group(1))
        if not chunk:
            break
    raise DemoError(f"kubectl port-forward {target}: {text.strip()[-500:] or 'no answer'} within {FORWARD_SECONDS:.0f} s")
