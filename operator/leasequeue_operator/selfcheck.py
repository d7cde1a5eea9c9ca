"""At the start: does the operator have the rights it needs? Each that lacks is named, before anything fails half-way."""

from __future__ import annotations

import asyncio

from leasequeue_operator.kinds import ACCESS_REVIEW
from leasequeue_operator.kube import Kube
from leasequeue_operator.rights import Right, single_rights


async def missing_rights(kube: Kube, namespaces: tuple[str, ...]) -> list[tuple[Right, str]]:
    """Rights that lack, with a text that names each.

    Args:
        kube: the API.
        namespaces: those served; none means all.

    Raises:
        KubeError: the question itself was refused or unanswered.
    """
    missing = []
    for namespace in namespaces or ("",):
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        asked = list(single_rights())
        answers = await asyncio.gather(*(_allowed(kube, right, verb, namespace) for right, verb in asked))
        for (right, verb), allowed in zip(asked, answers, strict=True):
            if not allowed:
                missing.append((right, f"{verb} {right.resource}{'.' + right.group if right.group else ''} {where}"))
    return missing


async def _allowed(kube: Kube, right: Right, verb: str, namespace: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    asked = {
        "group": right.group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace,
    }  # fmt: skip
    body = {
        "apiVersion": ACCESS_REVIEW.api_version,
        "kind": ACCESS_REVIEW.name,
        "spec": {"resourceAttributes": asked},
    }
    answer = await kube.call("POST", ACCESS_REVIEW.path(None), body=body)
    return bool((answer.get("status") or {}).get("allowed"))
