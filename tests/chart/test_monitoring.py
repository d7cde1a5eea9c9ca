"""Service, monitors and NetworkPolicy."""

from __future__ import annotations

import pytest

from tests.chart.support import Manifest, Refusal, Render, container, kinds, nested, one


def test_the_default_needs_no_api_of_the_prometheus_operator(render: Render) -> None:
    assert not [o for o in render() if o["apiVersion"].startswith("monitoring.coreos.com/")]


def test_both_monitors_are_refused(refusal: Refusal) -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}}
    assert "both true" in refusal(values)


@pytest.mark.parametrize(
    ("key", "kind", "endpoints"),
    [("serviceMonitor", "ServiceMonitor", "endpoints"), ("podMonitor", "PodMonitor", "podMetricsEndpoints")],
)
def test_a_monitor_finds_the_operator(key: str, kind: str, endpoints: str, render: Render) -> None:
    values = {"metrics": {key: {"enabled": True, "interval": "7s"}, "service": {"enabled": False}}}
    objects = render(values)
    spec = one(objects, kind)["spec"]
    deployment = one(objects, "Deployment")
    assert spec["selector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    # None means the monitor's own; a name would stay behind when an overlay moves everything to another namespace.
    assert "namespaceSelector" not in spec
    assert one(objects, kind)["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    (endpoint,) = spec[endpoints]
    ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert endpoint["port"] in {port["name"] for port in ports}
    assert (endpoint["path"], endpoint["honorLabels"], endpoint["interval"]) == ("/metrics", True, "7s")
    if kind == "ServiceMonitor":
        service = one(objects, "Service")
        assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


@pytest.mark.parametrize(
    ("interval", "timeout", "expected"),
    [("15s", None, "10s"), ("5s", None, "5s"), ("1m", "30s", "30s"), ("1m30s", "2m", "1m30s"), ("999ms", "1s", "999ms")],
)
@pytest.mark.parametrize("key", ["serviceMonitor", "podMonitor"])
def test_a_scrape_takes_no_longer_than_its_interval(
    key: str, interval: str, timeout: str | None, expected: str, render: Render
) -> None:
    """The Prometheus Operator leaves such a monitor out, and tells its own log alone."""
    values = {"enabled": True, "interval": interval} | ({"scrapeTimeout": timeout} if timeout else {})
    spec = one(render({"metrics": {key: values}}), "ServiceMonitor" if key == "serviceMonitor" else "PodMonitor")["spec"]
    (endpoint,) = spec["endpoints" if key == "serviceMonitor" else "podMetricsEndpoints"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == (interval, expected)


def monitor_labels(objects: list[Manifest]) -> str | None:
    """What the operator is told to put on the workers' PodMonitors."""
    return {e["name"]: e.get("value") for e in container(objects)["env"]}.get("LEASEQUEUE_MONITOR_LABELS")


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({}, None),
        ({"podMonitor": {"enabled": False, "labels": {"release": "unused"}}}, None),
        ({"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}, "release=prometheus"),
        ({"serviceMonitor": {"enabled": True, "labels": {"release": "kps", "a.b/c": ""}}}, "a.b/c=,release=kps"),
        (
            {"podMonitor": {"enabled": True, "labels": {"release": "a"}}, "workerMonitors": {"labels": {"release": "b"}}},
            "release=b",
        ),
    ],
)
def test_one_label_makes_prometheus_find_operator_and_workers(metrics: object, expected: str | None, render: Render) -> None:
    """kube-prometheus-stack takes monitors of one label alone; without it nobody would scrape the workers."""
    assert monitor_labels(render({"metrics": metrics})) == expected


def test_labels_of_one_object_win_over_the_common_ones(render: Render) -> None:
    values = {
        "commonLabels": {"release": "common", "team": "a", "app.kubernetes.io/name": "other"},
        "podLabels": {"release": "pod"},
        "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "monitor"}}},
        "prometheusRule": {"enabled": True, "labels": {"release": "rule"}},
        "dashboard": {"enabled": True, "labels": {"release": "board"}},
    }
    objects = render(values)
    found = {o["kind"]: o["metadata"]["labels"] for o in objects}
    found["pod"] = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    expected = {"pod": "pod", "PodMonitor": "monitor", "PrometheusRule": "rule", "ConfigMap": "board", "Service": "common"}
    assert {kind: found[kind]["release"] for kind in expected} == expected
    assert {labels["team"] for labels in found.values()} == {"a"}
    assert {labels["app.kubernetes.io/name"] for labels in found.values()} == {"leasequeue"}


def test_the_test_pod_is_no_endpoint_of_the_service(render: Render) -> None:
    objects = render()
    selector = one(objects, "Service")["spec"]["selector"]
    assert not selector.items() <= one(objects, "Pod")["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("metrics", "tested"),
    [({}, True), ({"service": {"enabled": False}}, False),
     ({"service": {"enabled": False}, "serviceMonitor": {"enabled": True}}, True)],
)  # fmt: skip
def test_helm_test_is_there_wherever_its_service_is(metrics: object, tested: bool, render: Render) -> None:
    assert ({"Pod", "Service"} & kinds(render({"metrics": metrics}))) == ({"Pod", "Service"} if tested else set())


def test_network_policy_is_off_and_opens_its_port_alone(render: Render) -> None:
    assert "NetworkPolicy" not in kinds(render())
    spec = one(render(nested("networkPolicy.enabled", True)), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [{"ports": [{"port": 8080, "protocol": "TCP"}]}]
    moved = render({"httpPort": 9000, "networkPolicy": {"enabled": True}})
    assert one(moved, "NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"] == 9000


def test_network_policy_with_peers_and_egress(render: Render) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    rule = {"ports": [{"port": 5432}]}
    values = {"networkPolicy": {"enabled": True, "ingressFrom": [peer], "egress": [rule]}}
    objects = render(values)
    spec = one(objects, "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    test = one(objects, "Pod")["metadata"]
    assert spec["ingress"][0]["from"][0] == peer
    (_, tester) = spec["ingress"][0]["from"]
    assert set(tester) == {"podSelector"}
    assert tester["podSelector"]["matchLabels"].items() <= test["labels"].items(), "`helm test` would be kept out"
    assert not tester["podSelector"]["matchLabels"].items() <= one(objects, "Deployment")["metadata"]["labels"].items()
    assert spec["egress"] == [rule]
