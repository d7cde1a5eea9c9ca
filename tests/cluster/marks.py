"""Marks of the tests that need a cluster."""

from __future__ import annotations

import os

import pytest

GIVEN = bool(os.environ.get("KUBECONFIG"))
NO_DEVCLUSTER = os.name != "posix" or os.geteuid() != 0


def _marks(timeout_s: int, reason: str, *, left_out: bool) -> list[pytest.MarkDecorator]:
    """Slow tests of the cluster layer, left out where there is no such cluster. The first run on a machine builds Kubernetes and the images."""
    return [
        pytest.mark.cluster,
        pytest.mark.slow,
        pytest.mark.timeout(timeout_s),
        pytest.mark.skipif(left_out, reason=reason),
    ]


def own_cluster(timeout_s: int) -> list[pytest.MarkDecorator]:
    """For tests that bring up a devcluster of their own, at most `timeout_s` seconds each."""
    return _marks(timeout_s, "needs a devcluster of its own: root, and no KUBECONFIG", left_out=GIVEN or NO_DEVCLUSTER)


OWN_CLUSTER = own_cluster(2400)
# Whichever cluster there is.
ANY_CLUSTER = _marks(900, "devcluster needs root; or set KUBECONFIG", left_out=not GIVEN and NO_DEVCLUSTER)
