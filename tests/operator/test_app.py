"""The whole process in one loop against an imitated API server: start, silent watches, health, metrics, stop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.client import Configuration

from leasequeue_operator import app, handlers, rights
from leasequeue_operator.app import Operator
from leasequeue_operator.health import Watchdog
from leasequeue_operator.settings import Settings
from tests.operator import samples
from tests.operator.apiserver import ApiServer, Fault, used_right

QUEUES = "leasequeue.dev/v1alpha1/leasequeues"


@contextlib.asynccontextmanager
async def running(configuration: Configuration, **settings: Any) -> AsyncIterator[Operator]:
    """An operator, stopped at the end."""
    plain: dict[str, Any] = {"http_port": 0, "resync_s": 5, "request_timeout_s": 2, "workers": 4}
    operator = Operator(Settings(**{**plain, **settings}), configuration)
    task = asyncio.create_task(operator.run())
    try:
        yield operator
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(task, 30)


async def get(operator: Operator, path: str) -> tuple[int, str]:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{operator.health.port}{path}") as answer,
        ):
            return answer.status, await answer.text()
    except aiohttp.ClientError as ex:
        return 0, str(ex)


async def until(what: str, condition: Any, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(0.1)


def reason(api: ApiServer, name: str) -> str | None:
    found = api.stored(QUEUES, "team", name) or {}
    told = {c["type"]: c for c in (found.get("status") or {}).get("conditions", ())}
    return told["Ready"]["reason"] if "Ready" in told else None


async def ready(operator: Operator) -> None:
    async def is_ready() -> bool:
        return (await get(operator, "/readyz"))[0] == 200

    await until("ready", is_ready)


async def test_queues_that_are_there_at_the_start_are_served(api: ApiServer, configuration: Configuration) -> None:
    api.store(QUEUES, "team", samples.body())
    async with running(configuration) as operator:
        await until("served", lambda: reason(api, "orders") == "SecretNotFound")
        await ready(operator)
        status, text = await get(operator, "/metrics")
        assert status == 200
        assert 'leasequeue_operator_info{version="' in text
        assert "\nleasequeue_operator_acting 1.0\n" in text
        assert 'leasequeue_condition{queue="orders",queue_namespace="team",status="False",type="Ready"} 1.0' in text
        assert (await get(operator, "/healthz"))[0] == 200


async def test_a_watch_that_tells_is_enough(api: ApiServer, configuration: Configuration) -> None:
    async with running(configuration, resync_s=3600) as operator:
        await ready(operator)
        await asyncio.sleep(1)  # the watches open
        async with aiohttp.ClientSession() as session:
            body = samples.body("told")
            path = "/apis/leasequeue.dev/v1alpha1/namespaces/team/leasequeues"
            await session.post(f"{configuration.host}{path}", json=body)
        await until("told", lambda: reason(api, "told") == "SecretNotFound")


async def test_a_watch_that_is_silent_is_made_up_for_by_lists(api: ApiServer, configuration: Configuration) -> None:
    async with running(configuration) as operator:
        await ready(operator)
        # Stored behind the server's back: no watch ever tells of it.
        api.store(QUEUES, "team", samples.body("silent", uid="u-silent"))
        await until("seen", lambda: reason(api, "silent") == "SecretNotFound")
        api.objects[QUEUES, "team", "silent"].delete()

        async def gone() -> bool:
            return 'queue="silent"' not in (await get(operator, "/metrics"))[1]

        await until("gone, with its series", gone)


async def test_nothing_of_kopf_is_left_on_a_queue(api: ApiServer, configuration: Configuration) -> None:
    api.store(QUEUES, "team", samples.body())
    async with running(configuration) as operator:
        await ready(operator)
        await until("served", lambda: reason(api, "orders") is not None)
        await asyncio.sleep(2)
    meta = (api.stored(QUEUES, "team", "orders") or {})["metadata"]
    assert not meta.get("finalizers")
    assert not meta.get("annotations")
    writes = {(m, p) for m, p in api.calls if m in ("PATCH", "PUT", "DELETE")}
    assert writes == {("PATCH", "/apis/leasequeue.dev/v1alpha1/namespaces/team/leasequeues/orders/status")}


async def test_without_the_crd_it_waits_and_says_so(
    api: ApiServer, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "START_RETRY_S", 0.2)
    api.faults.append(Fault("GET", "/leasequeues$", 404, times=10**6))
    async with running(configuration) as operator:

        async def told() -> bool:
            status, text = await get(operator, "/readyz")
            return status == 503 and "CRD leasequeues.leasequeue.dev is not installed" in text

        await until("told", told)
        assert (await get(operator, "/healthz"))[0] == 200
        assert "\nleasequeue_operator_acting 0.0\n" in (await get(operator, "/metrics"))[1]
        api.faults.clear()
        await ready(operator)


async def test_namespaces_that_are_not_named_are_left_alone(api: ApiServer, configuration: Configuration) -> None:
    api.store(QUEUES, "team", samples.body())
    api.store(QUEUES, "other", samples.body("foreign", uid="u-foreign"))
    async with running(configuration, watch_namespaces="team") as operator:
        await ready(operator)
        await until("served", lambda: reason(api, "orders") is not None)
    assert not [path for _, path in api.calls if "/namespaces/other/" in path]
    assert not [path for _, path in api.calls if path.endswith("/v1alpha1/leasequeues")]


async def test_two_namespaces(api: ApiServer, configuration: Configuration) -> None:
    api.store(QUEUES, "one", samples.body("a", uid="ua"))
    api.store(QUEUES, "two", samples.body("b", uid="ub"))
    async with running(configuration, watch_namespaces="one,two"):

        def served() -> bool:
            return all((api.stored(QUEUES, ns, name) or {}).get("status") for ns, name in (("one", "a"), ("two", "b")))

        await until("both served", served)


def test_watches_are_bounded_on_both_sides() -> None:
    made = handlers.settings(Settings(watch_timeout_s=120))
    assert made.watching.server_timeout == 120
    assert made.watching.client_timeout == 130
    assert made.watching.inactivity_timeout < 120
    assert made.posting.enabled is False
    assert made.peering.standalone is True


def test_a_loop_that_does_not_go_round_is_told() -> None:
    now = 0.0
    watchdog = Watchdog(lambda: now)
    watchdog.expect("resync", 60)
    now = 59.0
    assert watchdog.stuck() == []
    now = 61.0
    assert watchdog.stuck() == ["resync"]
    watchdog.beat("resync")
    assert watchdog.stuck() == []


async def test_every_call_is_covered_by_a_right(api: ApiServer, configuration: Configuration) -> None:
    api.store(QUEUES, "team", samples.body())
    async with running(configuration) as operator:
        await ready(operator)
        await until("served", lambda: reason(api, "orders") is not None)
    assert len(api.calls) > 20
    uncovered = {(m, p) for m, p in api.calls if not covered(m, p)}
    assert uncovered == set()


def covered(method: str, path: str) -> bool:
    """Whether a call is one of `rights.RIGHTS`, or open to every account (discovery, reviews of oneself)."""
    verb, resource = used_right(method, path)
    verbs = {"list", "watch"} if verb == "list" else {verb}
    return not verb or any(r.resource == resource and verbs & set(r.verbs) for r in rights.RIGHTS)
