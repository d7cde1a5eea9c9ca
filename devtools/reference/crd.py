"""The LeaseQueue resource, from deploy/crd."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from devtools.reference.markdown import code, head, section, table
from devtools.sync_crd import SOURCE

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """One field: its path, its part of the schema, and whether it must be given."""

    path: str
    schema: Schema
    required: bool


def fields(schema: Schema, path: str) -> Iterator[Field]:
    """Every field below `path`, parents first.

    Raises:
        ValueError: a field has no description.
    """
    must = schema.get("required", ())
    for name, below in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        if not below.get("description"):
            raise ValueError(f"{SOURCE.name}: {where} has no description; add one")
        yield Field(where, below, name in must)
        yield from fields(below, where)
        if "properties" in below.get("items", {}):
            yield from fields(below["items"], f"{where}[]")


def kind(schema: Schema) -> str:
    """Type of a field, as people say it."""
    if schema.get("type") == "array":
        return f"list of {kind(schema.get('items', {}))}"
    if schema.get("x-kubernetes-int-or-string"):
        return "number or text"
    return str(schema.get("format") or schema.get("type") or "any")


def bounds(schema: Schema) -> str:
    """What a value must fit."""
    told = []
    if "enum" in schema:
        told.append(", ".join(code(value) for value in schema["enum"]))
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        told.append(f"{low if low is not None else ''} to {high}" if high is not None else f"at least {low}")
    for least, most, unit in (("minLength", "maxLength", "characters"), ("minItems", "maxItems", "entries")):
        low, high = schema.get(least, 0), schema.get(most)
        if high is not None:
            told.append(f"{low} to {high} {unit}" if low else f"at most {high} {unit}")
    if "pattern" in schema:
        told.append(code(schema["pattern"]))
    return "; ".join(told)


def default(schema: Schema) -> str:
    """The default as one writes it in YAML."""
    if "default" not in schema:
        return ""
    value = schema["default"]
    return code("true" if value is True else "false" if value is False else value if value != "" else '""')


def rules(schema: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    """Every CEL rule: where, the rule, its message."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"{path}{rule.get('fieldPath', '')}", " ".join(rule["rule"].split()), rule["message"]
    for name, below in schema.get("properties", {}).items():
        yield from rules(below, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from rules(schema["items"], f"{path}[]")


def page() -> str:
    """The page."""
    crd = yaml.safe_load(SOURCE.read_text())
    version = crd["spec"]["versions"][0]
    names, schema = crd["spec"]["names"], version["schema"]["openAPIV3Schema"]
    group = crd["spec"]["group"]
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    first = (
        f"`apiVersion: {group}/{version['name']}`, `kind: {names['kind']}`, namespaced; `kubectl get {names['shortNames'][0]}`. "
        f"{schema['description']} Subresources: `status`, and `scale` on `spec.replicas`."
    )
    return (
        head("The LeaseQueue resource", f"deploy/crd/{SOURCE.name}", first)
        + section("spec", _fields(spec, "spec"))
        + section("Rules between fields", _rules(spec))
        + section("status", f"{status['description']}\n\n{_fields(status, 'status', plain=True)}")
        + section("Columns of kubectl get", _columns(version["additionalPrinterColumns"]))
    )


def _fields(schema: Schema, path: str, *, plain: bool = False) -> str:
    found = list(fields(schema, path))
    if plain:
        return table(("field", "type", "what it is"), ((code(f.path), kind(f.schema), f.schema["description"]) for f in found))
    return table(
        ("field", "type", "default", "allowed", "what it is"),
        (
            (
                code(f.path) + (" **required**" if f.required else ""),
                kind(f.schema),
                default(f.schema),
                bounds(f.schema),
                f.schema["description"],
            )
            for f in found
        ),
    )


def _rules(spec: Schema) -> str:
    intro = "The API server refuses what breaks one of these, with the message."
    found = ((code(path), code(rule), message) for path, rule, message in rules(spec, "spec"))
    return f"{intro}\n\n{table(('at', 'rule (CEL)', 'message'), found)}"


def _columns(columns: list[dict[str, Any]]) -> str:
    return table(
        ("column", "what it is", "shown"),
        (
            (c["name"], c.get("description", "Age of the object."), "with -o wide" if c.get("priority") else "always")
            for c in columns
        ),
    )
