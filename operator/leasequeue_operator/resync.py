"""Full lists from time to time: they notice what a silent watch has missed, and deletions that no watch will ever tell."""

from __future__ import annotations

from typing import Any

from leasequeue_operator.cache import Cache, Key
from leasequeue_operator.kinds import AUTOSCALER, LEASE_QUEUE, WATCHED_CHILDREN
from leasequeue_operator.kube import Kube, KubeError
from leasequeue_operator.plan.names import UID_LABEL
from leasequeue_operator.plan.ownership import autoscaled


async def resync(kube: Kube, cache: Cache, namespaces: tuple[str, ...]) -> set[Key]:
    """Take over fresh lists of queues and children.

    Args:
        kube: the API.
        cache: takes the lists.
        namespaces: those to list; none means all.

    Returns:
        Keys of the queues that are concerned by a difference.

    Raises:
        KubeError: a list failed; those before it have been taken over.
    """
    concerned: set[Key] = set()
    autoscalers: dict[Key, str] = {}
    for namespace in namespaces or (None,):
        # Queues first: children are linked to them by uid.
        for kind in (LEASE_QUEUE, *WATCHED_CHILDREN):
            selector = "" if kind is LEASE_QUEUE else UID_LABEL
            items: list[dict[str, Any]] = []
            version = 0
            async for page in kube.pages(kind, namespace, selector):
                items.extend(page.get("items") or ())
                # The first page's version is the oldest: what is newer stays.
                text = str(page.get("metadata", {}).get("resourceVersion", ""))
                version = version or (int(text) if text.isdecimal() else 0)
            concerned |= cache.replace(kind.name, items, version, namespace)
        autoscalers |= await _autoscalers(kube, namespace)
    cache.autoscalers = autoscalers
    return concerned


async def _autoscalers(kube: Kube, namespace: str | None) -> dict[Key, str]:
    found: dict[Key, str] = {}
    try:
        async for page in kube.pages(AUTOSCALER, namespace):
            found |= autoscaled(page.get("items") or ())
    except KubeError as ex:
        if ex.status != 403:  # an optional right
            raise
    return found


async def has_api(kube: Kube, api_version: str, plural: str) -> bool:
    """Whether the cluster has a kind of objects."""
    try:
        found = await kube.call("GET", f"/apis/{api_version}")
    except KubeError as ex:
        if ex.status in (403, 404):
            return False
        raise
    return any(resource.get("name") == plural for resource in found.get("resources") or ())
