"""Service, monitors and NetworkPolicy."""

from __future__ import annotations

import pytest

from tests.chart.support import Refusal, Render, kinds, nested, one


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
    assert spec["namespaceSelector"] == {"matchNames": [deployment["metadata"]["namespace"]]}
    (endpoint,) = spec[endpoints]
    ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert endpoint["port"] in {port["name"] for port in ports}
    assert (endpoint["path"], endpoint["honorLabels"], endpoint["interval"]) == ("/metrics", True, "7s")
    if kind == "ServiceMonitor":
        service = one(objects, "Service")
        assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_the_test_pod_is_no_endpoint_of_the_service(render: Render) -> None:
    objects = render()
    selector = one(objects, "Service")["spec"]["selector"]
    assert not selector.items() <= one(objects, "Pod")["metadata"]["labels"].items()


def test_network_policy_is_off_and_opens_its_port_alone(render: Render) -> None:
    assert "NetworkPolicy" not in kinds(render())
    spec = one(render(nested("networkPolicy.enabled", True)), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [{"ports": [{"port": "http", "protocol": "TCP"}]}]


def test_network_policy_with_peers_and_egress(render: Render) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    rule = {"ports": [{"port": 5432}]}
    values = {"networkPolicy": {"enabled": True, "ingressFrom": [peer], "egress": [rule]}}
    spec = one(render(values), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"][0]["from"] == [peer]
    assert spec["egress"] == [rule]
