"""Marks of the tests that bring up a devcluster of their own."""

from __future__ import annotations

import os

import pytest

OWN_CLUSTER = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(2400),  # the first run on a machine builds Kubernetes and the images
    pytest.mark.skipif(
        bool(os.environ.get("KUBECONFIG")) or os.name != "posix" or os.geteuid() != 0,
        reason="needs a devcluster of its own: root, and no KUBECONFIG",
    ),
]
