"""The development cluster itself: that it is a real Kubernetes, and that nothing of it stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from devcluster import cgroups, syscalls
from devcluster.keeper import Processes, read_processes
from devcluster.paths import ClusterPaths, cluster_paths

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),  # the first run on a machine builds Kubernetes
    pytest.mark.skipif(bool(os.environ.get("KUBECONFIG")), reason="KUBECONFIG is set: devcluster starts nothing"),
    pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="devcluster needs root"),
]

RESTRICTED = {
    "securityContext": {"runAsNonRoot": True, "runAsUser": 4711, "seccompProfile": {"type": "RuntimeDefault"}},
    "terminationGracePeriodSeconds": 0,
}
IMAGE = "leasequeue-postgres:dev"  # any image with Python in it
CLIENT = """
import ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
tls = ssl.create_default_context(cafile=folder + "ca.crt")
token = open(folder + "token").read()
request = urllib.request.Request("https://kubernetes.default.svc/version", headers={"Authorization": "Bearer " + token})
print("api", urllib.request.urlopen(request, context=tls, timeout=10).status)
print("service", urllib.request.urlopen("http://server:80/", timeout=10).status)
"""


def devcluster(*args: str, timeout: float = 800, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ``python -m devcluster``."""
    command = [sys.executable, "-m", "devcluster", *args]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if check:
        assert result.returncode == 0, f"{args}: {result.stdout}{result.stderr}"
    return result


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Poll ``condition`` until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def running(paths: ClusterPaths) -> Processes:
    processes = read_processes(paths)
    assert processes is not None
    return processes


def namespace_of(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return None


def processes_in(namespace: str) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if namespace_of(pid) == namespace]


def links() -> set[str]:
    return {entry.name for entry in Path("/sys/class/net").iterdir()}


def traces(paths: ClusterPaths) -> list[str]:
    """Whatever of a cluster can be found on the machine."""
    found = [str(path) for path in (paths.run, paths.data, paths.lock) if path.exists()]
    found += [str(root / paths.cgroup) for root in cgroups.hierarchies() if (root / paths.cgroup).exists()]
    return found + syscalls.mounts_below(paths.data) + syscalls.mounts_below(paths.run)


@pytest.fixture(scope="module")
def paths() -> Iterator[ClusterPaths]:
    name = f"test-{os.getpid()}"
    devcluster("up", "--name", name, "--with-parent", str(os.getpid()))
    devcluster("images", "postgres", "--name", name)
    yield cluster_paths(name)
    devcluster("down", "--name", name)


@pytest.fixture
def other() -> Iterator[ClusterPaths]:
    """A second cluster, to be killed in some way."""
    paths = cluster_paths(f"other-{os.getpid()}")
    devcluster("up", "--name", paths.name, "--with-parent", str(os.getpid()))
    yield paths
    devcluster("down", "--name", paths.name)


def kubectl(paths: ClusterPaths, *args: str, stdin: object = None, check: bool = True) -> str:
    command = [sys.executable, "-m", "devcluster", "exec", "--name", paths.name, "--", "kubectl", *args]
    text = None if stdin is None else json.dumps(stdin)
    result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    if check:
        assert result.returncode == 0, f"kubectl {args}: {result.stderr}"
    return result.stdout if check else result.stdout + result.stderr


@pytest.fixture(scope="module")
def namespace(paths: ClusterPaths) -> str:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": "restricted", "labels": labels}
    kubectl(paths, "apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return "restricted"


def pod_spec(*command: str) -> dict[str, object]:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    return {**RESTRICTED, "restartPolicy": "Never", "containers": [container]}


def pod(name: str, *command: str) -> dict[str, object]:
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(*command)}


def phase(paths: ClusterPaths, namespace: str, name: str) -> str:
    return kubectl(paths, "-n", namespace, "get", "pod", name, "-o", "jsonpath={.status.phase}")


def test_up_on_a_healthy_cluster_changes_nothing(paths: ClusterPaths) -> None:
    before = running(paths)

    assert "was up already" in devcluster("up", "--name", paths.name).stderr

    assert running(paths) == before


def test_status_tells_ready_and_absent_apart(paths: ClusterPaths) -> None:
    ready = devcluster("status", "--name", paths.name, "--json")
    absent = devcluster("status", "--name", "no-such-cluster", "--json", check=False)

    assert json.loads(ready.stdout)["phase"] == "ready"
    assert json.loads(absent.stdout)["phase"] == "absent"
    assert absent.returncode == 1


