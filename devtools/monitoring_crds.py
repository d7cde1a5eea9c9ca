"""The CRDs of the Prometheus Operator that the chart and the operator make objects of, from its pinned Go module."""

from __future__ import annotations

import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from devcluster.paths import cache_root
from devcluster.toolchain import environment, find_go

MODULE = "github.com/prometheus-operator/prometheus-operator"
VERSION = "v0.85.0"
CHECKSUM = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
NAMES = ("podmonitors", "prometheusrules", "servicemonitors")
DEADLINE_S = 300


class NoModuleError(RuntimeError):
    """The module cannot be had, or is not the pinned one."""


@cache
def files() -> list[Path]:
    """One YAML file a CRD; the first call may download 4 MB.

    Raises:
        NoModuleError: the download failed, or its checksum is not the pinned one.
    """
    go = find_go(cache_root(), print).program
    # Outside of any module, so that no go.mod of the place has a say.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [go, "mod", "download", "-json", f"{MODULE}@{VERSION}"],
            cwd=folder, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise NoModuleError(f"{MODULE}@{VERSION}: {(done.stderr or done.stdout).strip()[-500:]}")
    found = json.loads(done.stdout)
    if found["Sum"] != CHECKSUM:
        raise NoModuleError(f"{MODULE}@{VERSION} has the checksum {found['Sum']}, not {CHECKSUM}")
    folder_of_crds = Path(found["Dir"]) / "example/prometheus-operator-crd"
    return [folder_of_crds / f"monitoring.coreos.com_{name}.yaml" for name in NAMES]
