"""What a cluster's fresh mount, network and UTS namespaces need before its parts start."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from pathlib import Path

from devcluster import cgroups, syscalls
from devcluster.addresses import NODE_NAME
from devcluster.paths import ClusterPaths
from devcluster.render import network_commands

# The kubelet insists on these kernel settings and would write them for the whole machine. It is shown these values
# instead; the machine keeps its own.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def prepare(paths: ClusterPaths) -> None:
    """Set up the namespaces of this process. Nothing of it is seen outside, but for the cgroup."""
    paths.data.mkdir(parents=True, exist_ok=True)
    for folder, target in (("kubelet", "/var/lib/kubelet"), ("cni", "/var/lib/cni"), ("links", "/var/log/containers")):
        (paths.data / folder).mkdir(exist_ok=True)
        syscalls.bind_mount(paths.data / folder, Path(target))
    syscalls.mount_tmpfs(Path("/run/containerd"))
    for name in ("hosts", "resolv.conf"):
        syscalls.bind_mount(paths.etc / name, Path("/etc") / name)
    _hide_kernel_settings(paths.etc / "kernel")
    subprocess.run(["hostname", NODE_NAME], check=True, timeout=10)
    for command in network_commands():
        subprocess.run(command, check=True, timeout=10)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _raise_file_limit()
    cgroups.create(paths.cgroup)


def _raise_file_limit() -> None:
    # Containers inherit it; a shell's usual 1024 is too little for a database with many clients.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (1048576, 1048576))


def _hide_kernel_settings(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, value in _KERNEL_SETTINGS.items():
        if Path("/proc/sys", name).exists():
            shown = folder / name.replace("/", "_")
            shown.write_text(value + "\n")
            syscalls.bind_mount(shown, Path("/proc/sys", name))
