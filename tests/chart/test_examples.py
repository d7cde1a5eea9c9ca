"""deploy/examples: what can be checked without a cluster (tests/cluster/test_install.py runs them)."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from leasequeue_operator.plan import podtemplate
from tests.chart.support import CHART, ROOT, Manifest, one
from tests.support.crdschema import closed_schema

EXAMPLES = ROOT / "deploy/examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def objects(file: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_namespace_so_that_they_go_into_the_current_one(file: Path) -> None:
    assert objects(file)
    assert all("namespace" not in document["metadata"] for document in objects(file))


def test_queues_fit_the_crd() -> None:
    queues = [o for file in FILES for o in objects(file) if o["kind"] == "LeaseQueue"]
    assert queues
    for queue in queues:
        jsonschema.validate(queue, closed_schema())
        podtemplate.check(queue["spec"]["worker"].get("podTemplate", {}))


def test_every_name_leads_to_an_object() -> None:
    found = {(o["kind"], o["metadata"]["name"]) for file in FILES for o in objects(file)}
    queue = one(objects(EXAMPLES / "review-queue.yaml"), "LeaseQueue")["spec"]
    assert ("Secret", queue["database"]["secretRef"]["name"]) in found
    (volume,) = queue["worker"]["podTemplate"]["spec"]["volumes"]
    assert ("ConfigMap", volume["configMap"]["name"]) in found
    secret = one(objects(EXAMPLES / "review-queue.yaml"), "Secret")["stringData"]
    assert f":{secret['password']}@postgres:5432/" in secret["uri"]
    assert ("Service", "postgres") in found


def test_the_handler_of_the_example() -> None:
    module = one(objects(EXAMPLES / "review-queue.yaml"), "ConfigMap")["data"]["review.py"]
    scope: dict[str, Any] = {}
    exec(module, scope)
    cases = {
        ("MATCHED", "999.99"): "AUTO_APPROVED",
        ("PARTIAL", "-25.00"): "WITHIN_TOLERANCE",
        ("PARTIAL", "25.01"): "ESCALATED",
        ("UNMATCHED", "-25.01"): "ESCALATED",
    }
    for (decision, amount), expected in cases.items():
        item = {"match_decision": decision, "variance_amount": Decimal(amount)}
        assert scope["handle"](item, None) == {"decision": expected}


def test_the_table_is_the_published_one() -> None:
    table = one(objects(EXAMPLES / "postgres.yaml"), "ConfigMap")["data"]["table.sql"]
    published = (ROOT / "examples/review_queue/table.sql").read_text()
    assert table.split() == published.split()


def test_images_are_those_of_this_version() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    pods = [o["spec"]["template"]["spec"] for o in objects(EXAMPLES / "postgres.yaml") if "template" in o.get("spec", {})]
    assert len(pods) == 2
    assert {c["image"] for pod in pods for c in pod["containers"]} == {f"leasequeue-postgres:{version}"}
