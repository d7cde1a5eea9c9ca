"""The CRD against the settings' one definition, and against what a good CRD has.

Whether the API server takes the rules as meant is tested on a real one in `tests/cluster/test_crd.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from leasequeue.config import SETTINGS, BlockedHead, InflightPolicy, Setting

CRD_FILE = Path(__file__).parents[2] / "deploy" / "crd" / "leasequeues.leasequeue.dev.yaml"


@pytest.fixture(scope="module")
def crd() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(CRD_FILE.read_text())
    return document


@pytest.fixture(scope="module")
def version(crd: dict[str, Any]) -> dict[str, Any]:
    (only,) = crd["spec"]["versions"]
    return dict(only)


@pytest.fixture(scope="module")
def spec(version: dict[str, Any]) -> dict[str, Any]:
    return dict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def field(spec: dict[str, Any], path: str) -> dict[str, Any]:
    for part in path.split("."):
        spec = spec["properties"][part]
    return spec


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property below `schema`, list items included."""
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from fields(child, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from fields(schema["items"], f"{path}[]")


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda s: s.name)
def test_bounds_and_defaults_are_those_of_the_settings(spec: dict[str, Any], setting: Setting) -> None:
    found = field(spec, setting.cr)
    assert (found["minimum"], found["maximum"], found["default"]) == (setting.low, setting.high, setting.default)
    assert found["type"] == "integer"


def test_choices_are_those_of_the_settings(spec: dict[str, Any]) -> None:
    assert tuple(field(spec, "lease.maxInflightPolicy")["enum"]) == get_args(InflightPolicy)
    assert tuple(field(spec, "lease.lanes.onBlockedHead")["enum"]) == get_args(BlockedHead)


def test_every_number_is_bounded(spec: dict[str, Any]) -> None:
    open_ended = [path for path, f in fields(spec) if f.get("type") == "integer" and not {"minimum", "maximum"} <= f.keys()]
    assert open_ended == []


def test_every_text_is_bounded(spec: dict[str, Any]) -> None:
    open_ended = [path for path, f in fields(spec) if f.get("type") == "string" and not {"maxLength", "enum"} & f.keys()]
    assert open_ended == []


def test_every_field_is_explained(version: dict[str, Any]) -> None:
    root = version["schema"]["openAPIV3Schema"]["properties"]
    silent = [path for part in ("spec", "status") for path, f in fields(root[part], part) if not f.get("description")]
    assert silent == []


def test_every_rule_names_its_field_and_the_way_out(spec: dict[str, Any]) -> None:
    rules = [rule for _, f in fields(spec) for rule in f.get("x-kubernetes-validations", [])]
    rules += [r for _, f in fields(spec) for r in f.get("items", {}).get("x-kubernetes-validations", [])]
    assert len(rules) >= 12
    # "…: do this" or "needs …": a message says what to do, not only what is wrong.
    assert [r["message"] for r in rules if ":" not in r["message"] and "needs" not in r["message"]] == []


def test_object_defaults_let_every_inner_default_appear(spec: dict[str, Any]) -> None:
    for section in ("lease", "lease.lanes", "scaling", "reclaimer", "reclaimer.retention", "alerts"):
        assert field(spec, section)["default"] == {}


def test_names_and_subresources(crd: dict[str, Any], version: dict[str, Any]) -> None:
    names = crd["spec"]["names"]
    assert crd["metadata"]["name"] == f"{names['plural']}.{crd['spec']['group']}"
    assert (crd["spec"]["scope"], names["shortNames"], names["categories"]) == ("Namespaced", ["lq"], ["leasequeue"])
    assert version["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_printer_columns_show_the_main_things_first(version: dict[str, Any]) -> None:
    columns = {c["name"]: c.get("priority", 0) for c in version["additionalPrinterColumns"]}
    narrow = [name for name, priority in columns.items() if priority == 0]
    assert narrow == [
        "Ready",
        "State",
        "Desired",
        "Workers",
        "Pending",
        "Assigned",
        "Max",
        "Oldest",
        "Reclaimed",
        "Age",
    ]


def test_small_enough_for_client_side_apply(crd: dict[str, Any]) -> None:
    assert len(json.dumps(crd)) < 200_000
