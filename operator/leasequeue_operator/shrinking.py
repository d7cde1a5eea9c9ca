"""The edge of a decrease: reads and sets cordons, marks pods, and says how many pods the Deployment may ask for now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from leasequeue_operator.children import Children, Object
from leasequeue_operator.kinds import POD
from leasequeue_operator.kube import MERGE, Kube, KubeError
from leasequeue_operator.observe.database import Hub
from leasequeue_operator.observe.view import DatabaseView
from leasequeue_operator.plan import fleet as fleets
from leasequeue_operator.plan.names import DELETION_COST
from leasequeue_operator.plan.ownership import SCALER
from leasequeue_operator.plan.spec import Queue
from leasequeue_operator.scaling import shrink
from leasequeue_operator.scaling.shrink import Fleet, Shrink, Step

log = structlog.get_logger()

# A decrease under way is looked at this often, since each look may find a drained worker.
LOOK_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Approach:
    """Where a decrease is.

    Args:
        replicas: pods the Deployment is to ask for now.
        draining: workers that are cordoned and go on with what they hold.
        cut_off: leases that end with this step.
        state: memory for the next look.
    """

    replicas: int
    draining: int = 0
    cut_off: int = 0
    state: Shrink = field(default_factory=Shrink)


async def approach(
    kube: Kube, hub: Hub, queue: Queue, seen: Children, view: DatabaseView | None, state: Shrink, target: int, now: float
) -> Approach:
    """Go one step towards `target` pods.

    Args:
        kube: the API, for the deletion cost of pods.
        hub: the databases, for cordons.
        queue: the queue.
        seen: its children.
        view: its database as last seen.
        state: memory of the decrease.
        target: pods that are wanted.
        now: seconds since 1970 UTC.

    Raises:
        KubeError: a pod could not be marked; nothing was lowered.
    """
    if seen.deployment is None or _nothing_to_do(seen, view, state, target):
        return Approach(target, state=state)
    limit_s = fleets.limit_s(queue.spec.worker.max_runtime_seconds)
    workers = await hub.workers(queue.uid)
    fleet = fleets.fleet(seen.deployment, seen.pods, workers or (), limit_s)
    if workers is None:
        step = shrink.blind(state, fleet, target, now)
        return await _do(kube, queue, seen.pods, fleet, step, state)
    choice = shrink.choose(state, fleet, target, now)
    if choice.cordon or choice.uncordon:
        names = {p.uid: p.name for p in fleet.pods}
        workers = await hub.cordon(queue.uid, {uid: names[uid] for uid in choice.cordon}, choice.uncordon)
        if workers is None:
            return await _do(kube, queue, seen.pods, fleet, shrink.blind(choice.state, fleet, target, now), state)
        fleet = fleets.fleet(seen.deployment, seen.pods, workers, limit_s)
    return await _do(kube, queue, seen.pods, fleet, shrink.settle(choice.state, fleet, target, now), state)


def _nothing_to_do(seen: Children, view: DatabaseView | None, state: Shrink, target: int) -> bool:
    """No decrease, and none that has to be taken back."""
    stats = view.stats if view is not None else None
    cordoned = stats is not None and stats.workers_cordoned > 0
    return target >= seen.replicas and not state.under_way and not state.leaving and not cordoned


async def _do(kube: Kube, queue: Queue, pods: Sequence[Object], fleet: Fleet, step: Step, before: Shrink) -> Approach:
    names = {p["metadata"]["uid"]: p["metadata"]["name"] for p in pods}
    for uid in step.price:
        await _mark(kube, queue.namespace, names.get(uid), fleets.COST)
    for uid in step.unprice:
        await _mark(kube, queue.namespace, names.get(uid), None)
    if step.cut_off:
        log.warning("busy_workers_cut_off", leases=step.cut_off, limit_s=fleet.limit_s)
    if step.state.under_way and not before.under_way:
        log.info("shrink_began", victims=len(step.state.victims), current=fleet.current)
    return Approach(step.replicas, len(step.state.victims), step.cut_off, step.state)


async def _mark(kube: Kube, namespace: str, name: str | None, cost: str | None) -> None:
    """Set or take away a pod's deletion cost. A pod that is gone needs none."""
    if name is None:
        return
    change = {"metadata": {"annotations": {DELETION_COST: cost}}}
    try:
        await kube.patch(POD.path(namespace, name), change, content_type=MERGE, manager=SCALER)
    except KubeError as ex:
        if ex.status != 404:
            raise
