"""Prometheus and Alertmanager as processes of the node, with the rules and targets of the cluster."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from demo import kube
from devtools import sync_programs
from devtools.alertrun.monitors import targets
from devtools.pgserver import free_port

SCRAPE_S = 3
DISCOVER_S = 3.0
START_S = 30.0
PR_SET_PDEATHSIG = 1


class StackError(RuntimeError):
    """A server did not start or answer; the text has the end of its log."""


class Stack:
    """The two servers.

    Args:
        folder: for configuration, data and logs.
        address: that they listen on.
        webhook: URL that Alertmanager sends to.
        groups: rule groups, as a PrometheusRule has them.
    """

    def __init__(self, folder: Path, address: str, webhook: str, groups: Sequence[Mapping[str, Any]]) -> None:
        self._folder, self._address = folder, address
        self._alertmanager, self._prometheus = (f"{address}:{free_port(address)}" for _ in range(2))
        self.url = f"http://{self._prometheus}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopping = threading.Event()
        self._discovery = threading.Thread(target=self._discover, name="discovery", daemon=True)
        self._write("rules.yaml", {"groups": list(groups)})
        self._write("prometheus.yaml", prometheus_config(self._alertmanager))
        self._write("alertmanager.yaml", alertmanager_config(webhook))
        self._write("targets.json", [])

    def __enter__(self) -> Self:
        self._start(
            "alertmanager", alertmanager_command(), self._alertmanager, "--cluster.listen-address=",
            f"--storage.path={self._folder / 'alertmanager'}",
        )  # fmt: skip
        self._start(
            "prometheus", [sync_programs.prometheus()], self._prometheus, f"--storage.tsdb.path={self._folder / 'data'}"
        )
        self._discovery.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopping.set()
        if self._discovery.is_alive():
            self._discovery.join(30)
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector that `expression` has now."""
        return self._api("query", query=expression)

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """The matrix of `expression` from `start` to `end` (seconds since 1970), one value each `step` seconds."""
        return self._api("query_range", query=expression, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step:g}")

    def healthy_targets(self) -> int:
        """Targets of which a scrape went well within the last minute: on a busy machine one or the other is late."""
        return len(self.query("max_over_time(up[1m]) == 1"))

    def _api(self, path: str, **parameters: str) -> list[dict[str, Any]]:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  (our own address)
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def _write(self, name: str, content: Any) -> None:
        path = self._folder / name
        path.write_text(json.dumps(content) if name.endswith(".json") else yaml.safe_dump(content))

    def _start(self, name: str, program: list[str], listen: str, *arguments: str) -> None:
        log = self._folder / f"{name}.log"
        command = [*program, f"--config.file={self._folder / name}.yaml", f"--web.listen-address={listen}", *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=self._folder, preexec_fn=_die_with_parent
            )
        self._processes.append(process)
        deadline = time.monotonic() + START_S
        while not _answers(f"http://{listen}/-/ready"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise StackError(f"{name} did not start: {log.read_text(errors='replace')[-1500:]}")
            time.sleep(0.2)

    def _discover(self) -> None:
        """Keep the file of targets as PodMonitors and pods are."""
        while not self._stopping.wait(DISCOVER_S):
            found = kube.get("podmonitors.monitoring.coreos.com,pods", "--all-namespaces")
            by_kind: dict[str, list[dict[str, Any]]] = {"PodMonitor": [], "Pod": []}
            for item in found:
                by_kind[item["kind"]].append(item)
            # Prometheus watches the folder: it must never read half a file.
            self._write("targets.json.new.json", targets(by_kind["PodMonitor"], by_kind["Pod"]))
            (self._folder / "targets.json.new.json").replace(self._folder / "targets.json")


def alertmanager_command() -> list[str]:
    """Alertmanager; Debian's, where it is not installed, in a mount namespace that has its templates where it looks for them."""
    templates = sync_programs.alertmanager_templates()
    if not templates:
        return [sync_programs.alertmanager()]
    folder = Path("/", sync_programs.TEMPLATES[0]).parent
    script = f'mount -t tmpfs none /usr/share && mkdir -p {folder} && cp "$0"/*.tmpl {folder}/ && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, str(templates[0].parent), sync_programs.alertmanager()]


def prometheus_config(alertmanager: str) -> dict[str, Any]:
    """Scrape what targets.json lists, evaluate rules.yaml, tell `alertmanager` (host:port)."""
    return {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "scrape_timeout": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {"job_name": "monitors", "honor_labels": True, "file_sd_configs": [{"files": ["targets.json"]}]},
        ],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
    }


def alertmanager_config(webhook: str) -> dict[str, Any]:
    """Every alert on its own, at once, to one webhook, resolved ones too."""
    return {
        "route": {
            "receiver": "webhook", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s", "repeat_interval": "4h",
        },
        "receivers": [{"name": "webhook", "webhook_configs": [{"url": webhook, "send_resolved": True}]}],
    }  # fmt: skip


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  (our own address)
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
