"""The few questions the supervisor asks the API server, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from devcluster.addresses import NODE_NAME
from devcluster.paths import ClusterPaths
from devcluster.render import API_PORT

_DEADLINE = 5.0


class ApiServer:
    """Asks the cluster's API server as its administrator. Every call ends within 5 seconds."""

    def __init__(self, paths: ClusterPaths) -> None:
        self._tls = ssl.create_default_context(cafile=str(paths.pki / "ca.crt"))
        self._tls.load_cert_chain(paths.pki / "admin.crt", paths.pki / "admin.key")

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a GET.

        :raises OSError: nothing answered.
        """
        connection = http.client.HTTPSConnection("127.0.0.1", API_PORT, timeout=_DEADLINE, context=self._tls)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        except http.client.HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()

    def ready(self) -> bool:
        """Whether ``/readyz`` says ok."""
        return self._found("/readyz")

    def default_account_exists(self) -> bool:
        """Whether the default namespace has its service account; pods are refused before."""
        return self._found("/api/v1/namespaces/default/serviceaccounts/default")

    def node_ready(self) -> bool:
        """Whether the node reports Ready and carries no taint that keeps pods away."""
        try:
            status, body = self.get(f"/api/v1/nodes/{NODE_NAME}")
        except OSError:
            return False
        return status == 200 and node_takes_pods(json.loads(body))

    def _found(self, path: str) -> bool:
        try:
            return self.get(path)[0] == 200
        except OSError:
            return False


def node_takes_pods(node: dict[str, Any]) -> bool:
    """Whether a Node object is Ready and untainted."""
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and not node.get("spec", {}).get("taints")
