"""The CRD's schema as a JSON schema that refuses what the API server would drop in silence."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from devtools.sync_crd import SOURCE


@cache
def closed_schema() -> Any:
    """The schema of a LeaseQueue with no unknown field allowed."""
    return no_unknown_fields(yaml.safe_load(SOURCE.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def no_unknown_fields(schema: Any) -> Any:
    """The schema with every object closed that the API server would prune."""
    if isinstance(schema, list):
        return [no_unknown_fields(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: no_unknown_fields(value) for key, value in schema.items()}
    is_open = found.get("x-kubernetes-preserve-unknown-fields") or "kind" in found.get("properties", {})
    if "properties" in found and "type" in found and not is_open:
        found.setdefault("additionalProperties", False)
    return found
