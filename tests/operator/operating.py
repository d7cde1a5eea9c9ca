"""Operators as processes on a cluster's node, each with the login of a ServiceAccount."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from leasequeue_operator.rights import ELECTION, RIGHTS, Right
from tests.operator.lab import ROOT, Lab, eventually

RBAC = "rbac.authorization.k8s.io"


def namespace(name: str) -> dict[str, Any]:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def rules(rights: Sequence[Right] = RIGHTS, without: tuple[str, str] | None = None) -> list[dict[str, Any]]:
    """Rules of a role, without one verb on one resource."""
    made = []
    for right in rights:
        verbs = [verb for verb in right.verbs if (verb, right.resource) != without]
        if verbs:
            made.append({"apiGroups": [right.group], "resources": [right.resource], "verbs": verbs})
    return made


def account(home: str, name: str, role: list[dict[str, Any]], only_in: str = "") -> list[dict[str, Any]]:
    """A ServiceAccount with these rules, in all namespaces or in one."""
    version, kind = f"{RBAC}/v1", "Role" if only_in else "ClusterRole"
    meta = {"name": name, **({"namespace": only_in} if only_in else {})}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": home}
    reference = {"apiGroup": RBAC, "kind": kind, "name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": home}},
        {"apiVersion": version, "kind": kind, "metadata": meta, "rules": role},
        {"apiVersion": version, "kind": f"{kind}Binding", "metadata": meta, "roleRef": reference, "subjects": [subject]},
    ]


def election_role(home: str, name: str) -> list[dict[str, Any]]:
    """The right to the Lease, for an account of `account`."""
    meta = {"name": f"{name}-election", "namespace": home}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": home}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": meta["name"]}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules([ELECTION])},
        {
            "apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": reference, "subjects": [subject],
        },
    ]  # fmt: skip


def login(lab: Lab, home: str, name: str, folder: Path) -> Path:
    """A kubeconfig of a ServiceAccount."""
    token = lab.kubectl("-n", home, "create", "token", name, "--duration=2h").strip()
    config = json.loads(lab.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    path = folder / f"{name}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


class Operating:
    """One operator process.

    Args:
        lab: the cluster.
        kubeconfig: its login.
        log: file of its output.
        port: of its HTTP server.
        arguments: further flags.
    """

    def __init__(self, lab: Lab, kubeconfig: Path, log: Path, port: int, *arguments: str) -> None:
        self._lab, self._kubeconfig, self._log, self._port, self._arguments = lab, kubeconfig, log, port, arguments
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it is ready."""
        program = str(Path(sys.executable).parent / "leasequeue-operator")
        flags = ["--http-port", str(self._port), "--resync-s", "10", *self._arguments]
        with self._log.open("ab") as log:
            command = self._lab.command("env", f"KUBECONFIG={self._kubeconfig}", program, *flags)
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        eventually("operator ready", lambda: self.answer("/readyz")[0] == 200, 90)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that runs inside on its behalf: signals go on to it."""
        assert self._process is not None
        return self._process

    def signal(self, number: int) -> None:
        """Send a signal to the operator itself, which lives in the cluster's pid namespace."""
        find = f"pgrep -f 'leasequeue-operator --http-port {self._port}'"
        self._lab.run("sh", "-c", f"kill -{number} $({find} | head -n 1)")

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text of an HTTP GET; status 0 where nobody answers."""
        read = (
            "import sys, urllib.request as r, urllib.error as e\n"
            "try:\n    a = r.urlopen(sys.argv[1], timeout=20)\nexcept e.HTTPError as ex:\n    a = ex\n"
            "print(a.status); print(a.read().decode())"
        )
        done = self._lab.run(sys.executable, "-c", read, f"http://127.0.0.1:{self._port}{path}", check=False)
        status, _, text = done.stdout.partition("\n")
        return (int(status), text) if done.returncode == 0 else (0, "")

    def metric(self, name: str) -> float:
        """Sum of all series of a name."""
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.answer("/metrics")[1], re.MULTILINE)
        return sum(map(float, found))

    def log(self) -> str:
        """Its output so far."""
        return self._log.read_text(errors="replace")


@contextlib.contextmanager
def node_postgres(lab: Lab, port: int, *tables: str) -> Iterator[str]:
    """A PostgreSQL on the node with these queue tables: its URI."""
    command = lab.command(sys.executable, "-m", "tests.operator.node_postgres", str(port), *tables)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        password = server.stdout.readline().strip()
        assert password, "no server"
        try:
            yield f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
        finally:
            server.stdin.close()


def conditions(body: dict[str, Any] | None) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of each condition of a LeaseQueue."""
    told = ((body or {}).get("status") or {}).get("conditions", ())
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in told}
