"""Writes the files of a new cluster: certificates, kubeconfigs, configuration."""

from __future__ import annotations

from pathlib import Path

from devcluster import pki
from devcluster.paths import ClusterPaths
from devcluster.render import files


def write(paths: ClusterPaths) -> None:
    """Certificates, kubeconfigs and configuration of a new cluster."""
    pki.create(paths.pki)
    for path, text in files(paths).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for user in ("node", "kube-controller-manager", "kube-scheduler", "kube-proxy"):
        _write_private(paths.etc / f"{user}.kubeconfig", pki.kubeconfig(paths.pki, user))
    _write_private(paths.kubeconfig, pki.kubeconfig(paths.pki, "admin"))


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
