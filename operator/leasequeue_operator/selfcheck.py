"""Does the operator have the rights it needs? Each that lacks is named, before anything fails half-way.

Asked at the start, and at each full list while one lacks: a chart that is older than the operator may not grant a right that is
new. The operator then does without it what it can, and says so in its log, its metrics and the text of /readyz.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leasequeue_operator.kinds import ACCESS_REVIEW
from leasequeue_operator.kube import Kube
from leasequeue_operator.rights import ELECTION, Right, needed_to_start, single_rights

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Missing:
    """One right that lacks. `namespace`: empty for all namespaces."""

    right: Right
    verb: str
    namespace: str

    @property
    def resource(self) -> str:
        """`deployments.apps`, `pods`, `leasequeues/status.leasequeue.dev`."""
        return f"{self.right.resource}{'.' + self.right.group if self.right.group else ''}"

    @property
    def fatal(self) -> bool:
        """Whether nothing works without it."""
        return needed_to_start(self.right, self.verb)

    def __str__(self) -> str:
        where = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {self.resource} {where}"


class Rights(Collector):
    """What is known of the operator's own rights; a collector for prometheus_client.

    Args:
        kube: the API.
        namespaces: those served; none means all.
        elected_in: namespace of the Lease; empty where there is no election.
    """

    def __init__(self, kube: Kube, namespaces: tuple[str, ...], elected_in: str = "") -> None:
        self._kube, self._namespaces, self._elected_in = kube, namespaces, elected_in
        self.missing: Sequence[Missing] = ()

    async def check(self) -> None:
        """Ask for all of them; log what lacks and what no longer does.

        Raises:
            KubeError: the question itself was refused or unanswered; what was known stays.
        """
        before, self.missing = set(self.missing), await missing_rights(self._kube, self._namespaces, self._elected_in)
        for one in self.missing:
            if one not in before:
                level = log.warning if one.right.optional else log.error
                level("right_missing", right=str(one), needed_to=one.right.why, fatal=one.fatal)
        for one in before - set(self.missing):
            log.info("right_granted", right=str(one))

    def fatal(self) -> str:
        """What the operator waits for; empty when it can work."""
        lacking = [str(one) for one in self.missing if one.fatal]
        return f"the operator lacks rights: {'; '.join(lacking)}. Apply its RBAC manifests." if lacking else ""

    def note(self) -> str:
        """What it does without, for the text of /readyz."""
        lacking = [f"{one} (to {one.right.why})" for one in self.missing if not one.right.optional]
        return f"working without rights: {'; '.join(lacking)}. Apply the RBAC manifests of this version." if lacking else ""

    def describe(self) -> Iterable[Metric]:
        """Nothing: so that registering asks nobody."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One series a right that lacks."""
        family = GaugeMetricFamily(
            "leasequeue_right_missing", "1 for each right that the operator lacks.", labels=["verb", "resource", "in_namespace"]
        )
        for one in self.missing:
            family.add_metric([one.verb, one.resource, one.namespace], 1)
        yield family


async def missing_rights(kube: Kube, namespaces: tuple[str, ...], elected_in: str = "") -> list[Missing]:
    """Rights that lack.

    Args:
        kube: the API.
        namespaces: those served; none means all.
        elected_in: namespace of the Lease; empty where there is no election.

    Raises:
        KubeError: the question itself was refused or unanswered.
    """
    asked = [(right, verb, namespace) for namespace in namespaces or ("",) for right, verb in single_rights()]
    if elected_in:
        asked += [(ELECTION, verb, elected_in) for verb in ELECTION.verbs]
    answers = await asyncio.gather(*(_allowed(kube, right, verb, namespace) for right, verb, namespace in asked))
    return [Missing(*one) for one, allowed in zip(asked, answers, strict=True) if not allowed]


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
