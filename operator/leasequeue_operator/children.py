"""Brings a queue's children about: ServiceAccount, Deployment, CronJob, PodMonitor, schema Job, and the number of pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leasequeue_operator.apply import Applier
from leasequeue_operator.cache import Cache
from leasequeue_operator.kinds import CRON_JOB, DEPLOYMENT, JOB, POD
from leasequeue_operator.plan import cronjob, deployment, names, podmonitor, schema_job, serviceaccount
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import Queue
from leasequeue_operator.settings import Settings

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Children:
    """A queue's children as last seen."""

    deployment: Object | None
    cron_job: Object | None
    jobs: Sequence[Object]
    pods: Sequence[Object]

    @property
    def replicas(self) -> int:
        """Worker pods the Deployment asks for."""
        return int((self.deployment or {}).get("spec", {}).get("replicas", 0))


def seen(cache: Cache, queue_name: str, uid: str) -> Children:
    """What the cache holds of a queue."""
    return Children(
        _named(cache.children(uid, DEPLOYMENT.name), names.worker(queue_name)),
        _named(cache.children(uid, CRON_JOB.name), names.reclaimer(queue_name)),
        cache.children(uid, JOB.name),
        cache.children(uid, POD.name),
    )


def all_names(queue_name: str) -> set[str]:
    """Names of all children that are applied."""
    return {
        names.worker(queue_name),
        names.reclaimer(queue_name),
        names.service_account(queue_name),
        names.pod_monitor(queue_name),
    }


async def ensure(
    applier: Applier,
    settings: Settings,
    queue: Queue,
    children: Children,
    *,
    replicas: int,
    reclaimer: bool,
    monitor: bool,
) -> dict[str, Problem]:
    """Make the children be as planned.

    Args:
        applier: does it.
        settings: images and pull policy.
        queue: the queue.
        children: as last seen.
        replicas: pods of a Deployment that has to be made.
        reclaimer: whether this queue runs the reclaimer.
        monitor: whether the cluster has the PodMonitor API.

    Returns:
        Problems by component.

    Raises:
        KubeError: a passing fault; what came before it is done.
    """
    pull = settings.image_pull_secrets
    workers = deployment.build(queue, default_image=settings.worker_image, pull_secrets=pull)
    workers = deployment.kept(workers, children.deployment)
    found = {
        "identity": await ensure_identity(applier, queue),
        "worker": await applier.ensure(queue.uid, workers, children.deployment, replicas=replicas),
    }
    if reclaimer:
        manifest = cronjob.build(
            queue, image=settings.reclaimer_image, pull_policy=settings.image_pull_policy, pull_secrets=pull
        )
        found["reclaimer"] = await applier.ensure(queue.uid, manifest, children.cron_job)
    if monitor:
        found["monitor"] = await applier.ensure(queue.uid, podmonitor.build(queue, settings.monitor_label_map), None)
    return {component: problem for component, problem in found.items() if problem is not None}


async def ensure_identity(applier: Applier, queue: Queue) -> Problem | None:
    """Make the ServiceAccount alone, which the schema Job needs before there is anything else."""
    return await applier.ensure(queue.uid, serviceaccount.build(queue), None)


def schema_manifest(settings: Settings, queue: Queue, secret_version: str) -> dict[str, Any]:
    """The schema Job as it should be."""
    return schema_job.build(
        queue,
        image=settings.reclaimer_image,
        pull_policy=settings.image_pull_policy,
        secret_version=secret_version,
        pull_secrets=settings.image_pull_secrets,
    )


def _named(objects: Sequence[Object], name: str) -> Object | None:
    return next((o for o in objects if o["metadata"]["name"] == name), None)
