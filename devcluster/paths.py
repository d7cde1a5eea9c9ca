"""Where a cluster and the caches live. Nothing is ever written into the checkout."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError

RUN_ROOT = Path("/run/leasequeue-devcluster")
DATA_ROOT = Path("/var/lib/leasequeue-devcluster")
DEFAULT_NAME = "dev"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")


def cache_root(environ: dict[str, str] | None = None) -> Path:
    """The folder of everything worth keeping between runs.

    ``LEASEQUEUE_CACHE``, else ``$XDG_CACHE_HOME/leasequeue``, else ``~/.cache/leasequeue``.
    """
    env = os.environ if environ is None else environ
    if env.get("LEASEQUEUE_CACHE"):
        return Path(env["LEASEQUEUE_CACHE"])
    base = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".cache")
    return Path(base) / "leasequeue"


@dataclass(frozen=True)
class ClusterPaths:
    """All paths of the cluster ``name``: ``run`` is small and volatile, ``data`` holds images, volumes and etcd."""

    name: str
    run: Path
    data: Path

    @property
    def lock(self) -> Path:
        """Held by whoever starts or ends this cluster; it outlives the cluster's folders."""
        return self.run.parent.with_name(f"{self.run.parent.name}-{self.name}.lock")

    @property
    def config(self) -> Path:
        return self.run / "cluster.json"

    @property
    def state(self) -> Path:
        return self.run / "state.json"

    @property
    def kubeconfig(self) -> Path:
        return self.run / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.run / "logs"

    @property
    def pki(self) -> Path:
        return self.run / "pki"

    @property
    def etc(self) -> Path:
        return self.run / "etc"

    @property
    def bin(self) -> Path:
        return self.run / "bin"

    @property
    def cgroup(self) -> str:
        """The cgroup all pods of this cluster live under, in every mounted hierarchy."""
        return f"leasequeue-devcluster-{self.name}"


def cluster_paths(name: str, run_root: Path = RUN_ROOT, data_root: Path = DATA_ROOT) -> ClusterPaths:
    """Paths of the cluster called ``name``.

    :param name: 1 to 30 characters of a-z, 0-9 and inner dashes: it becomes part of folder, cgroup and lock names.
    :raises DevClusterError: the name has another form.
    """
    if not _NAME.fullmatch(name):
        raise DevClusterError(
            f"--name {name!r}: use 1 to 30 lower-case letters, digits and inner dashes, for example 'dev' or 'test-1'"
        )
    return ClusterPaths(name=name, run=run_root / name, data=data_root / name)
