"""Reads that are shared: once in a moment, never older than that, and a failure is nobody's but theirs who waited for it."""

from __future__ import annotations

import asyncio

import pytest

from leasequeue_operator.kinds import SECRET, Kind
from leasequeue_operator.kube import KubeError
from leasequeue_operator.observe.shared import SHARED_S, Found, SharedReads


class Api:
    """Counts the reads."""

    def __init__(self) -> None:
        self.now, self.reads, self.failing = 0.0, 0, False

    async def find(self, _kind: Kind, namespace: str, name: str) -> Found:
        self.reads += 1
        await asyncio.sleep(0)
        if self.failing:
            raise KubeError(500, "InternalError", "no")
        return None if name == "none" else {"metadata": {"name": f"{namespace}/{name}", "resourceVersion": str(self.reads)}}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def reads(api: Api) -> SharedReads:
    return SharedReads(api.find, lambda: api.now)


async def test_many_at_once_ask_once(api: Api, reads: SharedReads) -> None:
    found = await asyncio.gather(*(reads.find(SECRET, "team", "db") for _ in range(1000)))
    assert api.reads == 1
    assert all(f == found[0] for f in found)
    assert found[0] is not None


async def test_what_is_handed_out_is_never_older_than_its_time(api: Api, reads: SharedReads) -> None:
    first = await reads.find(SECRET, "team", "db")
    api.now += SHARED_S
    assert await reads.find(SECRET, "team", "db") == first
    api.now += 0.01
    assert await reads.find(SECRET, "team", "db") != first


async def test_names_and_namespaces_are_kept_apart(api: Api, reads: SharedReads) -> None:
    names = [("a", "db"), ("b", "db"), ("a", "other")]
    found = [await reads.find(SECRET, namespace, name) for namespace, name in names]
    assert [f["metadata"]["name"] for f in found if f] == ["a/db", "b/db", "a/other"]


async def test_that_there_is_none_is_shared_too(api: Api, reads: SharedReads) -> None:
    assert await reads.find(SECRET, "team", "none") is None
    assert await reads.find(SECRET, "team", "none") is None
    assert api.reads == 1


async def test_a_failure_is_told_to_all_who_wait_and_asked_anew_after(api: Api, reads: SharedReads) -> None:
    api.failing = True
    told = await asyncio.gather(*(reads.find(SECRET, "team", "db") for _ in range(3)), return_exceptions=True)
    assert [type(t) for t in told] == [KubeError] * 3
    assert api.reads == 1
    api.failing = False
    assert await reads.find(SECRET, "team", "db") is not None


async def test_one_who_gives_up_does_not_take_the_read_along(api: Api, reads: SharedReads) -> None:
    one = asyncio.create_task(reads.find(SECRET, "team", "db"))
    await asyncio.sleep(0)
    other = asyncio.create_task(reads.find(SECRET, "team", "db"))
    await asyncio.sleep(0)
    one.cancel()
    assert await other is not None
    assert api.reads == 1


async def test_old_reads_are_not_kept(api: Api, reads: SharedReads) -> None:
    for n in range(50):
        api.now += 1
        await reads.find(SECRET, "team", f"db{n}")
    assert len(reads._reads) == 1
