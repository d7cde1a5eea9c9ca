"""The demo's command line where it cannot run: what it says, and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from demo import kube
from demo.cli import main
from demo.errors import DemoError


def test_without_root_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 1
    assert "needs root" in result.output
    assert "kind create cluster" in result.output


def test_a_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 1
    assert f"KUBECONFIG={tmp_path / 'missing'}: the cluster does not answer" in result.output


@pytest.mark.parametrize("items", ["199", "2358", "many"])
def test_items_out_of_range_are_refused(items: str) -> None:
    result = CliRunner().invoke(main, ["--items", items])
    assert result.exit_code == 2
    assert "--items" in result.output


def script(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs come first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_a_failed_call_tells_its_last_lines_but_not_its_input(programs: Path) -> None:
    script(programs, "kubectl", "cat >/dev/null; echo no such thing >&2; exit 3")
    with pytest.raises(DemoError, match=r"kubectl apply .*: no such thing") as caught:
        kube.apply([{"kind": "Secret", "stringData": {"password": "hunter2"}}])
    assert "hunter2" not in str(caught.value)


def test_a_call_that_hangs_ends_at_its_deadline(programs: Path) -> None:
    script(programs, "kubectl", "exec sleep 60")
    with pytest.raises(DemoError, match="kubectl get pods: no end within 0 s"):
        kube.kubectl("get", "pods", timeout=0.2)


def test_a_forward_that_fails_says_why_and_leaves_no_process(programs: Path) -> None:
    script(programs, "kubectl", f"echo $$ > {programs}/pid; echo 'error: pod not found'; exit 1")
    with (
        pytest.raises(DemoError, match="port-forward pod/postgres: error: pod not found"),
        kube.forward("n", "pod/postgres", 1),
    ):
        pytest.fail("there is nothing to forward to")
    assert not Path(f"/proc/{(programs / 'pid').read_text().strip()}").exists()


def test_a_forward_gives_its_port_and_ends(programs: Path) -> None:
    script(programs, "kubectl", f"echo $$ > {programs}/pid; echo 'Forwarding from 127.0.0.1:41234 -> 5432'; exec sleep 60")
    with kube.forward("n", "pod/postgres", 5432) as port:
        assert port == 41234
    assert not Path(f"/proc/{(programs / 'pid').read_text().strip()}").exists()


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DemoError, match="no helm on PATH"):
        kube.program("helm")
