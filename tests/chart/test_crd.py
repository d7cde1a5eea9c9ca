"""The CRD in the chart: that of deploy/crd, kept on uninstall."""

from __future__ import annotations

import yaml

from devtools.sync_crd import SOURCE
from tests.chart.support import Render, kinds, one

KEEP = {"helm.sh/resource-policy": "keep"}


def test_it_is_the_one_of_deploy(render: Render) -> None:
    found = one(render(), "CustomResourceDefinition")
    assert found["metadata"].pop("annotations") == KEEP
    assert found["metadata"].pop("labels")
    assert found == yaml.safe_load(SOURCE.read_text())


def test_it_can_be_left_out_and_not_kept(render: Render) -> None:
    assert "CustomResourceDefinition" not in kinds(render({"crds": {"enabled": False}}))
    assert "annotations" not in one(render({"crds": {"keep": False}}), "CustomResourceDefinition")["metadata"]


def test_nothing_else_is_kept(render: Render) -> None:
    kept = [o["kind"] for o in render() if KEEP.items() <= o["metadata"].get("annotations", {}).items()]
    assert kept == ["CustomResourceDefinition"]
