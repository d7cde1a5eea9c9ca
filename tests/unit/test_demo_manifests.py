"""The demo's LeaseQueue is one that the CRD takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from demo.manifests import lease_queue
from demo.settings import Settings

CRD = Path(__file__).parents[2] / "deploy" / "crd" / "leasequeues.leasequeue.dev.yaml"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    crd = yaml.safe_load(CRD.read_text())
    return closed(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def closed(node: dict[str, Any]) -> dict[str, Any]:
    """The schema with unknown fields refused, as the API server prunes them."""
    made = dict(node)
    if "properties" in node:
        made["properties"] = {name: closed(child) for name, child in node["properties"].items()}
        made.setdefault("additionalProperties", False)
    if "items" in node:
        made["items"] = closed(node["items"])
    return made


def test_every_field_is_known_and_within_its_bounds(schema: dict[str, Any]) -> None:
    queue = lease_queue(Settings(namespace="demo-1"), "leasequeue-demo:1")
    jsonschema.validate(queue["spec"], schema["properties"]["spec"])


def test_the_check_would_notice_a_value_out_of_bounds(schema: dict[str, Any]) -> None:
    queue = lease_queue(Settings(namespace="demo-1", max_inflight=99), "leasequeue-demo:1")
    with pytest.raises(jsonschema.ValidationError, match="99 is less than the minimum of 100"):
        jsonschema.validate(queue["spec"], schema["properties"]["spec"])
