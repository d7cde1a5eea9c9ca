"""Upgrades from earlier charts, kept as packages in `earlier/`: their values render today's chart."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.support import Render, container, one

EARLIER = sorted((Path(__file__).parent / "earlier").glob("*.tgz"))


def values_of(package: Path) -> dict[str, Any]:
    """The values of a chart's package: what `helm upgrade --reuse-values` gives to the new chart."""
    with tarfile.open(package) as archive:
        file = archive.extractfile("leasequeue/values.yaml")
        assert file is not None
        values: dict[str, Any] = yaml.safe_load(file.read())
    return values


def test_there_is_an_earlier_chart() -> None:
    assert EARLIER


@pytest.mark.parametrize("package", EARLIER, ids=lambda p: p.stem)
def test_its_values_give_todays_defaults(package: Path, render: Render) -> None:
    assert render(values_of(package)) == render()


@pytest.mark.parametrize("package", EARLIER, ids=lambda p: p.stem)
def test_its_values_with_everything_switched_on(package: Path, render: Render) -> None:
    on: dict[str, Any] = {
        "metrics": {"podMonitor": {"enabled": True}}, "prometheusRule": {"enabled": True}, "networkPolicy": {"enabled": True},
        "dashboard": {"enabled": True},
    }  # fmt: skip
    earlier = values_of(package)
    merged = {k: {**earlier.get(k, {}), **v} for k, v in on.items()}
    merged["metrics"] = {**earlier["metrics"], "podMonitor": {**earlier["metrics"]["podMonitor"], "enabled": True}}
    assert render(earlier | merged) == render(on)


def test_big_numbers_stay_whole(render: Render) -> None:
    """Helm reads numbers as floats: 1000660000 must not become 1.00066e+09."""
    values = {
        "podSecurityContext": {"runAsUser": 1000660000}, "extraEnv": [{"name": "BIG", "value": "12345678901"}],
        "resources": {"limits": {"memory": 4294967296}}, "livenessProbe": {"periodSeconds": 12345678},
        "tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 31536000}],
    }  # fmt: skip
    objects = render(values)
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 1000660000
    assert pod["tolerations"][0]["tolerationSeconds"] == 31536000
    assert container(objects)["resources"]["limits"]["memory"] == 4294967296
    assert container(objects)["livenessProbe"]["periodSeconds"] == 12345678
    assert one(objects, "Pod")["spec"]["securityContext"]["runAsUser"] == 1000660000
    assert {"name": "BIG", "value": "12345678901"} in container(objects)["env"]
