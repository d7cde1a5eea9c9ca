"""Cache keys and commands of the programs, packages and toolchain."""

from __future__ import annotations

import io
import json
import multiprocessing
import tarfile
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import pytest

from devcluster import binaries, packages, pauseimage, toolchain
from devcluster.binaries import FAMILIES, TOOLS, Family, build_command, cache_key
from devcluster.errors import DevClusterError
from devcluster.locks import locked

FAMILY = Family("etcd", {"etcd": "example.org/etcd"})


def write_module(folder: Path) -> Path:
    (folder / "go.mod").write_text("module m\n")
    (folder / "go.sum").write_text("a h1:b\n")
    return folder


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "go.mod").write_text("module n\n"),
        lambda folder: (folder / "go.sum").write_text("a h1:c\n"),
        lambda folder: (folder / "main.go").write_text("package main\n"),
    ],
    ids=["go.mod", "go.sum", "source"],
)
def test_the_key_changes_with_every_file_that_is_compiled(tmp_path: Path, change: object) -> None:
    before = cache_key(write_module(tmp_path), FAMILY, "go1.26.8")

    assert callable(change)
    change(tmp_path)

    assert cache_key(tmp_path, FAMILY, "go1.26.8") != before


def test_the_key_changes_with_go_version_flags_and_packages_and_with_nothing_else(tmp_path: Path) -> None:
    write_module(tmp_path)
    before = cache_key(tmp_path, FAMILY, "go1.26.8")
    flags = Family("etcd", FAMILY.packages, "-s")
    more = Family("etcd", {**FAMILY.packages, "etcdctl": "example.org/etcdctl"})
    (tmp_path / "notes.txt").write_text("not compiled")

    assert cache_key(tmp_path, FAMILY, "go1.26.8") == before
    assert len({before, *(cache_key(tmp_path, family, "go1.26.8") for family in (flags, more))}) == 3
    assert cache_key(tmp_path, FAMILY, "go1.26.9") != before


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.module)
def test_each_module_pins_its_dependencies_with_checksums_and_no_path_of_a_machine(family: Family) -> None:
    module = (TOOLS / family.module / "go.mod").read_text()

    assert (TOOLS / family.module / "go.sum").stat().st_size > 1000
    assert not [line for line in module.splitlines() if "=> /" in line or "=> ." in line]


def test_the_stamped_versions_are_those_of_the_modules() -> None:
    assert f"k8s.io/kubernetes {binaries.KUBERNETES_VERSION}" in (TOOLS / "kubernetes" / "go.mod").read_text()
    assert f"helm.sh/helm/v4 {binaries.HELM_VERSION}" in (TOOLS / "helm" / "go.mod").read_text()


def test_a_build_may_not_change_its_module() -> None:
    command = build_command("go", "example.org/etcd", "-s", Path("/out/etcd"))

    assert command[:2] == ["go", "build"]
    assert "-mod=readonly" in command
    assert command[-3:] == ["-o", "/out/etcd", "example.org/etcd"]


def test_go_never_fetches_another_toolchain() -> None:
    assert toolchain.environment()["GOTOOLCHAIN"] == "local"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.4 linux/amd64", (1, 4)),
        ("go version devel go1.27-abc linux/amd64", (1, 27)),
        ("no such program", None),
    ],
)
def test_go_version_is_read_as_numbers(text: str, version: tuple[int, int] | None) -> None:
    assert toolchain.parse_version(text) == version


def test_missing_packages_are_named_once() -> None:
    needed = {"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2"}

    assert packages.missing(needed, lambda thing: thing == "ip") == ["containerd", "runc"]
    assert packages.missing(needed, lambda _thing: True) == []


def test_kubebuilder_assets_without_programs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    with pytest.raises(DevClusterError, match="KUBEBUILDER_ASSETS"):
        binaries._test_assets()


def test_kubebuilder_assets_replace_etcd_and_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).touch(mode=0o755)

    assert binaries._test_assets() == {name: str(tmp_path / name) for name in ("etcd", "kube-apiserver")}


def hold(path: Path, inside: Synchronized[int], most: Synchronized[int]) -> None:
    for _ in range(20):
        with locked(path):
            with inside.get_lock():
                inside.value += 1
                most.value = max(most.value, inside.value)
            time.sleep(0.001)
            with inside.get_lock():
                inside.value -= 1


def test_one_process_at_a_time_holds_a_lock_though_its_file_comes_and_goes(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    inside, most = context.Value("i", 0), context.Value("i", 0)
    path = tmp_path / "lock"
    processes = [context.Process(target=hold, args=(path, inside, most)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)

    assert [process.exitcode for process in processes] == [0] * 4
    assert most.value == 1
    assert not path.exists()


def test_a_lock_that_is_kept_too_long_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    told: list[str] = []

    with (
        locked(path),
        pytest.raises(DevClusterError, match=str(path)),
        locked(path, timeout=0, on_wait=lambda: told.append("waiting")),
    ):
        pass

    assert told == ["waiting"]


def test_the_pause_image_is_an_archive_whose_layer_holds_the_program() -> None:
    packed = pauseimage.pack(b"\x7fELF", "localhost/pause:1")

    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        manifest = json.load(archive.extractfile("manifest.json") or io.BytesIO())[0]
        assert manifest["RepoTags"] == ["localhost/pause:1"]
        with tarfile.open(fileobj=archive.extractfile(manifest["Layers"][0])) as layer:
            assert layer.getmember("pause").mode == 0o755
