"""The defaults of values.yaml as a template, so that the chart can fall back on them when a value is missing.

Helm gives templates no way to read values.yaml: after an upgrade with --reuse-values a new key is simply not there.
"""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "charts/leasequeue/values.yaml"
TARGET = ROOT / "charts/leasequeue/templates/_defaults.tpl"


def render() -> dict[Path, str]:
    """The template, by its path."""
    defaults = yaml.safe_dump(yaml.safe_load(SOURCE.read_text()), sort_keys=False, width=100)
    head = "{{- /* Made from values.yaml by `python -m devtools.sync`: edit that file. */ -}}\n"
    return {TARGET: f'{head}{{{{- define "leasequeue.defaults" -}}}}\n{defaults}{{{{- end -}}}}\n'}
