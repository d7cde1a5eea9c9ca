"""The version, from pyproject.toml, in every hand-written file that names it: chart, examples, how-to pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts/leasequeue/Chart.yaml"
_NUMBER = r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?"
_IMAGE = re.compile(rf"\b(leasequeue-(?:operator|worker|reclaimer|postgres|\$image)):{_NUMBER}")
_REVISION = re.compile(rf"(targetRevision: v){_NUMBER}")
_CHART = re.compile(rf'^((?:version|appVersion): )"?{_NUMBER}"?$', re.MULTILINE)


def version() -> str:
    """The project's version."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def render(number: str | None = None) -> dict[Path, str]:
    """The files with the version in them; by default the project's."""
    number = number or version()
    files = {CHART: _CHART.sub(rf'\g<1>"{number}"', CHART.read_text())}
    pages = [p for p in (ROOT / "docs").rglob("*.md") if not {"reference", "design"} & set(p.relative_to(ROOT).parts)]
    for path in (*(ROOT / "deploy/examples").glob("*.yaml"), *pages, ROOT / "README.md"):
        text = path.read_text()
        changed = _REVISION.sub(rf"\g<1>{number}", _IMAGE.sub(rf"\g<1>:{number}", text))
        if _IMAGE.search(text) or _REVISION.search(text):
            files[path] = changed
    return files
