"""The edge to the Kubernetes API: plain objects in and out, a deadline on every call, one kind of error.

It uses `kubernetes.aio` for login, TLS, and transport, and speaks of objects as dicts: their models would cost a second
definition of each manifest and drop fields that a newer API server knows.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client import ApiClient, Configuration

from leasequeue_operator.kinds import Kind
from leasequeue_operator.usage import Usage

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PAGE = 500
MESSAGE_LIMIT = 500


class KubeError(Exception):
    """The API server refused a call or could not be reached.

    Args:
        status: HTTP status; 0 when there was no answer in time.
        reason: the server's one word (NotFound, Conflict, …), or Timeout or Unreachable.
        message: the server's text, cut to 500 characters.
        retry_after_s: how long the server asks to wait, seconds.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after_s: float | None = None) -> None:
        self.status, self.reason, self.retry_after_s = status, reason, retry_after_s
        self.message = message[:MESSAGE_LIMIT]
        super().__init__(f"{status} {reason}: {self.message}")

    @property
    def passing(self) -> bool:
        """True for faults that go away by themselves: no answer, overload, a server error, a conflict of writers."""
        return self.status in (0, 408, 409, 410, 429) or self.status >= 500


class Kube:
    """Calls to the API server.

    Args:
        client: a logged-in client.
        timeout_s: deadline of each call, seconds.
        usage: counts the calls.
        acting: whether this process may write now; asked before each call that does.
    """

    def __init__(
        self, client: ApiClient, timeout_s: float, usage: Usage | None = None, acting: Callable[[], bool] = lambda: True
    ) -> None:
        self._client, self._usage, self._acting = client, usage or Usage(), acting
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        """Read one object.

        Raises:
            KubeError: status 404 where there is none.
        """
        return await self.call("GET", kind.path(namespace, name))

    async def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        """Read one object; None where there is none."""
        try:
            return await self.get(kind, namespace, name)
        except KubeError as ex:
            if ex.status == 404:
                return None
            raise

    async def pages(self, kind: Kind, namespace: str | None, selector: str = "") -> AsyncIterator[dict[str, Any]]:
        """The pages of a list, each with its items and the list's resourceVersion."""
        query = {"limit": str(PAGE), **({"labelSelector": selector} if selector else {})}
        while True:
            page = await self.call("GET", kind.path(namespace), query=query)
            yield page
            following = page.get("metadata", {}).get("continue")
            if not following:
                return
            query["continue"] = following

    async def create(self, kind: Kind, manifest: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Create an object. Raises KubeError 409 AlreadyExists where the name is taken."""
        path = kind.path(manifest["metadata"]["namespace"])
        return await self.call("POST", path, query={"fieldManager": manager}, body=manifest)

    async def apply(
        self, kind: Kind, manifest: Mapping[str, Any], manager: str, subresource: str | None = None
    ) -> dict[str, Any]:
        """Server-side apply. The manifest carries the uid, so that it changes this very object and never makes one."""
        meta = manifest["metadata"]
        if "uid" not in meta:
            raise ValueError(f"apply of {kind.name} {meta['name']} without a uid could create or take over an object")
        query = {"fieldManager": manager, "force": "true"}
        path = kind.path(meta["namespace"], meta["name"], subresource)
        return await self.call("PATCH", path, query=query, body=manifest, content_type=APPLY)

    async def patch(self, path: str, body: Any, *, content_type: str, manager: str | None = None) -> dict[str, Any]:
        """Any other patch."""
        query = {"fieldManager": manager} if manager else None
        return await self.call("PATCH", path, query=query, body=body, content_type=content_type)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """One call.

        Raises:
            KubeError: refused, unanswered within the deadline, or unreachable.
        """
        if method != "GET" and not self._acting():
            raise KubeError(0, "NotActing", f"{method} {path}: another replica acts")
        try:
            found = await self._call(method, path, query, body, content_type)
        except KubeError as ex:
            self._usage.called(method, path, ex.status)
            raise
        self._usage.called(method, path, 200)
        return found

    async def _call(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Any, content_type: str
    ) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        _, url, sent_headers, sent_body, _ = await self._client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, body=body,
            auth_settings=["BearerToken"],
        )  # fmt: skip
        try:
            answer = await self._client.call_api(method, url, sent_headers, sent_body, _request_timeout=self._timeout)
            data: bytes = await answer.read()  # type: ignore[no-untyped-call]
        except TimeoutError as ex:
            raise KubeError(0, "Timeout", f"{method} {path}: no answer in {self._timeout.total:g} s") from ex
        except (aiohttp.ClientError, OSError) as ex:
            raise KubeError(0, "Unreachable", f"{method} {path}: {ex}") from ex
        if 200 <= answer.status < 300:
            return _decoded(data, method, path)
        raise _refusal(answer.status, data, answer.headers.get("Retry-After"))


def _decoded(data: bytes, method: str, path: str) -> dict[str, Any]:
    try:
        decoded = json.loads(data)
    except ValueError as ex:
        raise KubeError(0, "Unreadable", f"{method} {path}: the answer is no JSON") from ex
    if not isinstance(decoded, dict):
        raise KubeError(0, "Unreadable", f"{method} {path}: the answer is no object")
    return decoded


def _refusal(status: int, data: bytes, retry_after: str | None) -> KubeError:
    try:
        told = json.loads(data)
        reason, message = str(told.get("reason") or status), str(told.get("message") or "")
    except (ValueError, AttributeError):
        reason, message = str(status), data[:MESSAGE_LIMIT].decode(errors="replace")
    wait_s = float(retry_after) if retry_after and retry_after.isdecimal() else None
    return KubeError(status, reason, message, wait_s)


async def login() -> Configuration:
    """Configuration of the pod's ServiceAccount, or of KUBECONFIG (~/.kube/config) outside a cluster.

    Raises:
        kubernetes.aio.config.ConfigException: neither is there.
    """
    configuration = Configuration()
    try:
        kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except kubernetes_config.ConfigException:
        await kubernetes_config.load_kube_config(client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
    return configuration
