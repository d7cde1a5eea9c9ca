"""Moving maxReplicas rolls no pod: a rollout would end jobs that a decrease drains."""

from __future__ import annotations

from typing import Any

from leasequeue_operator.plan import deployment
from tests.operator import samples


def built(live: dict[str, Any] | None = None, image: str = "w:1", **scaling: int) -> dict[str, Any]:
    return deployment.kept(deployment.build(samples.queue(scaling=scaling), default_image=image), live)


def bound(manifest: dict[str, Any]) -> str:
    env = manifest["spec"]["template"]["spec"]["containers"][0]["env"]
    return str(next(v["value"] for v in env if v["name"] == deployment.BOUND))


def test_the_first_deployment_gets_the_bound_of_its_spec() -> None:
    assert bound(built(maxReplicas=6)) == "8"


def test_a_moved_maximum_changes_nothing_of_the_running_template() -> None:
    live = built(maxReplicas=6)
    for maximum in (2, 7, 300):
        assert built(live, maxReplicas=maximum) == live


def test_another_change_of_the_template_brings_the_new_bound() -> None:
    live = built(maxReplicas=6)
    rolled = built(live, image="w:2", maxReplicas=300)
    assert bound(rolled) == "512"
    assert built(rolled, image="w:2", maxReplicas=6) == rolled


def test_what_the_api_server_adds_is_no_change() -> None:
    live = built(maxReplicas=6)
    live["spec"]["template"]["spec"]["schedulerName"] = "default-scheduler"
    live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1"
    assert bound(built(live, maxReplicas=2)) == "8"


def test_a_deployment_of_an_older_operator_is_brought_up_to_date_once() -> None:
    older = deployment.build(samples.queue(scaling={"maxReplicas": 300}), default_image="w:1")
    assert bound(built(older, maxReplicas=6)) == "8"
