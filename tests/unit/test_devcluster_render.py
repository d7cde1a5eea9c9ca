"""Configuration and command lines of the cluster's parts."""

from __future__ import annotations

import ipaddress
import json
import tomllib

import pytest

from devcluster import addresses, render
from devcluster.api import node_takes_pods
from devcluster.paths import cluster_paths

PATHS = cluster_paths("dev")
PROGRAMS = {
    name: f"/bin/{name}"
    for name in (
        "etcd", "containerd", "kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy",
        "coredns",
    )
}  # fmt: skip


def argv(name: str) -> list[str]:
    return next(component.argv for component in render.components(PATHS, PROGRAMS) if component.name == name)


def test_containerd_config_is_toml_that_survives_what_machines_deny() -> None:
    config = tomllib.loads(render.containerd_config(PATHS))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]

    assert config["version"] == 2
    assert cri["restrict_oom_score_adj"] is True
    assert cri["sandbox_image"] == addresses.PAUSE_IMAGE
    assert config["root"].startswith(str(PATHS.data))


def test_kubelet_keeps_its_pods_in_the_cluster_s_own_cgroup_and_leaves_the_kernel_alone() -> None:
    config = json.loads(render.kubelet_config(PATHS))

    assert config["cgroupRoot"] == f"/{PATHS.cgroup}"
    assert config["protectKernelDefaults"] is True
    assert config["failCgroupV1"] is False
    assert config["maxPods"] == 150
    assert config["clusterDNS"] == [addresses.DNS_IP]


def test_the_pod_network_holds_more_addresses_than_pods_and_not_the_services() -> None:
    pods = ipaddress.IPv4Network(addresses.POD_NETWORK)
    services = ipaddress.IPv4Network(addresses.SERVICE_NETWORK)
    ipam = json.loads(render.cni_config())["plugins"][0]["ipam"]["ranges"][0][0]

    assert pods.num_addresses > 4 * 150
    assert not pods.overlaps(services)
    assert ipaddress.IPv4Address(addresses.NODE_IP) in pods
    assert ipaddress.IPv4Address(ipam["rangeStart"]) > ipaddress.IPv4Address(ipam["gateway"])


def test_api_server_restricts_nodes_and_checks_the_kubelet_s_certificate() -> None:
    command = argv("kube-apiserver")

    assert "--authorization-mode=Node,RBAC" in command
    assert "--enable-admission-plugins=NodeRestriction" in command
    assert f"--kubelet-certificate-authority={PATHS.pki}/ca.crt" in command


@pytest.mark.parametrize("name", ["kube-controller-manager", "kube-scheduler"])
def test_controllers_act_under_their_own_names_and_do_not_elect_a_leader(name: str) -> None:
    assert f"--kubeconfig={PATHS.etc}/{name}.kubeconfig" in argv(name)
    assert "--leader-elect=false" in argv(name)


def test_only_storage_runtime_and_api_server_start_before_the_api_answers() -> None:
    first = {component.name for component in render.components(PATHS, PROGRAMS) if component.stage == 0}

    assert first == {"etcd", "containerd", "kube-apiserver"}


def test_every_configuration_file_a_command_names_is_written() -> None:
    written = {str(path) for path in render.files(PATHS)}
    named = {
        word.split("=", 1)[-1]
        for component in render.components(PATHS, PROGRAMS)
        for word in component.argv
        if str(PATHS.etc) in word and not word.endswith(".kubeconfig")
    }

    assert named
    assert named <= written


def test_kube_proxy_uses_nftables_and_touches_no_limit_of_the_machine() -> None:
    config = json.loads(render.kube_proxy_config(PATHS))

    assert config["mode"] == "nftables"
    assert config["conntrack"]["maxPerCore"] == 0
    assert config["conntrack"]["min"] == 0


@pytest.mark.parametrize(
    ("node", "takes"),
    [
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {}}, True),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}, "spec": {}}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"taints": [{"key": "k"}]}}, False),
        ({"metadata": {}}, False),
    ],
)
def test_a_node_takes_pods_when_it_is_ready_and_untainted(node: dict[str, object], takes: bool) -> None:
    assert node_takes_pods(node) is takes
