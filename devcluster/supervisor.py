"""Runs one cluster's parts as the first process of their pid namespace, and buries their dead.

Started by ``keeper`` through unshare(1). When it ends, for whatever reason, the kernel kills every process of the
cluster and drops its mounts and addresses; the keeper then removes cgroups and folders.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from devcluster import state
from devcluster.addresses import CONTAINERD_SOCKET
from devcluster.api import ApiServer
from devcluster.namespaces import prepare
from devcluster.paths import ClusterPaths, cluster_paths
from devcluster.render import Component, components

_TICK_STARTING = 0.05
_TICK = 0.5
_START_DEADLINE = 120.0
_MAX_RESTARTS = 10


class Supervisor:
    """Runs one cluster until it is killed."""

    def __init__(self, paths: ClusterPaths, programs: dict[str, str], pause: Path) -> None:
        self._paths = paths
        self._pause = pause
        self._components = components(paths, programs)
        self._running: dict[int, Component] = {}
        self._restart_at: dict[str, float] = {}
        self._began = time.monotonic()
        self._state = state.State()
        self._ctr = programs["ctr"]
        self._import: int | None = None
        self._import_done = False

    def run(self) -> None:
        """Bring the cluster up, then tend it until the end."""
        self._tell()
        prepare(self._paths)
        self._milestone("namespaces")
        self._start_stage(0)
        api = ApiServer(self._paths)
        while True:
            self._reap()
            self._restart_due()
            self._advance(api)
            time.sleep(_TICK_STARTING if self._state.phase == state.STARTING else _TICK)

    def _advance(self, api: ApiServer) -> None:
        """One step towards ready; afterwards only sleeps."""
        done = self._state.milestones
        if self._state.phase != state.STARTING:
            return
        if "pause image" not in done and self._pause_imported():
            self._milestone("pause image")
        if "api server" not in done:
            if api.ready():
                self._milestone("api server")
                self._start_stage(1)
        elif "pause image" in done and api.node_ready() and api.default_account_exists():
            self._milestone("node")
            self._state.phase = state.READY
            self._tell()
        if self._state.phase == state.STARTING and time.monotonic() - self._began > _START_DEADLINE:
            self._fail(f"not ready after {_START_DEADLINE:.0f} s; reached: {', '.join(done)}")

    def _pause_imported(self) -> bool:
        if self._import is None and Path(CONTAINERD_SOCKET).exists():
            archive = str(self._pause)
            argv = [self._ctr, "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import", archive]
            self._import = self._spawn("pause-import", argv)
        return self._import_done

    def _start_stage(self, stage: int) -> None:
        for component in self._components:
            if component.stage == stage:
                self._start(component)

    def _start(self, component: Component) -> None:
        pid = self._spawn(component.name, component.argv)
        self._running[pid] = component
        self._state.pids[component.name] = pid
        self._tell()

    def _spawn(self, name: str, argv: list[str]) -> int:
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._paths.data, start_new_session=True
            )
        process.returncode = 0  # _reap collects every child; Popen must not wait for this one too.
        return process.pid

    def _log(self, name: str) -> Path:
        return self._paths.logs / f"{name}.log"

    def _reap(self) -> None:
        """Collect every dead child, adopted ones (container shims) too, and plan restarts of our own."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._bury(pid, os.waitstatus_to_exitcode(status))

    def _bury(self, pid: int, code: int) -> None:
        if pid == self._import:
            self._import_done = code == 0
            # containerd's socket is there before it serves: try again.
            self._import = None if code else pid
            return
        component = self._running.pop(pid, None)
        if component is None:
            return
        count = self._state.restarts.get(component.name, 0) + 1
        self._state.restarts[component.name] = count
        print(f"{component.name} ended with {code}, restart {count}", flush=True)
        if count > _MAX_RESTARTS:
            last = "\n".join(self._log(component.name).read_text(errors="replace").splitlines()[-5:])
            self._fail(f"{component.name} ended {count} times, last with code {code}. Its log ends:\n{last}")
        else:
            self._restart_at[component.name] = time.monotonic() + min(0.2 * count, 5.0)
        self._tell()

    def _restart_due(self) -> None:
        for component in self._components:
            if self._restart_at.get(component.name, float("inf")) <= time.monotonic():
                del self._restart_at[component.name]
                self._start(component)

    def _milestone(self, name: str) -> None:
        self._state.milestones[name] = round(time.monotonic() - self._began, 2)
        self._tell()

    def _fail(self, message: str) -> None:
        self._state.phase, self._state.message = state.FAILED, message
        self._tell()

    def _tell(self) -> None:
        state.write(self._paths.state, self._state)


def main(config_file: str) -> None:
    """Run the cluster described by ``config_file``, the JSON that ``lifecycle`` wrote."""
    if os.getpid() != 1:
        raise SystemExit("the supervisor must be the first process of its own pid namespace")
    config = json.loads(Path(config_file).read_text())
    Supervisor(cluster_paths(config["name"]), config["programs"], Path(config["pause"])).run()


if __name__ == "__main__":
    main(sys.argv[1])
