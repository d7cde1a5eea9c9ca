"""What the chart's tests share: paths, running Helm, finding objects."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from devtools.sync_programs import helm

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/leasequeue"

Manifest = dict[str, Any]
Render = Callable[..., list[Manifest]]
Refusal = Callable[[dict[str, Any]], str]


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm with a deadline; the caller looks at the exit code."""
    return subprocess.run([helm(), *arguments], capture_output=True, text=True, timeout=120)


def one(objects: list[Manifest], kind: str) -> Manifest:
    """The only object of `kind`."""
    found = [document for document in objects if document["kind"] == kind]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}: {[o['metadata']['name'] for o in found]}"
    return found[0]


def kinds(objects: list[Manifest]) -> set[str]:
    """Kinds that occur."""
    return {document["kind"] for document in objects}


def container(objects: list[Manifest]) -> Manifest:
    """The operator's container."""
    containers: list[Manifest] = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1
    return containers[0]


def nested(path: str, value: Any) -> dict[str, Any]:
    """`nested("a.b", 1)` is `{"a": {"b": 1}}`."""
    for key in reversed(path.split(".")):
        value = {key: value}
    assert isinstance(value, dict)
    return value


def walk(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a nested map as a dotted path, parents before children."""
    for key, value in data.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from walk(value, f"{prefix}{key}.")
