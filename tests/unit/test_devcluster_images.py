"""What images are made of, how they are cached, and how they reach a cluster."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from devcluster import baseimage, external, imagespec, ocilayout
from devcluster.errors import DevClusterError
from devcluster.images import stage
from devcluster.imagespec import IMAGES, REPOSITORY, ImageSpec, content_key, references, source_files

SPEC = ImageSpec("sample", ("package",))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "Dockerfile.sample").write_text("FROM scratch\n")
    (tmp_path / "package" / "sql").mkdir(parents=True)
    (tmp_path / "package" / "a.py").write_text("a = 1\n")
    (tmp_path / "package" / "sql" / "claim.sql").write_text("SELECT 1\n")
    return tmp_path


def test_the_key_changes_with_content_name_mode_and_base(repository: Path) -> None:
    keys = [content_key(SPEC, "base", repository), content_key(SPEC, "other", repository)]
    (repository / "package" / "sql" / "claim.sql").write_text("SELECT 2\n")
    keys.append(content_key(SPEC, "base", repository))
    (repository / "package" / "a.py").rename(repository / "package" / "b.py")
    keys.append(content_key(SPEC, "base", repository))
    (repository / "package" / "b.py").chmod(0o755)
    keys.append(content_key(SPEC, "base", repository))

    assert len(set(keys)) == 5


def test_what_python_and_editors_leave_behind_does_not_count(repository: Path) -> None:
    before = content_key(SPEC, "base", repository)
    (repository / "package" / "__pycache__").mkdir()
    (repository / "package" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    (repository / "package" / ".a.py.swp").write_bytes(b"x")

    assert content_key(SPEC, "base", repository) == before


def test_a_missing_file_is_named(repository: Path) -> None:
    spec = ImageSpec("sample", ("package", "requirements/sample.lock"))

    with pytest.raises(DevClusterError, match=r"requirements/sample\.lock"):
        source_files(spec, repository)


def test_staged_files_carry_one_date_so_that_content_alone_decides(repository: Path, tmp_path: Path) -> None:
    target = tmp_path / "context"
    target.mkdir()

    stage(SPEC, target, repository)

    staged = sorted(file.relative_to(target) for file in target.rglob("*") if file.is_file())
    assert staged == source_files(SPEC, repository)
    assert len({path.stat().st_mtime for path in target.rglob("*")}) == 1


def test_images_are_chosen_by_either_name() -> None:
    assert imagespec.select(["worker", "leasequeue-postgres"]) == [IMAGES["worker"], IMAGES["postgres"]]
    assert imagespec.select([]) == list(IMAGES.values())
    with pytest.raises(DevClusterError, match="no image nope; there is operator"):
        imagespec.select(["nope"])


@pytest.mark.parametrize("spec", IMAGES.values(), ids=lambda spec: spec.name)
def test_dockerfiles_copy_what_the_key_covers_and_run_as_a_number(spec: ImageSpec) -> None:
    text = (imagespec.REPOSITORY / spec.dockerfile).read_text()
    copies = [line.split()[1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line]
    copied = [word for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line
              for word in line.split()[1:-1]]  # fmt: skip

    assert copies
    assert sorted(copied) == sorted(spec.contents)
    assert "USER 10001:0" in text.splitlines()
    assert text.splitlines()[[line.startswith("ARG BASE=") for line in text.splitlines()].index(True)].count(":") == 1


def test_an_image_answers_to_the_name_a_manifest_would_use() -> None:
    names = references(IMAGES["worker"], "0123")

    assert "docker.io/library/leasequeue-worker:dev" in names
    assert "localhost/leasequeue-worker:0123" in names


@pytest.mark.parametrize("manifest", ["deploy/operator/deployment.yaml", "deploy/examples/postgres.yaml"])
def test_the_images_that_deploy_names_are_the_ones_loaded(manifest: str) -> None:
    named = set(re.findall(r"leasequeue-[a-z]+:\S+", (REPOSITORY / manifest).read_text()))
    loaded = {name for spec in IMAGES.values() for name in references(spec, "0123")}

    assert named
    assert {f"docker.io/library/{name}" for name in named} <= loaded


def add_blob(layout: Path, content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return f"sha256:{digest}"


def add_image(layout: Path, reference: str, layers: list[bytes]) -> dict[str, Any]:
    digests = [{"digest": add_blob(layout, layer)} for layer in layers]
    config = {"digest": add_blob(layout, reference.encode())}
    manifest = json.dumps({"config": config, "layers": digests}).encode()
    entry = {"mediaType": "m", "digest": add_blob(layout, manifest), "size": len(manifest)}
    index = layout / "index.json"
    known = json.loads(index.read_text())["manifests"] if index.exists() else []
    annotated = {**entry, "annotations": {"org.opencontainers.image.ref.name": reference}}
    index.write_text(json.dumps({"manifests": [*known, annotated]}))
    return entry


def test_an_archive_holds_shared_layers_once_and_every_name(tmp_path: Path) -> None:
    one = add_image(tmp_path, "one:1", [b"base", b"one"])
    two = add_image(tmp_path, "two:1", [b"base", b"two"])
    out = io.BytesIO()

    ocilayout.write_archive(tmp_path, [(one, ["a:dev", "a:1"]), (two, ["b:dev"])], set(), out)

    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
        index = json.load(archive.extractfile("index.json") or io.BytesIO())
        blobs = [name for name in archive.getnames() if name.startswith("blobs/")]
    names = {entry["annotations"]["io.containerd.image.name"]: entry["digest"] for entry in index["manifests"]}
    assert names == {"a:dev": one["digest"], "a:1": one["digest"], "b:dev": two["digest"]}
    assert len(blobs) == 7


def test_blobs_the_reader_has_are_left_out(tmp_path: Path) -> None:
    image = add_image(tmp_path, "one:1", [b"base", b"one"])
    base = f"sha256:{hashlib.sha256(b'base').hexdigest()}"

    written = ocilayout.write_archive(tmp_path, [(image, ["a:dev"])], {base}, io.BytesIO())

    assert base not in written
    assert len(written) == 3


def test_pruning_keeps_the_newest_of_one_repository_and_all_of_others(tmp_path: Path) -> None:
    other = add_image(tmp_path, "two:1", [b"base", b"two"])
    add_image(tmp_path, "one:1", [b"base", b"old"])
    kept = add_image(tmp_path, "one:2", [b"base", b"new"])
    old = tmp_path / "blobs" / "sha256" / hashlib.sha256(b"old").hexdigest()

    assert ocilayout.prune(tmp_path, "one", keep=1, min_age=-1) == ["one:1"]

    assert not old.exists()
    assert ocilayout.find_manifest(tmp_path, "one:1") is None
    for reference, image in (("one:2", kept), ("two:1", other)):
        assert ocilayout.find_manifest(tmp_path, reference) == image
        assert all(ocilayout.blob_path(tmp_path, digest).exists() for digest in ocilayout.blobs_of(tmp_path, image))


def test_pruning_leaves_young_blobs_to_whoever_is_reading_them(tmp_path: Path) -> None:
    add_image(tmp_path, "one:1", [b"old"])
    add_image(tmp_path, "one:2", [b"new"])

    assert ocilayout.prune(tmp_path, "one", keep=1) == ["one:1"]

    assert (tmp_path / "blobs" / "sha256" / hashlib.sha256(b"old").hexdigest()).exists()


def test_the_mirror_is_debian_s_main_archive_and_not_a_third_party_s() -> None:
    targets = (
        "Other|Other|main|http://other.example/apt/\n"
        "Debian|Debian-Security|main|http://mirror.example/debian-security/\n"
        "Debian|Debian|contrib|http://mirror.example/wrong/\n"
        "Debian|Debian|main|http://mirror.example/debian/\n"
    )

    assert baseimage.choose_mirror(targets) == "http://mirror.example/debian/"
    assert baseimage.choose_mirror("Ubuntu|Ubuntu|main|http://mirror.example/ubuntu/\n") is None


def test_the_user_s_loader_gets_the_archive_where_it_asks_for_it() -> None:
    command = external.load_command("kind load image-archive {archive} --name 'my kind'", Path("/tmp/a b.tar"))

    assert command == ["kind", "load", "image-archive", "/tmp/a b.tar", "--name", "my kind"]
    with pytest.raises(DevClusterError, match=r"\{archive\}"):
        external.load_command("kind load", Path("/a.tar"))


def test_without_a_loader_the_message_tells_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(external.LOADER, raising=False)

    with pytest.raises(DevClusterError, match="kind load image-archive"):
        external.load([Path("/a.tar")])
