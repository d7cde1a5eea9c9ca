"""Programs built from pinned Go modules, cached by what they are built from.

A family is a tools module in ``tools/``: its go.mod and go.sum fix every dependency by version and checksum.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevClusterError
from devcluster.locks import locked
from devcluster.toolchain import Go, environment, find_go

TOOLS = Path(__file__).parent / "tools"
KUBERNETES_VERSION = "v1.34.4"
HELM_VERSION = "v4.3.1"
_STAMP = "k8s.io/component-base/version"
_BUILD_TIMEOUT = 3600


@dataclass(frozen=True)
class Family:
    """Programs of one tools module: name of the binary to Go package."""

    module: str
    packages: dict[str, str]
    ldflags: str = "-s -w"


FAMILIES = (
    Family(
        "kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
        },
        f"-s -w -X {_STAMP}.gitVersion={KUBERNETES_VERSION} -X {_STAMP}.gitMajor=1 -X {_STAMP}.gitMinor=34",
    ),
    Family("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Family("coredns", {"coredns": "."}),
    Family(
        "helm",
        {"helm": "helm.sh/helm/v4/cmd/helm"},
        f"-s -w -X helm.sh/helm/v4/internal/version.version={HELM_VERSION}",
    ),
)


def cache_key(module: Path, family: Family, go_version: str) -> str:
    """Folder name for the binaries of ``family``: changes with module files, packages, flags and Go version."""
    digest = hashlib.sha256()
    sources = [path for path in sorted(module.iterdir()) if path.suffix in (".mod", ".sum", ".go")]
    for path in sources:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    digest.update(repr((sorted(family.packages.items()), family.ldflags, go_version)).encode())
    return f"{family.module}-{digest.hexdigest()[:16]}"


def build_command(go: str, package: str, ldflags: str, output: Path) -> list[str]:
    """The command that builds one program, exactly as pinned: a module file that lacks something is an error."""
    return [go, "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", ldflags, "-o", str(output), package]


def ensure(cache: Path, say: Callable[[str], None]) -> dict[str, str]:
    """Path of every program, built first where it is not cached.

    Two processes may ask at once: one builds, the other waits and uses what it built.

    :param cache: the cache root; binaries go to ``bin/<key>`` below it.
    :param say: called with a line of progress at each step of a build.
    :raises DevClusterError: a build failed; the text ends with the compiler's last lines.
    """
    go = find_go(cache, say)
    programs = _test_assets()
    for family in FAMILIES:
        if family.packages.keys() <= programs.keys():
            continue
        programs = _family_programs(family, cache, go, say) | programs
    return programs


def program(name: str, cache: Path, say: Callable[[str], None]) -> str:
    """Path of one program; builds its family where it is not cached, and no other.

    :raises DevClusterError: as for `ensure`.
    """
    family = next(family for family in FAMILIES if name in family.packages)
    return _family_programs(family, cache, find_go(cache, say), say)[name]


def _family_programs(family: Family, cache: Path, go: Go, say: Callable[[str], None]) -> dict[str, str]:
    folder = cache / "bin" / cache_key(TOOLS / family.module, family, go.version)
    if not folder.is_dir():
        _build_family(family, folder, go, say)
    return {name: str(folder / name) for name in family.packages}


def _test_assets() -> dict[str, str]:
    """etcd and kube-apiserver of ``KUBEBUILDER_ASSETS``, where it is set."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return {}
    found = {name: str(Path(assets) / name) for name in ("etcd", "kube-apiserver")}
    for path in found.values():
        if not os.access(path, os.X_OK):
            raise DevClusterError(f"KUBEBUILDER_ASSETS={assets}: {path} is no program; unset it, or correct it")
    return found


def _build_family(family: Family, folder: Path, go: Go, say: Callable[[str], None]) -> None:
    lock = folder.with_name(folder.name + ".lock")
    with locked(lock, timeout=_BUILD_TIMEOUT, on_wait=lambda: say(f"waiting for another build of {family.module}")):
        if folder.is_dir():
            return
        temporary = folder.with_name(folder.name + ".new")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for number, (name, package) in enumerate(family.packages.items(), 1):
            label = f"{family.module} {number}/{len(family.packages)}: {name}"
            command = build_command(go.program, package, family.ldflags, temporary / name)
            _build(command, TOOLS / family.module, label, say)
        temporary.replace(folder)


def _build(command: list[str], module: Path, label: str, say: Callable[[str], None]) -> None:
    """Run one go build, with a line of progress each 15 seconds."""
    began = time.monotonic()
    say(f"building {label}")
    with subprocess.Popen(
        command, cwd=module, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output = _wait(process, began, label, say)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise DevClusterError(f"{' '.join(command)} failed in {module}:\n{output.strip()[-3000:]}")
    say(f"built {label} in {time.monotonic() - began:.0f} s")


def _wait(process: subprocess.Popen[str], began: float, label: str, say: Callable[[str], None]) -> str:
    while True:
        elapsed = time.monotonic() - began
        if elapsed > _BUILD_TIMEOUT:
            raise DevClusterError(f"building {label} took more than {_BUILD_TIMEOUT} s")
        try:
            return process.communicate(timeout=15)[0]
        except subprocess.TimeoutExpired:
            say(f"building {label}: {elapsed + 15:.0f} s")
