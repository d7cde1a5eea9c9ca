"""Names: valid, unique, and apart from those of other releases (cases.md-like reports: names cut before a suffix)."""

from __future__ import annotations

import re

import pytest

from tests.chart.support import Manifest, Render

LONG = "a" * 50 + "bcd"
ALL = {
    "networkPolicy": {"enabled": True},
    "metrics": {"podMonitor": {"enabled": True}},
    "prometheusRule": {"enabled": True},
}
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?")


def identities(objects: list[Manifest]) -> set[tuple[str, str | None, str]]:
    """Kind, namespace and name of each object but the CRD, which is one for all."""
    found = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in objects]
    assert len(found) == len(set(found)), "two objects of one name"
    return {identity for identity in found if identity[0] != "CustomResourceDefinition"}


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
    ],
)
def test_names_and_labels_are_valid(release: str, values: dict[str, object], render: Render) -> None:
    if release.endswith("-"):
        release = release[:-1]
    for document in render(values | ALL, release=release):
        metadata = document["metadata"]
        cluster_wide = "namespace" not in metadata
        assert (DNS_SUBDOMAIN if cluster_wide else DNS_LABEL).fullmatch(metadata["name"]), metadata["name"]
        for value in metadata["labels"].values():
            assert LABEL_VALUE.fullmatch(value), value


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


def test_two_releases_that_watch_one_namespace_do_not_meet(render: Render) -> None:
    values = ALL | {"watchNamespaces": ["team-a"]}
    assert not identities(render(values, namespace="a")) & identities(render(values, namespace="b"))


def test_the_usual_release_has_plain_names(render: Render) -> None:
    names = {name for _, _, name in identities(render(ALL))}
    assert {"leasequeue-operator", "leasequeue-metrics", "leasequeue-alerts", "leasequeue.leasequeue-system"} <= names


def test_namespace_override_moves_everything(render: Render) -> None:
    objects = render(ALL | {"namespaceOverride": "elsewhere"})
    assert {o["metadata"]["namespace"] for o in objects if "namespace" in o["metadata"]} == {"elsewhere"}
