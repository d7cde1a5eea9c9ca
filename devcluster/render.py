"""Configuration files and command lines of every part: pure functions of the cluster's paths."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.addresses import (
    CLUSTER_DOMAIN,
    CONTAINERD_SOCKET,
    DNS_IP,
    FIRST_POD_IP,
    NODE_IP,
    NODE_NAME,
    PAUSE_IMAGE,
    POD_NETWORK,
    SERVICE_NETWORK,
)
from devcluster.paths import ClusterPaths

API_PORT = 6443
# Client-side rate limits of the controllers and the kubelet: the defaults (20 and 50 a second) make a test that
# starts a hundred pods wait for its own cluster. No semantics change.
_QPS = ("--kube-api-qps=200", "--kube-api-burst=400")


@dataclass(frozen=True)
class Component:
    """One supervised process. ``stage`` 0 starts at once, 1 when the API server is ready."""

    name: str
    argv: list[str]
    stage: int = 0


def containerd_config(paths: ClusterPaths) -> str:
    """containerd's TOML (format 2, containerd 1.6)."""
    return f"""version = 2
root = "{paths.data}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{paths.data}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Some machines deny lowering oom_score_adj; without this every sandbox fails with
  # "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{paths.etc}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
"""


def cni_config() -> str:
    """Each pod hangs on a routed veth pair of its own.

    No bridge: traffic between pods of one bridge bypasses the Service rules, and a bridge changes its address (and
    hangs connections) as ports come and go.
    """
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_NETWORK, "rangeStart": FIRST_POD_IP, "gateway": NODE_IP}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return json.dumps(
        {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}]}, indent=1
    )


def kubelet_config(paths: ClusterPaths) -> str:
    """KubeletConfiguration as JSON."""
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{paths.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{paths.pki}/node.crt",
        "tlsPrivateKeyFile": f"{paths.pki}/node.key",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "address": NODE_IP,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{paths.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "protectKernelDefaults": True,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [DNS_IP],
        "resolvConf": "",
        "podLogsDir": f"{paths.data}/pod-logs",
        "maxPods": 150,
        "podPidsLimit": 1024,
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "5s",
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
    }
    return json.dumps(config, indent=1)


def kube_proxy_config(paths: ClusterPaths) -> str:
    """KubeProxyConfiguration as JSON: nftables, and no kernel setting outside this network namespace."""
    config: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": POD_NETWORK,
        "hostnameOverride": NODE_NAME,
        "clientConnection": {"kubeconfig": f"{paths.etc}/kube-proxy.kubeconfig"},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "nftables": {"syncPeriod": "30s", "minSyncPeriod": "100ms"},
        "bindAddress": NODE_IP,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
    return json.dumps(config, indent=1)


def corefile(paths: ClusterPaths) -> str:
    """CoreDNS answers for the cluster's own names; the rest does not exist, as there is no uplink."""
    return f""". {{
    bind {DNS_IP} 127.0.0.1
    errors
    ready 127.0.0.1:8181
    cache 5
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {paths.kubeconfig} devcluster
        pods insecure
        ttl 5
    }}
}}
"""


def files(paths: ClusterPaths) -> dict[Path, str]:
    """Every rendered file, by path."""
    etc = paths.etc
    return {
        etc / "containerd.toml": containerd_config(paths),
        etc / "cni" / "10-pods.conflist": cni_config(),
        etc / "kubelet.json": kubelet_config(paths),
        etc / "kube-proxy.json": kube_proxy_config(paths),
        etc / "Corefile": corefile(paths),
        etc / "hosts": f"127.0.0.1 localhost\n{NODE_IP} {NODE_NAME}\n",
        etc / "resolv.conf": f"nameserver {DNS_IP}\nsearch {CLUSTER_DOMAIN}\noptions timeout:2 attempts:2\n",
    }


def components(paths: ClusterPaths, programs: dict[str, str]) -> list[Component]:
    """The processes of the cluster in start order; ``programs`` maps a program's name to its path."""
    return [
        Component("etcd", _etcd(paths, programs["etcd"])),
        Component("containerd", [programs["containerd"], "--config", f"{paths.etc}/containerd.toml"]),
        Component("kube-apiserver", _apiserver(paths, programs["kube-apiserver"])),
        Component("kubelet", _kubelet(paths, programs["kubelet"]), stage=1),
        Component("kube-controller-manager", _controllers(paths, programs["kube-controller-manager"]), stage=1),
        Component("kube-scheduler", _scheduler(paths, programs["kube-scheduler"]), stage=1),
        Component("kube-proxy", [programs["kube-proxy"], f"--config={paths.etc}/kube-proxy.json"], stage=1),
        Component("coredns", [programs["coredns"], "-conf", f"{paths.etc}/Corefile"], stage=1),
    ]


def _etcd(paths: ClusterPaths, program: str) -> list[str]:
    return [
        program,
        f"--data-dir={paths.data}/etcd",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=default=http://127.0.0.1:2380",
        # The cluster never outlives its machine, so nothing is gained by waiting for the disk.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(paths: ClusterPaths, program: str) -> list[str]:
    pki = paths.pki
    return [
        program,
        "--etcd-servers=http://127.0.0.1:2379",
        f"--secure-port={API_PORT}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={NODE_IP}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/admin.crt",
        f"--kubelet-client-key={pki}/admin.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--cert-dir={paths.data}/apiserver",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
    ]


def _kubelet(paths: ClusterPaths, program: str) -> list[str]:
    return [
        program,
        f"--config={paths.etc}/kubelet.json",
        f"--kubeconfig={paths.etc}/node.kubeconfig",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_IP}",
        f"--cert-dir={paths.pki}",
    ]


def _controllers(paths: ClusterPaths, program: str) -> list[str]:
    kubeconfig = f"{paths.etc}/kube-controller-manager.kubeconfig"
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={paths.pki}/sa.key",
        f"--root-ca-file={paths.pki}/ca.crt",
        f"--cert-dir={paths.data}/controllers",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        *_QPS,
    ]


def _scheduler(paths: ClusterPaths, program: str) -> list[str]:
    kubeconfig = f"{paths.etc}/kube-scheduler.kubeconfig"
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--cert-dir={paths.data}/scheduler",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        *_QPS,
    ]


def network_commands() -> list[list[str]]:
    """Commands that prepare an empty network namespace: no uplink, the node's address, a route for Services."""
    return [
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{NODE_IP}/32", "dev", "lo"],
        # Service addresses are rewritten after routing, so they need a route, wherever it points.
        ["ip", "route", "add", SERVICE_NETWORK, "dev", "lo", "src", NODE_IP],
    ]
