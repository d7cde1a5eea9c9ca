"""Working with a cluster that is already there: the one KUBECONFIG names. Nothing is started or ended."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from devcluster.errors import DevClusterError
from devcluster.lifecycle import find_kubectl

LOADER = "LEASEQUEUE_IMAGE_LOADER"


def kubeconfig() -> str | None:
    """The user's own KUBECONFIG, or None: then devcluster runs its own cluster.

    Inside ``devcluster exec`` KUBECONFIG is set too; commands there work with the cluster they run in.
    """
    return os.environ.get("KUBECONFIG") or None


def check() -> str:
    """Ask the cluster behind KUBECONFIG for its version; returns a line about it.

    :raises DevClusterError: it does not answer within 15 s.
    """
    command = [find_kubectl(), "get", "--raw", "/readyz", "--request-timeout=10s"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=15)
    except subprocess.TimeoutExpired as error:
        raise DevClusterError(f"KUBECONFIG={kubeconfig()}: no answer within 15 s") from error
    if result.returncode != 0:
        raise DevClusterError(
            f"KUBECONFIG={kubeconfig()}: the cluster does not answer: {result.stderr.strip()[-500:]}\n"
            "Start it, correct KUBECONFIG, or unset it to have devcluster start its own"
        )
    return f"KUBECONFIG={kubeconfig()}: the cluster answers; nothing to start"


def load_command(template: str, archive: Path) -> list[str]:
    """The command that loads ``archive``, from a template with ``{archive}`` in it.

    :raises DevClusterError: the template has no ``{archive}``.
    """
    if "{archive}" not in template:
        raise DevClusterError(f"{LOADER}={template!r}: put {{archive}} where the file's path goes")
    return [word.replace("{archive}", str(archive)) for word in shlex.split(template)]


def load(archives: Sequence[Path]) -> None:
    """Load image archives with the user's loader.

    :raises DevClusterError: no loader is given, or it failed.
    """
    template = os.environ.get(LOADER)
    if not template:
        raise DevClusterError(
            f"with KUBECONFIG set, {LOADER} must say how to load an image, for example "
            "'kind load image-archive {archive}' or 'minikube image load {archive}'"
        )
    for archive in archives:
        command = load_command(template, archive)
        if subprocess.run(command, timeout=900).returncode != 0:
            raise DevClusterError(f"{shlex.join(command)} failed")
