"""Names, folders, mounts and leftovers of a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devcluster import sweep, syscalls
from devcluster.errors import DevClusterError
from devcluster.paths import cache_root, cluster_paths


def test_clusters_of_two_names_share_no_path_and_no_cgroup() -> None:
    one, two = cluster_paths("one"), cluster_paths("two")

    for attribute in ("run", "data", "lock", "state", "kubeconfig", "cgroup"):
        assert getattr(one, attribute) != getattr(two, attribute)


def test_the_lock_lies_outside_the_folder_that_down_removes() -> None:
    paths = cluster_paths("one")

    assert paths.run not in paths.lock.parents


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "a-", "A", "a" * 31, "a b", "ä"])
def test_a_name_that_could_leave_its_folder_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(DevClusterError, match=r"lower-case letters, digits and inner dashes"):
        cluster_paths(name)


@pytest.mark.parametrize("name", ["a", "dev", "test-1", "a" * 30])
def test_plain_names_are_taken(name: str) -> None:
    assert cluster_paths(name).run.name == name


def test_the_cache_follows_its_own_variable_first() -> None:
    own = {"LEASEQUEUE_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}

    assert cache_root(own) == Path("/c")
    assert cache_root({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path("/x/leasequeue")
    assert cache_root({"HOME": "/h"}) == Path("/h/.cache/leasequeue")


def test_mounts_below_lists_only_what_lies_inside_innermost_first(tmp_path: Path) -> None:
    line = "1 1 0:1 / {} rw shared:1 - tmpfs tmpfs rw"
    mountinfo = tmp_path / "mountinfo"
    points = ["/", "/data/one", "/data/one/deep", "/data/one-more", "/data/one/with\\040space"]
    mountinfo.write_text("\n".join(line.format(point) for point in points))

    found = syscalls.mounts_below(Path("/data/one"), str(mountinfo))

    assert found == ["/data/one/with space", "/data/one/deep", "/data/one"]


def test_shared_folders_go_with_the_last_cluster_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, ours, theirs = tmp_path / "run", tmp_path / "ours", tmp_path / "theirs"
    theirs.mkdir()
    monkeypatch.setattr(sweep, "SHARED_FOLDERS", (ours, theirs))
    sweep.make_shared_folders(root)
    (root / "dev").mkdir()

    sweep.remove_shared_folders(root)
    assert ours.is_dir()

    (root / "dev").rmdir()
    sweep.remove_shared_folders(root)
    assert not ours.exists()
    assert theirs.is_dir(), "a folder that was there before is not ours to remove"
    assert not root.exists()


def test_a_second_cluster_does_not_forget_what_the_first_one_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, ours = tmp_path / "run", tmp_path / "ours"
    monkeypatch.setattr(sweep, "SHARED_FOLDERS", (ours,))

    sweep.make_shared_folders(root)
    sweep.make_shared_folders(root)

    assert json.loads((root / "made-folders.json").read_text()) == [str(ours)]
