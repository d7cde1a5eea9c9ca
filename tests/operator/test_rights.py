"""A right that lacks is named in log, metric and readiness; the operator does without it what it can, and heals when it is granted."""

from __future__ import annotations

import base64
import re

import pytest
from kubernetes.aio.client import Configuration

from leasequeue_operator import app
from leasequeue_operator.app import Operator
from leasequeue_operator.rights import RIGHTS, Right, needed_to_start, single_rights
from tests.operator import samples
from tests.operator.apiserver import ApiServer
from tests.operator.test_app import QUEUES, get, reason, running, until

ALL = list(single_rights())
NEEDED = [(r, v) for r, v in ALL if needed_to_start(r, v)]
REST = [(r, v) for r, v in ALL if not needed_to_start(r, v)]


def label(right: Right, verb: str) -> str:
    return f"{verb} {right.resource}{'.' + right.group if right.group else ''}"


def names(rights: list[tuple[Right, str]]) -> list[str]:
    return [label(right, verb) for right, verb in rights]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, api: ApiServer) -> None:
    monkeypatch.setattr(app, "START_RETRY_S", 0.2)
    api.store(QUEUES, "team", samples.body())


async def told(operator: Operator, status: int, text: str) -> None:
    async def is_told() -> bool:
        answered, body = await get(operator, "/readyz")
        return answered == status and text in body

    await until(f"{status} {text}", is_told)


async def test_what_is_needed_to_start() -> None:
    assert {right.resource for right, _ in NEEDED} == {"leasequeues", "deployments", "cronjobs", "jobs", "pods"}
    assert {right.resource for right in RIGHTS if right.optional} == {"events", "horizontalpodautoscalers", "podmonitors"}


@pytest.mark.parametrize(("right", "verb"), NEEDED, ids=names(NEEDED))
async def test_it_waits_for_what_it_cannot_do_without_and_says_for_what(
    api: ApiServer, configuration: Configuration, right: Right, verb: str
) -> None:
    api.denied = {(verb, right.resource)}
    async with running(configuration) as operator:
        await told(operator, 503, f"{label(right, verb)} in all namespaces")
        text = (await get(operator, "/metrics"))[1]
        assert re.search(
            rf'right_missing{{in_namespace="",resource="{label(right, verb).split()[1]}",verb="{verb}"}} 1.0', text
        )
        assert (await get(operator, "/healthz"))[0] == 200
        api.denied = set()
        await told(operator, 200, "ok")
        await until("served", lambda: reason(api, "orders") == "SecretNotFound")


@pytest.mark.parametrize(("right", "verb"), REST, ids=names(REST))
async def test_it_starts_without_any_other_and_names_it(
    api: ApiServer, configuration: Configuration, capfd: pytest.CaptureFixture[str], right: Right, verb: str
) -> None:
    api.denied = {(verb, right.resource)}
    async with running(configuration) as operator:
        await told(operator, 200, "ok")
        text = (await get(operator, "/readyz"))[1]
        assert (label(right, verb) in text) == (not right.optional)
        metrics = (await get(operator, "/metrics"))[1]
        assert re.findall(r"^leasequeue_right_missing.* 1.0$", metrics, re.MULTILINE) == [
            f'leasequeue_right_missing{{in_namespace="",resource="{label(right, verb).split()[1]}",verb="{verb}"}} 1.0'
        ]
        if right.resource != "leasequeues/status":
            expected = "SecretForbidden" if right.resource == "secrets" else "SecretNotFound"
            await until("told", lambda: reason(api, "orders") == expected)
    out, err = capfd.readouterr()
    assert label(right, verb) in out + err


async def test_a_right_that_is_granted_later_is_used_without_a_restart(api: ApiServer, configuration: Configuration) -> None:
    api.denied = {("get", "secrets"), ("patch", "pods")}
    uri = base64.b64encode(b"postgresql://u:p@127.0.0.1:1/x").decode()
    api.store("v1/secrets", "team", {"metadata": {"name": "db"}, "data": {"uri": uri}})
    async with running(configuration) as operator:
        await told(operator, 200, "get secrets in all namespaces")
        await until("told", lambda: reason(api, "orders") == "SecretForbidden")
        api.denied = set()
        await until("granted", lambda: reason(api, "orders") == "HostUnreachable")

        async def unmentioned() -> bool:
            return (await get(operator, "/readyz"))[1] == "ok\n" and "right_missing{" not in (await get(operator, "/metrics"))[
                1
            ]

        await until("no longer mentioned", unmentioned)


async def test_rights_of_each_namespace_are_asked_for(api: ApiServer, configuration: Configuration) -> None:
    api.denied = {("*", "*")}
    async with running(configuration, watch_namespaces="one,two") as operator:
        await told(operator, 503, "list leasequeues.leasequeue.dev in namespace one")
        await told(operator, 503, "watch pods in namespace two")
