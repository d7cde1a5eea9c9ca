"""The rules of the operator's role, made from the list of rights that the operator itself checks at start."""

from __future__ import annotations

import json
from pathlib import Path

from leasequeue_operator.rights import RIGHTS, Right

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "charts/leasequeue/templates/_rules.tpl"


def render() -> dict[Path, str]:
    """The template, by its path."""
    head = "{{- /* Made from operator/leasequeue_operator/rights.py by `python -m devtools.sync`: edit that file. */ -}}\n"
    rules = "".join(_rule(right) for right in RIGHTS)
    return {TARGET: f'{head}{{{{- define "leasequeue.rules" -}}}}\n{rules}{{{{- end -}}}}\n'}


def _rule(right: Right) -> str:
    return (
        f"# To {right.why}.\n"
        f"- apiGroups: {json.dumps([right.group])}\n"
        f"  resources: {json.dumps([right.resource])}\n"
        f"  verbs: {json.dumps(list(right.verbs))}\n"
    )
