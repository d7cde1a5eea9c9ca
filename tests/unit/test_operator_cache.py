"""The cache: newer versions win, lists remove what is gone, children find their queue."""

from __future__ import annotations

from typing import Any

from leasequeue_operator.cache import Cache
from tests.operator.samples import UID, body

KEY = ("team", "orders")


def child(name: str = "w", version: int = 5, uid: str = "c1", owner: str = UID, **more: Any) -> dict[str, Any]:
    meta = {
        "namespace": "team", "name": name, "uid": uid, "resourceVersion": str(version),
        "labels": {"leasequeue.dev/queue-uid": owner},
    }  # fmt: skip
    return {"metadata": meta, **more}


def filled() -> Cache:
    cache = Cache()
    assert cache.put("LeaseQueue", body()) == KEY
    return cache


def test_a_child_concerns_its_queue() -> None:
    cache = filled()
    assert cache.put("Deployment", child()) == KEY
    assert cache.put("Deployment", child("x", owner="unknown", uid="c2")) is None
    assert [c["metadata"]["name"] for c in cache.children(UID, "Deployment")] == ["w"]
    assert cache.children(UID, "CronJob") == []


def test_an_older_version_does_not_replace_a_newer_one() -> None:
    cache = filled()
    cache.put("Deployment", child(version=9, spec="new"))
    cache.put("Deployment", child(version=8, spec="old"))
    assert cache.children(UID, "Deployment")[0]["spec"] == "new"


def test_an_object_made_anew_replaces_the_old_one_whatever_its_version() -> None:
    cache = filled()
    cache.put("Deployment", child(version=9, uid="old"))
    cache.put("Deployment", child(version=3, uid="new"))
    assert cache.children(UID, "Deployment")[0]["metadata"]["uid"] == "new"


def test_a_late_deletion_of_an_old_object_leaves_its_successor() -> None:
    cache = filled()
    cache.put("Deployment", child(version=9, uid="new"))
    cache.drop("Deployment", child(version=5, uid="old"))
    assert len(cache.children(UID, "Deployment")) == 1
    assert cache.drop("Deployment", child(version=9, uid="new")) == KEY
    assert cache.children(UID, "Deployment") == []


def test_a_list_removes_what_a_broken_watch_has_missed() -> None:
    cache = filled()
    cache.put("Pod", child("gone", 5, "p1"))
    cache.put("Pod", child("younger-than-the-list", 50, "p2"))
    assert cache.replace("Pod", [child("stays", 6, "p3")], 40, None) == {KEY}
    names = [p["metadata"]["name"] for p in cache.children(UID, "Pod")]
    assert names == ["stays", "younger-than-the-list"]


def test_a_list_of_one_namespace_leaves_the_others() -> None:
    cache = filled()
    cache.put("Pod", child("p", 5, "p1"))
    cache.replace("Pod", [], 40, "elsewhere")
    assert len(cache.children(UID, "Pod")) == 1


def test_a_list_without_differences_concerns_nobody() -> None:
    cache = filled()
    cache.put("Pod", child("p", 5, "p1"))
    assert cache.replace("Pod", [child("p", 5, "p1")], 40, None) == set()


def test_a_queue_that_is_gone_is_not_found_by_its_uid() -> None:
    cache = filled()
    assert cache.queue_by_uid(UID) is not None
    assert cache.drop("LeaseQueue", body()) == KEY
    assert (cache.queue(KEY), cache.queue_by_uid(UID), cache.queue_keys()) == (None, None, [])


def test_pods_are_kept_without_their_specs() -> None:
    cache = filled()
    cache.put("Pod", child(spec={"containers": ["big"]}, status={"phase": "Running", "podIP": "10.0.0.1"}))
    (pod,) = cache.children(UID, "Pod")
    assert "spec" not in pod
    assert pod["status"] == {"phase": "Running"}


def test_a_thousand_queues_leave_nothing_behind() -> None:
    cache = Cache()
    for n in range(1000):
        made = body(f"q{n}", uid=f"u{n}")
        cache.put("LeaseQueue", made)
        cache.put("Pod", child("p", owner=f"u{n}", uid=f"p{n}"))
        cache.drop("Pod", child("p", owner=f"u{n}", uid=f"p{n}"))
        cache.drop("LeaseQueue", made)
    assert cache._keys == {}
    assert cache._children == {}