def test_a_restricted_pod_reaches_the_api_server_and_a_service_by_name(paths: ClusterPaths, namespace: str) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    server = pod("server", "python3", "-m", "http.server", "8080", "--directory", "/usr/share/python3")
    kubectl(paths, "-n", namespace, "apply", "-f", "-", stdin=service)
    kubectl(paths, "-n", namespace, "apply", "-f", "-", stdin=server)
    wait_until(lambda: phase(paths, namespace, "server") == "Running", 60, "the server runs")
    wait_until(
        lambda: kubectl(paths, "-n", namespace, "get", "endpointslices", "-o", "jsonpath={.items[*].endpoints[*]}"),
        30,
        "the Service has an endpoint",
    )

    retry = f"import time\nfor _ in range(20):\n try:\n  exec({CLIENT!r}); break\n except OSError: time.sleep(0.5)\n"
    kubectl(paths, "-n", namespace, "apply", "-f", "-", stdin=pod("client", "python3", "-c", retry))
    wait_until(lambda: phase(paths, namespace, "client") in ("Succeeded", "Failed"), 60, "the client ends")

    logs = kubectl(paths, "-n", namespace, "logs", "client")
    assert "api 200" in logs
    assert "service 200" in logs


def test_the_restricted_profile_is_enforced(paths: ClusterPaths, namespace: str) -> None:
    privileged = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged"},
        "spec": {"containers": [{"name": "c", "image": IMAGE, "securityContext": {"privileged": True}}]},
    }

    output = kubectl(paths, "-n", namespace, "apply", "-f", "-", stdin=privileged, check=False)

    assert "violates PodSecurity" in output


@pytest.mark.slow
def test_a_cronjob_runs(paths: ClusterPaths, namespace: str) -> None:
    cronjob = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {
            "schedule": "* * * * *",
            "jobTemplate": {"spec": {"template": {"spec": pod_spec("python3", "-c", "print('ticked')")}}},
        },
    }
    kubectl(paths, "-n", namespace, "apply", "-f", "-", stdin=cronjob)

    def succeeded() -> str:
        return kubectl(paths, "-n", namespace, "get", "cronjob", "tick", "-o", "jsonpath={.status.lastSuccessfulTime}")

    wait_until(succeeded, 120, "the CronJob has succeeded once")


def test_the_postgres_image_runs_as_any_user_on_a_read_only_root(paths: ClusterPaths, namespace: str) -> None:
    password, database = r"""p@s:w/o%r#d ?&='"\ x""", 'my-"db'
    database_pod = pod("database", "postgres-entrypoint", "postgres", "-c", "max_connections=77")
    spec = cast(dict[str, Any], database_pod["spec"])
    spec["containers"][0]["env"] = [
        {"name": "POSTGRES_PASSWORD", "value": password},
        {"name": "POSTGRES_DB", "value": database},
    ]
    spec["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/var/lib/postgresql/data"}]
    spec["volumes"] = [{"name": "data", "emptyDir": {}}]
    spec["securityContext"] = {**spec["securityContext"], "fsGroup": 4711}
    kubectl(paths, "-n", namespace, "apply", "-f", "-", stdin=database_pod)
    wait_until(lambda: phase(paths, namespace, "database") == "Running", 60, "PostgreSQL runs")
    address = kubectl(paths, "-n", namespace, "get", "pod", "database", "-o", "jsonpath={.status.podIP}")
    query = (
        "import json, sys, psycopg; wanted = json.load(sys.stdin); c = psycopg.connect(**wanted);"
        "print(c.execute('SHOW max_connections').fetchone()[0], c.execute('SHOW fsync').fetchone()[0])"
    )
    wanted = {"host": address, "user": "postgres", "password": password, "dbname": database, "connect_timeout": 5}
    command = [sys.executable, "-m", "devcluster", "exec", "--name", paths.name, "--", sys.executable, "-c", query]

    def answer(password: str) -> subprocess.CompletedProcess[str]:
        text = json.dumps({**wanted, "password": password})
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=30)

    wait_until(lambda: answer(password).stdout == "77 on\n", 30, "PostgreSQL answers with fsync on")
    assert "password authentication failed" in answer("wrong").stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["operator", "worker", "reclaimer"])
def test_our_images_start_as_any_user_on_a_read_only_root(paths: ClusterPaths, namespace: str, name: str) -> None:
    built = devcluster("images", name, "--name", paths.name, "--json")
    image = json.loads(built.stdout)[f"leasequeue-{name}"]
    starter = pod(name)
    container = cast(dict[str, Any], starter["spec"])["containers"][0]
    del container["command"]
    container |= {"image": image, "args": ["--help"]}
    kubectl(paths, "-n", namespace, "apply", "-f", "-", stdin=starter)
    wait_until(lambda: phase(paths, namespace, name) in ("Succeeded", "Failed"), 60, f"leasequeue-{name} --help ends")

    logs = kubectl(paths, "-n", namespace, "logs", name)
    assert phase(paths, namespace, name) == "Succeeded", logs
    assert f"Usage: leasequeue-{name}" in logs


