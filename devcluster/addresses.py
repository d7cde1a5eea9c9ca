"""Addresses inside a cluster: the same for each, since each has a network namespace of its own."""

from __future__ import annotations

NODE_NAME = "node0"
NODE_IP = "10.244.0.1"
POD_NETWORK = "10.244.0.0/20"
FIRST_POD_IP = "10.244.0.10"
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_IP = NODE_IP
CLUSTER_DOMAIN = "cluster.local"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "localhost/leasequeue-pause:1"
