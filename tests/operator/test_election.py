"""One of several replicas acts: two never at once, the other takes over when the lease has run out, who was away writes nothing."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes.aio.client import ApiClient, Configuration

from leasequeue_operator.election import RENEW_SHARE, TRUST_SHARE, Election, LostLease
from leasequeue_operator.kinds import DEPLOYMENT
from leasequeue_operator.kube import MERGE, Kube, KubeError
from leasequeue_operator.usage import Usage
from tests.operator import samples
from tests.operator.apiserver import ApiServer, Fault
from tests.operator.test_app import QUEUES, get, reason, running, until
from tests.support.clock import Clock

LEASES = "coordination.k8s.io/v1/leases"
DURATION_S = 15.0


class Server:
    """A Lease as an API server keeps it: names are unique, a write with an older version is refused."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.down = False
        self._versions = itertools.count(1)

    async def find(self, *_: Any) -> dict[str, Any] | None:
        self._check()
        return self.lease

    async def create(self, _kind: Any, body: dict[str, Any], _manager: str) -> dict[str, Any]:
        self._check()
        if self.lease is not None:
            raise KubeError(409, "AlreadyExists", "there is one")
        self.lease = {**body, "metadata": {"resourceVersion": str(next(self._versions))}}
        return self.lease

    async def patch(self, _path: str, change: dict[str, Any], **_: Any) -> dict[str, Any]:
        self._check()
        assert self.lease is not None
        if change["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise KubeError(409, "Conflict", "older version")
        meta = {"resourceVersion": str(next(self._versions))}
        self.lease = {**self.lease, "metadata": meta, "spec": {**self.lease["spec"], **change["spec"]}}
        return self.lease

    def _check(self) -> None:
        if self.down:
            raise KubeError(0, "Timeout", "no answer")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def member(server: Server, clock: Clock, identity: str) -> Election:
    return Election(server, "ns", "lease", DURATION_S, clock, identity)  # type: ignore[arg-type]


async def test_the_first_gets_it_the_second_waits(server: Server, clock: Clock) -> None:
    one, two = member(server, clock, "one"), member(server, clock, "two")
    assert await one._tried()
    assert not await two._tried()
    assert (one.holds(), two.holds(), two.holder) == (True, False, "one")


async def test_it_is_taken_over_when_it_was_not_renewed_for_its_duration(server: Server, clock: Clock) -> None:
    one, two = member(server, clock, "one"), member(server, clock, "two")
    await one._tried()
    await two._tried()
    clock.now += DURATION_S
    assert not await two._tried()
    clock.now += 0.1
    assert await two._tried()
    assert not one.holds()
    assert not await one._tried()
    assert server.lease is not None
    assert server.lease["spec"]["leaseTransitions"] == 1


async def test_a_renewal_that_is_seen_starts_the_wait_anew(server: Server, clock: Clock) -> None:
    one, two = member(server, clock, "one"), member(server, clock, "two")
    for _ in range(20):
        await one._tried()
        assert not await two._tried()
        clock.now += DURATION_S * RENEW_SHARE
        assert one.holds()


async def test_of_two_that_take_it_at_once_one_gets_it(server: Server, clock: Clock) -> None:
    one, two, three = (member(server, clock, name) for name in ("one", "two", "three"))
    await one._tried()
    for other in (two, three):
        await other._tried()
    clock.now += DURATION_S + 1
    read = await server.find()
    assert await two._tried()
    with pytest.raises(KubeError, match="409"):
        await three._take(read or {})
    assert (two.holds(), three.holds()) == (True, False)


async def test_a_holder_that_cannot_renew_stops_before_another_may_act(server: Server, clock: Clock) -> None:
    one, two = member(server, clock, "one"), member(server, clock, "two")
    await one._tried()
    await two._tried()
    server.down = True
    clock.now += DURATION_S * TRUST_SHARE + 0.01
    assert not one.holds()
    assert not await one._tried()
    server.down = False
    assert not await two._tried()  # it is still within the duration


async def test_a_lease_that_is_given_back_is_free_at_once(server: Server, clock: Clock) -> None:
    one, two = member(server, clock, "one"), member(server, clock, "two")
    await one._tried()
    assert not await two._tried()
    await one.release()
    assert not one.holds()
    assert await two._tried()
    await one.release()  # not its own any more
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == "two"


async def test_keeping_ends_with_the_lease(server: Server, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    one = member(server, clock, "one")
    await one._tried()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += seconds if len(slept) < 10 else 3600  # at the tenth the machine was asleep

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(LostLease):
        await one.keep()
    assert len(slept) == 10


STEP = st.tuples(st.integers(0, 2), st.floats(0, 25), st.booleans(), st.booleans())


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=60))
def test_two_never_hold_it_at_once(steps: list[tuple[int, float, bool, bool]]) -> None:
    server, clock = Server(), Clock()
    members = [member(server, clock, f"m{n}") for n in range(3)]

    async def play() -> None:
        for who, seconds, down, release in steps:
            clock.now += seconds
            server.down = down
            await (members[who].release() if release else members[who]._tried())
            assert sum(m.holds() for m in members) <= 1

    asyncio.run(play())


