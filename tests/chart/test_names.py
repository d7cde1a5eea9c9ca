"""Names: valid, unique, and apart from those of other releases (cases.md-like reports: names cut before a suffix)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chart.support import Manifest, Render

LONG = "a" * 50 + "bcd"
ALL: dict[str, Any] = {
    "networkPolicy": {"enabled": True},
    "metrics": {"podMonitor": {"enabled": True}},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "leaderElection": {"enabled": True},
    "imagePullSecrets": ["34", {"name": "56"}],
    "priorityClassName": "on",
}
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")


def identities(objects: list[Manifest]) -> set[tuple[str, str | None, str]]:
    """Kind, namespace and name of each object but the CRD, which is one for all."""
    found = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(found) == len(set(found)), "two objects of one name"
    return {identity for identity in found if identity[0] != "CustomResourceDefinition"}


def no_texts(part: Any) -> Iterator[tuple[str, Any]]:
    """Names, namespaces, values of variables and labels that are no text."""
    pairs = part.items() if isinstance(part, dict) else ()
    for key, value in pairs:
        if key in ("matchLabels", "labels") and isinstance(value, dict) and "type" not in value:
            yield from ((k, v) for k, v in value.items() if not isinstance(v, str))
        if key in ("name", "namespace", "serviceAccountName", "priorityClassName") and not isinstance(value, (str, dict)):
            yield key, value
        if key == "env":
            yield from ((e["name"], e["value"]) for e in value if "value" in e and not isinstance(e["value"], str))
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from no_texts(inner)


@pytest.mark.parametrize(
    ("release", "values"),
    [
        ("leasequeue", {}),
        ("r", {}),
        (LONG, {}),
        ("1st.release", {}),
        ("r", {"fullnameOverride": "f" * 63}),
        (LONG, {"nameOverride": "n" * 63}),
        ("a" * 52 + "-", {"fullnameOverride": "f" * 53 + "-" + "g" * 9}),
        ("123", {"nameOverride": "true", "namespaceOverride": "42"}),
        ("1e3", {"nameOverride": "null", "namespaceOverride": "0"}),
        ("0x1f", {"serviceAccount": {"name": "12"}, "watchNamespaces": ["007", "12"]}),
    ],
)
def test_names_and_labels_are_valid(release: str, values: dict[str, object], render: Render) -> None:
    if release.endswith("-"):
        release = release[:-1]
    for document in render(values | ALL, release=release):
        metadata = document["metadata"]
        strict = document["kind"] in ("Service", "Deployment", "Pod", "PodMonitor")
        assert (DNS_LABEL if strict else DNS_SUBDOMAIN).fullmatch(metadata["name"]), metadata["name"]
        for value in metadata["labels"].values():
            assert LABEL_VALUE.fullmatch(value), value
        assert not list(no_texts(document)), "YAML took a name for a number, a boolean or nothing"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "b"),
        ("a", "a-leasequeue"),
        ("leasequeue", "leasequeue-leasequeue"),
        ("a.b", "a-b"),
        ("1a", "lq-1a"),
        (LONG, LONG[:-1] + "x"),
    ],
)
def test_two_releases_in_one_namespace_do_not_meet(one: str, other: str, render: Render) -> None:
    assert not identities(render(ALL, release=one)) & identities(render(ALL, release=other))


def test_one_release_name_in_two_namespaces_does_not_meet(render: Render) -> None:
    assert not identities(render(ALL, namespace="a")) & identities(render(ALL, namespace="b"))


def test_rules_and_dashboards_of_two_releases_meet_in_no_third_namespace(render: Render) -> None:
    values = ALL | {"prometheusRule": {"enabled": True, "namespace": "m"}, "dashboard": {"enabled": True, "namespace": "m"}}
    assert not identities(render(values, namespace="a")) & identities(render(values, namespace="b"))
    made = {name for kind, _, name in identities(render(values, namespace="m")) if kind in ("PrometheusRule", "ConfigMap")}
    assert made == {"leasequeue-alerts", "leasequeue-dashboard"}


def test_two_releases_that_watch_one_namespace_do_not_meet(render: Render) -> None:
    values = ALL | {"watchNamespaces": ["team-a"]}
    assert not identities(render(values, namespace="a")) & identities(render(values, namespace="b"))


def test_the_usual_release_has_plain_names(render: Render) -> None:
    names = {name for _, _, name in identities(render(ALL))}
    assert {"leasequeue-operator", "leasequeue-metrics", "leasequeue-alerts", "leasequeue.leasequeue-system"} <= names


def test_namespace_override_moves_everything(render: Render) -> None:
    objects = render(ALL | {"namespaceOverride": "elsewhere"})
    assert {o["metadata"]["namespace"] for o in objects if "namespace" in o["metadata"]} == {"elsewhere"}
