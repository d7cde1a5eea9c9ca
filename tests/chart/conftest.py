"""The chart rendered by the real Helm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools.sync_programs import promtool
from tests.chart.support import CHART, Manifest, Refusal, Render, run_helm


def _arguments(tmp_path: Path, values: dict[str, Any], release: str, namespace: str) -> list[str]:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return ["template", release, str(CHART), "--namespace", namespace, "--values", str(file)]


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """`render({values}, release=…, namespace=…)`: the objects."""

    def rendered(
        values: dict[str, Any] | None = None, *, release: str = "leasequeue", namespace: str = "leasequeue-system"
    ) -> list[Manifest]:
        result = run_helm(*_arguments(tmp_path, values or {}, release, namespace))
        assert result.returncode == 0, result.stderr
        return [document for document in yaml.safe_load_all(result.stdout) if document]

    return rendered


@pytest.fixture
def refusal(tmp_path: Path) -> Refusal:
    """`refusal({values})`: what Helm says when it refuses them."""

    def refused(values: dict[str, Any]) -> str:
        result = run_helm(*_arguments(tmp_path, values, "leasequeue", "leasequeue-system"))
        assert result.returncode != 0, f"Helm took {values}"
        return result.stderr

    return refused


@pytest.fixture(scope="session")
def promtool_path() -> str:
    """promtool; its absence is an error."""
    return promtool()
