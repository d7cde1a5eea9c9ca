"""Rights and replicas against a real API server: exactly the chart's rights, each that lacks is named; of two operators one acts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasequeue_operator.rights import RIGHTS, single_rights
from tests.operator.lab import Lab, cluster, eventually
from tests.operator.operating import Operating, account, conditions, election_role, login, namespace, node_postgres, rules

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.slow]

HOME, TEAM, OTHER, PG_PORT = "ops", "team", "other", 15432
QUEUE_PATH = "/apis/leasequeue.dev/v1alpha1/namespaces/{}/leasequeues"
SINGLE = list(single_rights())


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with cluster("replicas") as made, node_postgres(made, PG_PORT, "jobs", "more") as uri:
        made.apply(*(namespace(name) for name in (HOME, TEAM, OTHER)))
        for name in (TEAM, OTHER):
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": name}}
            made.apply({**secret, "stringData": {"uri": uri}})
        yield made


def queue(team: str, name: str, table: str) -> dict[str, Any]:
    """A LeaseQueue without workers, that writes nothing while it is left alone."""
    return {
        "apiVersion": "leasequeue.dev/v1alpha1", "kind": "LeaseQueue", "metadata": {"name": name, "namespace": team},
        "spec": {
            "database": {"secretRef": {"name": "db"}, "table": table}, "worker": {"handler": "a.b:c"},
            "scaling": {"pollPeriodSeconds": 1}, "reclaimer": {"suspend": True},
        },
    }  # fmt: skip


def is_ready(lab: Lab, team: str, name: str) -> bool:
    return conditions(lab.get(team, "leasequeue", name)).get("Ready", ("",))[0] == "True"


@pytest.mark.parametrize("only_in", ["", TEAM], ids=["cluster-wide", "namespaced"])
def test_each_right_that_lacks_is_named_by_the_check_and_no_other(lab: Lab, only_in: str) -> None:
    mode = "own" if only_in else "all"
    objects: list[dict[str, Any]] = account(HOME, f"{mode}-whole", rules(), only_in)
    for n, (right, verb) in enumerate(SINGLE):
        objects += account(HOME, f"{mode}-{n}", rules(without=(verb, right.resource)), only_in)
    lab.apply(*objects)
    names = [f"{mode}-whole", *(f"{mode}-{n}" for n in range(len(SINGLE)))]
    where = f"in namespace {only_in}" if only_in else "in all namespaces"
    wanted: dict[str, list[str]] = {f"{mode}-whole": []}
    for n, (right, verb) in enumerate(SINGLE):
        wanted[f"{mode}-{n}"] = [f"{verb} {right.resource}{'.' + right.group if right.group else ''} {where}"]

    def asked() -> dict[str, list[str]]:
        done = lab.run(sys.executable, "-m", "tests.operator.ask_rights", HOME, only_in, *names, timeout_s=300)
        return dict(json.loads(done.stdout))

    # The API server's authorizer learns of new roles a moment later.
    eventually("each names its own", lambda: asked() == wanted, 60)


def test_the_rights_of_one_namespace_are_enough_for_it(lab: Lab, tmp_path: Path) -> None:
    lab.apply(*account(HOME, "own-operator", rules(), TEAM))
    one = Operating(lab, login(lab, HOME, "own-operator", tmp_path), tmp_path / "log", 18091, "--namespace", TEAM)
    one.start()
    try:
        assert one.answer("/readyz")[1].strip() == "ok"
        lab.apply(queue(TEAM, "mine", "jobs"), queue(OTHER, "theirs", "more"))
        eventually("ready", lambda: is_ready(lab, TEAM, "mine"), 90)
        for kind, name in (("deployment", "mine-worker"), ("cronjob", "mine-reclaimer"), ("serviceaccount", "mine-leasequeue")):
            assert lab.get(TEAM, kind, name) is not None
        assert "status" not in (lab.get(OTHER, "leasequeue", "theirs") or {})
        assert "403" not in one.log()
    finally:
        one.stop()
        lab.kubectl("-n", TEAM, "delete", "lq", "mine")
        lab.kubectl("-n", OTHER, "delete", "lq", "theirs")


def test_without_the_right_to_a_child_the_queue_says_so_and_the_rest_works(lab: Lab, tmp_path: Path) -> None:
    lab.apply(*account(HOME, "poor-operator", rules(without=("create", "cronjobs"))))
    one = Operating(lab, login(lab, HOME, "poor-operator", tmp_path), tmp_path / "log", 18092)
    one.start()
    try:
        text = one.answer("/readyz")[1]
        assert "working without rights: create cronjobs.batch in all namespaces" in text
        assert one.metric("leasequeue_right_missing") == 1
        assert "right_missing" in one.log()
        lab.apply(queue(TEAM, "poor", "jobs"))

        def told() -> bool:
            found = conditions(lab.get(TEAM, "leasequeue", "poor")).get("Accepted", ("", "", ""))
            return found[:2] == ("False", "Forbidden") and "CronJob poor-reclaimer" in found[2]

        eventually("told", told, 90)
        assert lab.get(TEAM, "deployment", "poor-worker") is not None
        lab.apply(*account(HOME, "poor-operator", rules()))
        eventually("healed", lambda: is_ready(lab, TEAM, "poor"), 120)
        eventually("no longer mentioned", lambda: one.answer("/readyz")[1].strip() == "ok", 60)
    finally:
        one.stop()
        lab.kubectl("-n", TEAM, "delete", "lq", "poor")


def test_a_namespace_goes_away_while_the_operator_is_gone(lab: Lab, tmp_path: Path) -> None:
    """B10: nothing of ours holds it."""
    lab.apply(*account(HOME, "short-operator", rules()), namespace("brief"))
    uri = (lab.get(TEAM, "secret", "db") or {})["data"]["uri"]
    lab.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "brief"}, "data": {"uri": uri}})
    one = Operating(lab, login(lab, HOME, "short-operator", tmp_path), tmp_path / "log", 18096)
    one.start()
    lab.apply(queue("brief", "q", "more"))
    eventually("ready", lambda: is_ready(lab, "brief", "q"), 90)
    one.stop()
    lab.kubectl("delete", "namespace", "brief", "--timeout=90s")


@pytest.fixture
def pair(lab: Lab, tmp_path: Path) -> Iterator[tuple[Operating, Operating]]:
    """Two replicas, each with an image of its own to tell who acted; the first holds the lease."""
    lab.apply(*account(HOME, "pair", rules()), *election_role(HOME, "pair"))
    kubeconfig = login(lab, HOME, "pair", tmp_path)
    elected = ["--leader-election", "true", "--lease-namespace", HOME, "--lease-duration-s", "6"]
    made = tuple(
        Operating(lab, kubeconfig, tmp_path / f"{name}.log", port, *elected, "--worker-image", f"{name}:1")
        for name, port in (("first", 18093), ("second", 18094))
    )
    for one in made:
        one.start()
    yield made[0], made[1]
    for one in made:
        if one.process.poll() is None:
            one.stop()
    lab.kubectl("-n", TEAM, "delete", "lq", "--all")
    lab.kubectl("-n", HOME, "delete", "lease", "--all")


def image(lab: Lab, name: str) -> str:
    found = lab.get(TEAM, "deployment", f"{name}-worker")
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"]) if found else ""


def test_of_two_operators_one_acts_and_a_killed_one_is_followed(lab: Lab, pair: tuple[Operating, Operating]) -> None:
    first, second = pair
    assert "standing by" in second.answer("/readyz")[1]
    lab.apply(queue(TEAM, "one", "jobs"))
    eventually("served", lambda: is_ready(lab, TEAM, "one"), 90)
    assert image(lab, "one") == "first:1"
    time.sleep(8)  # longer than a lease: the renewals hold it
    assert image(lab, "one") == "first:1"
    assert second.metric("leasequeue_reconcile_total") == 0
    first.signal(9)
    eventually("the second acts", lambda: image(lab, "one") == "second:1", 60)
    assert second.answer("/readyz")[1].strip() == "ok"
    lab.apply(queue(TEAM, "two", "more"))
    eventually("served by the second", lambda: is_ready(lab, TEAM, "two"), 90)
    assert image(lab, "two") == "second:1"


def test_a_holder_that_was_away_does_nothing_when_it_comes_back(lab: Lab, pair: tuple[Operating, Operating]) -> None:
    first, second = pair
    lab.apply(queue(TEAM, "one", "jobs"))
    eventually("served", lambda: image(lab, "one") == "first:1", 90)
    first.signal(19)  # SIGSTOP
    eventually("the second acts", lambda: image(lab, "one") == "second:1", 60)
    before = (lab.get(TEAM, "deployment", "one-worker") or {})["metadata"]["generation"]
    # What it would act on at once, if it acted.
    lab.patch(TEAM, "lq", "one", {"spec": {"worker": {"env": [{"name": "EXTRA", "value": "1"}]}}})
    eventually("seen by the second", lambda: generation(lab) > before, 60)
    settled = generation(lab)
    first.signal(18)  # SIGCONT
    eventually("the first ends", lambda: first.process.poll() is not None, 30)
    assert first.process.returncode == 1
    assert "another replica acts" in first.log()
    time.sleep(3)
    assert (image(lab, "one"), generation(lab)) == ("second:1", settled)
    assert second.answer("/readyz")[0] == 200


def generation(lab: Lab) -> int:
    return int((lab.get(TEAM, "deployment", "one-worker") or {})["metadata"]["generation"])


def test_a_lease_is_handed_over_when_its_holder_ends(lab: Lab, pair: tuple[Operating, Operating]) -> None:
    first, _ = pair
    lab.apply(queue(TEAM, "one", "jobs"))
    eventually("served", lambda: image(lab, "one") == "first:1", 90)
    assert first.stop() == 0
    eventually("taken", lambda: image(lab, "one") == "second:1", 30)


def test_the_rights_are_those_of_the_operator() -> None:
    assert len(SINGLE) == sum(len(right.verbs) for right in RIGHTS)
