"""A stateful imitation of the API server for faults: kmock's emulator with uids, versions, refusals, and injected faults.

It imitates what the operator relies on: names are unique, an apply with another uid is refused, a write changes the version
and, of the spec, the generation. Field ownership and schemas are tested on a real API server (tests/cluster).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from dataclasses import dataclass
from typing import Any

import aiohttp.web
import attrs
import kmock
from kmock import KubernetesEmulator, KubernetesError, Request

RESOURCES = {
    "leasequeue.dev/v1alpha1/leasequeues": "LeaseQueue",
    "apps/v1/deployments": "Deployment",
    "batch/v1/cronjobs": "CronJob",
    "batch/v1/jobs": "Job",
    "v1/pods": "Pod",
    "v1/serviceaccounts": "ServiceAccount",
    "v1/secrets": "Secret",
    "v1/events": "Event",
    "monitoring.coreos.com/v1/podmonitors": "PodMonitor",
    "coordination.k8s.io/v1/leases": "Lease",
    "autoscaling/v2/horizontalpodautoscalers": "HorizontalPodAutoscaler",
    # kopf waits for these two to be discovered, though it never asks for any
    "v1/namespaces": "Namespace",
    "apiextensions.k8s.io/v1/customresourcedefinitions": "CustomResourceDefinition",
}
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REASONS = {
    400: "BadRequest", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid",
    429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable",
}  # fmt: skip


@dataclass
class Fault:
    """The next `times` calls that match get no proper answer.

    Args:
        method: HTTP method.
        path: regular expression, searched in the path.
        kind: a status; "hang": no answer; "lost": it is done, but the answer is a 500; "cut": the connection ends.
        times: how often.
        content: part of the content type of the calls that match; any where empty.
        watch: None for any call, else whether it is a watch.
    """

    method: str
    path: str
    kind: int | str
    times: int = 1
    content: str = ""
    watch: bool | None = None


@attrs.define(kw_only=True, eq=False)
class ApiServer(KubernetesEmulator):
    """The server's behaviour; see the module."""

    faults: list[Fault] = attrs.field(factory=list, init=False)
    hit: int = attrs.field(default=0, init=False)
    # Verb and resource of rights that lack, "*" for any: a review says so, and the call itself is refused.
    denied: set[tuple[str, str]] = attrs.field(factory=set, init=False)
    calls: list[tuple[str, str]] = attrs.field(factory=list, init=False)  # method and path
    _versions: Any = attrs.field(factory=lambda: itertools.count(100), init=False)
    _uids: Any = attrs.field(factory=lambda: itertools.count(1), init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for path, kind in RESOURCES.items():
            self.resources[path] = kmock.ResourceInfo(
                kind=kind, singular=kind.lower(), namespaced=True,
                verbs={"get", "list", "watch", "create", "patch"},
            )  # fmt: skip

    async def _handle(self, request: Request) -> Any:
        self.calls.append((request.method.value, request.url.path))
        if request.url.path != REVIEWS:  # everybody may ask for his own rights
            self._check_right(request)
        fault = self._next_fault(request)
        if fault is not None and (fault.kind != "lost" or request.url.path == REVIEWS):
            await self._refuse(fault)
        if request.url.path == REVIEWS:
            return aiohttp.web.json_response({"status": {"allowed": not self._denies(*_asked(request.data))}})
        self._prepare(request)
        answer = await super()._handle(request)
        if fault is not None:
            await self._refuse(fault)
        return answer

    def _denies(self, verb: str, resource: str) -> bool:
        return not self.denied.isdisjoint({(verb, resource), ("*", resource), ("*", "*")})

    def _check_right(self, request: Request) -> None:
        verb, resource = used_right(request.method.value, request.url.path, "watch" in request.url.query)
        if self._denies(verb, resource):
            raise KubernetesError(status=403, reason="Forbidden", message=f"cannot {verb} resource {resource}", details={})

    def _next_fault(self, request: Request) -> Fault | None:
        for fault in self.faults:
            if fault.times and _matches(fault, request):
                fault.times -= 1
                self.hit += 1
                return fault
        return None

    async def _refuse(self, fault: Fault) -> None:
        if fault.kind == "hang":
            await asyncio.sleep(30)
        if fault.kind == "cut":
            raise aiohttp.ClientConnectionResetError("cut")
        status = fault.kind if isinstance(fault.kind, int) else 500
        raise KubernetesError(status=status, reason=REASONS[status], message="injected", details={})

    async def _serve_list(self, request: Request) -> Any:
        listed: Any = await super()._serve_list(request)
        return {**listed, "metadata": {"resourceVersion": str(next(self._versions))}}

    def _prepare(self, request: Request) -> None:
        """Give an object what the API server gives it, refuse what it refuses."""
        if request.method == "POST" and request.resource is not None and isinstance(request.data, dict):
            self._prepare_create(request)
        elif request.method == "PATCH" and request.name is not None:
            self._prepare_patch(request)

    def _prepare_create(self, request: Request) -> None:
        meta = request.data.get("metadata", {})
        if not meta.get("name"):
            return
        key = (request.resource, request.namespace, meta["name"])
        if key in self.objects and not self.objects[key].deleted:
            raise KubernetesError(status=409, reason="AlreadyExists", message=f"{meta['name']} already exists", details={})
        meta.update(
            uid=f"uid-{next(self._uids)}", resourceVersion=str(next(self._versions)), generation=1,
            creationTimestamp="2026-03-01T11:00:00Z",
        )  # fmt: skip
        if manager := request.url.query.get("fieldManager"):
            meta["managedFields"] = [{"manager": manager, "operation": "Update", "fieldsV1": {}}]

    def _prepare_patch(self, request: Request) -> None:
        key = (request.resource, request.namespace, request.name)
        if key not in self.objects or self.objects[key].deleted:
            raise KubernetesError(status=404, reason="NotFound", message=f"{request.name} not found", details={})
        live = self.objects[key].raw
        if isinstance(request.data, list):
            changes = {op["path"].rpartition("/")[2]: op["value"] for op in request.data}
            object.__setattr__(request, "data", {"metadata": changes})
        elif request.data is None:
            object.__setattr__(request, "data", json.loads(request.body))
        meta = request.data.setdefault("metadata", {})
        if meta.get("uid", live["metadata"]["uid"]) != live["metadata"]["uid"]:
            raise KubernetesError(status=409, reason="Conflict", message="uid mismatch", details={})
        if request.data.get("spec", {}) != {} and not _within(request.data["spec"], live.get("spec", {})):
            meta["generation"] = live["metadata"]["generation"] + 1
        meta["resourceVersion"] = str(next(self._versions))

    def store(self, path: str, namespace: str, body: dict[str, Any]) -> None:
        """Put an object there as if it had always been."""
        meta = body["metadata"]
        meta.setdefault("uid", f"uid-{next(self._uids)}")
        meta.update(namespace=namespace, resourceVersion=str(next(self._versions)))
        meta.setdefault("generation", 1)
        self.objects[path, namespace, meta["name"]] = body

    def stored(self, path: str, namespace: str, name: str) -> dict[str, Any] | None:
        """An object as it is, None where there is none."""
        key = (kmock.resource(path), namespace, name)
        return dict(self.objects[key].raw) if key in self.objects and not self.objects[key].deleted else None

    def names(self, path: str) -> list[str]:
        """Names of all objects of a resource."""
        wanted = kmock.resource(path)
        return sorted(name for (r, _, name), o in self.objects.items() if r == wanted and not o.deleted)


def _matches(fault: Fault, request: Request) -> bool:
    content = str(request.headers.get("Content-Type", ""))
    watch = fault.watch is None or fault.watch == ("watch" in request.url.query)
    return (
        request.method == fault.method and bool(re.search(fault.path, request.url.path)) and fault.content in content and watch
    )


def _asked(review: Any) -> tuple[str, str]:
    asked = review["spec"]["resourceAttributes"]
    return asked["verb"], "/".join(part for part in (asked["resource"], asked["subresource"]) if part)


def used_right(method: str, path: str, watches: bool = False) -> tuple[str, str]:
    """Verb and resource of the right that a call needs; ("", "") for what everybody may (discovery, reviews of oneself)."""
    parts = path.strip("/").split("/")
    if path == REVIEWS or len(parts) < 3 or (parts[0] == "apis" and len(parts) == 3):
        return "", ""
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = rest[0] + (f"/{rest[2]}" if len(rest) > 2 else "")
    reads = "get" if len(rest) > 1 else "watch" if watches else "list"
    return {"GET": reads, "POST": "create", "PATCH": "patch"}[method], resource


def _within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and _within(v, whole[k]) for k, v in part.items())
    return bool(part == whole)