async def test_nothing_is_written_by_who_does_not_act(api: ApiServer, configuration: Configuration) -> None:
    kube = Kube(ApiClient(configuration), 1.0, Usage(), acting=lambda: False)
    with pytest.raises(KubeError, match="another replica acts"):
        await kube.patch(DEPLOYMENT.path("team", "x", "scale"), {}, content_type=MERGE)
    with pytest.raises(KubeError, match="another replica acts"):
        await kube.create(DEPLOYMENT, {"metadata": {"namespace": "team", "name": "x"}}, "m")
    assert await kube.find(DEPLOYMENT, "team", "x") is None
    await kube.close()
    assert [method for method, _ in api.calls] == ["GET"]


@pytest.fixture
def elected() -> dict[str, Any]:
    return {"leader_election": True, "lease_namespace": "system", "lease_duration_s": 5}


async def test_two_operators_one_acts_and_hands_over(
    api: ApiServer, configuration: Configuration, elected: dict[str, Any]
) -> None:
    api.store(QUEUES, "team", samples.body())
    async with running(configuration, **elected) as first:
        await until("served", lambda: reason(api, "orders") == "SecretNotFound")
        async with running(configuration, **elected) as second:

            async def stands_by() -> bool:
                status, text = await get(second, "/readyz")
                return status == 200 and "standing by" in text

            await until("the second stands by", stands_by)
            api.store(QUEUES, "team", samples.body("more", uid="u-more"))
            await until("served by the first", lambda: reason(api, "more") == "SecretNotFound")

            async def told_who_acts() -> bool:
                return "\nleasequeue_operator_acting 1.0\n" in (await get(first, "/metrics"))[1]

            await until("the first says that it acts", told_who_acts)
            assert "\nleasequeue_operator_acting 0.0\n" in (await get(second, "/metrics"))[1]
            assert 'leasequeue_condition{queue="orders"' in (await get(first, "/metrics"))[1]
            assert 'leasequeue_condition{queue="orders"' not in (await get(second, "/metrics"))[1]
            held = api.stored(LEASES, "system", "leasequeue-operator")
            assert held is not None


async def test_a_refused_lease_is_told(api: ApiServer, configuration: Configuration, elected: dict[str, Any]) -> None:
    api.denied = {("create", "leases")}
    async with running(configuration, **elected) as operator:

        async def told() -> bool:
            status, text = await get(operator, "/readyz")
            return status == 503 and "cannot create resource leases" in text

        await until("told", told)
        missing = 'leasequeue_right_missing{in_namespace="system",resource="leases.coordination.k8s.io",verb="create"} 1.0'
        assert missing in (await get(operator, "/metrics"))[1]
        api.denied = set()

        async def ready() -> bool:
            return (await get(operator, "/readyz"))[0] == 200

        await until("ready", ready)


async def test_an_operator_whose_renewals_fail_ends(
    api: ApiServer, configuration: Configuration, elected: dict[str, Any]
) -> None:
    from leasequeue_operator.app import Operator
    from leasequeue_operator.settings import Settings

    operator = Operator(Settings(http_port=0, **elected), configuration)
    task = asyncio.create_task(operator.run())
    await until("acts", lambda: api.stored(LEASES, "system", "leasequeue-operator") is not None)
    api.faults.append(Fault("GET", "/leases/", 500, times=10**6))
    with pytest.raises(LostLease):
        await asyncio.wait_for(task, 30)