def test_exec_keeps_exit_code_and_folder_and_shows_the_tools(paths: ClusterPaths, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "devcluster", "exec", "--name", paths.name, "--", "sh", "-c",
               "pwd; command -v helm; echo $KUBECONFIG; exit 7"]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30)

    assert result.returncode == 7
    assert result.stdout.split() == [str(tmp_path), str(paths.bin / "helm"), str(paths.kubeconfig)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_exec_passes_signals_on(paths: ClusterPaths, number: signal.Signals) -> None:
    script = "trap 'exit 42' TERM INT; echo ready; while :; do sleep 0.1; done"
    command = [sys.executable, "-m", "devcluster", "exec", "--name", paths.name, "--", "bash", "-c", script]
    # A background job of a shell ignores SIGINT, and so would all that this test starts.
    default = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, preexec_fn=default)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(20) == 42
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_the_cluster_has_no_way_out(paths: ClusterPaths) -> None:
    routes = devcluster("exec", "--name", paths.name, "--", "ip", "route").stdout

    assert "default" not in routes


def test_the_machine_keeps_its_kernel_settings(other: ClusterPaths) -> None:
    names = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
    before = [Path("/proc/sys", name).read_text() for name in names]

    inside = devcluster("exec", "--name", other.name, "--", "cat", "/proc/sys/kernel/panic").stdout

    assert inside == "10\n", "the kubelet must see the value it insists on"
    assert [Path("/proc/sys", name).read_text() for name in names] == before


def test_down_leaves_nothing_while_another_cluster_goes_on(paths: ClusterPaths) -> None:
    other = cluster_paths(f"gone-{os.getpid()}")
    before = links()
    devcluster("up", "--name", other.name, "--with-parent", str(os.getpid()))
    start_pod(other)
    inside = namespace_of(running(other).init.pid)
    assert inside is not None
    assert len(processes_in(inside)) > 8
    assert traces(other)

    devcluster("down", "--name", other.name)

    assert traces(other) == []
    assert processes_in(inside) == []
    assert links() == before
    assert kubectl(paths, "get", "--raw", "/readyz") == "ok"


def start_pod(paths: ClusterPaths) -> None:
    """Have a container run, so that there is a shim, a mount, a veth pair and a pod cgroup to leave behind."""
    image = "localhost/leasequeue-pause:1"
    spec = {"containers": [{"name": "c", "image": image, "imagePullPolicy": "Never"}]}
    kubectl(paths, "apply", "-f", "-",
            stdin={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})  # fmt: skip
    wait_until(lambda: phase(paths, "default", "p") == "Running", 60, "a pod runs")


def test_the_keeper_cleans_up_after_a_killed_supervisor(other: ClusterPaths) -> None:
    start_pod(other)
    inside = namespace_of(running(other).init.pid)
    assert inside is not None

    os.kill(running(other).init.pid, signal.SIGKILL)

    wait_until(lambda: traces(other) == [], 30, "no trace of the cluster")
    assert processes_in(inside) == []


def test_down_cleans_up_after_a_killed_keeper(other: ClusterPaths) -> None:
    start_pod(other)
    processes = running(other)
    inside = namespace_of(processes.init.pid)
    assert inside is not None

    os.kill(processes.keeper.pid, signal.SIGKILL)

    wait_until(lambda: processes_in(inside) == [], 20, "the cluster dies with its keeper")
    assert traces(other), "nobody is left to clean up: the test would show nothing"
    devcluster("down", "--name", other.name)
    assert traces(other) == []


def test_up_replaces_a_dead_cluster(other: ClusterPaths) -> None:
    os.kill(running(other).keeper.pid, signal.SIGKILL)
    before = running(other)
    wait_until(lambda: not before.init.alive(), 20, "the cluster is dead")

    devcluster("up", "--name", other.name, "--with-parent", str(os.getpid()))

    assert running(other) != before
    assert kubectl(other, "get", "--raw", "/readyz") == "ok"


def test_the_cluster_dies_with_its_parent() -> None:
    paths = cluster_paths(f"orphan-{os.getpid()}")
    with subprocess.Popen(["sleep", "600"]) as parent:
        devcluster("up", "--name", paths.name, "--with-parent", str(parent.pid))
        inside = namespace_of(running(paths).init.pid)
        assert inside is not None
        parent.kill()

    wait_until(lambda: traces(paths) == [], 30, "no trace of the cluster")
    assert processes_in(inside) == []


def test_a_crashed_part_is_started_again(other: ClusterPaths) -> None:
    def scheduler() -> int:
        return int(json.loads(other.state.read_text())["pids"]["kube-scheduler"])

    before = scheduler()
    devcluster("exec", "--name", other.name, "--", "kill", "-9", str(before))

    wait_until(lambda: scheduler() != before, 20, "the scheduler has a new process")
    start_pod(other)
