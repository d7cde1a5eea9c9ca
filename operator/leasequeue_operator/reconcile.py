"""One reconciliation: observe, plan, apply, tell.

Each outside call has a deadline. A fault of one step does not keep the others from being done: what can be known is known,
what can be told is told, and only then the key goes back with a back-off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from leasequeue_operator import children as offspring
from leasequeue_operator import events, shrinking
from leasequeue_operator.apply import Applier
from leasequeue_operator.cache import Cache, Key
from leasequeue_operator.children import Children
from leasequeue_operator.kinds import LEASE_QUEUE
from leasequeue_operator.kube import Kube, KubeError
from leasequeue_operator.memory import Memory
from leasequeue_operator.metrics import Tally
from leasequeue_operator.observe.database import Hub
from leasequeue_operator.observe.group import Wanted
from leasequeue_operator.observe.reach import Reach
from leasequeue_operator.observe.secret import Connection
from leasequeue_operator.observe.shared import SharedReads
from leasequeue_operator.observe.view import DatabaseView
from leasequeue_operator.plan import accept, conditions, status
from leasequeue_operator.plan import events as transitions
from leasequeue_operator.plan.names import MANAGER
from leasequeue_operator.plan.observation import Observation
from leasequeue_operator.plan.owner import judge
from leasequeue_operator.plan.pod import API_VERSION, KIND
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.scaling import own_counters, sample_of, scaling_spec
from leasequeue_operator.plan.spec import Queue, SecretRef, SpecError, read_queue
from leasequeue_operator.scaling import saved
from leasequeue_operator.scaling.decide import Decision, decide
from leasequeue_operator.scaling.share import advance
from leasequeue_operator.settings import Settings

log = structlog.get_logger()

UNREADABLE_AGAIN_S = 60.0
LEAST_WAIT_S = 0.1
# A sample of this share of the poll period, or older, is asked for anew.
FRESH = 0.98
# Looks at one queue that notifications bring about are this far apart.
WAKE_EVERY_S = 1.0


class Reconciler:
    """Reconciles queues, one call a key.

    Args:
        kube: the API.
        cache: what the watches have shown.
        hub: the databases.
        settings: the operator's settings.
        tally: counters for the metrics.
        monitor: whether the cluster has the PodMonitor API.
        clock: monotonic seconds.
        wall: seconds since 1970 UTC.
    """

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        hub: Hub,
        settings: Settings,
        tally: Tally,
        *,
        monitor: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._kube, self._cache, self._hub, self._settings, self._tally = kube, cache, hub, settings, tally
        self._applier, self._reach = Applier(kube, clock), Reach(SharedReads(kube.find, clock))
        self._clock, self._wall = clock, wall
        self.monitor = monitor
        self.memories: dict[Key, Memory] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Bring one queue about.

        Returns:
            Seconds until it should be looked at again; None when it is gone.

        Raises:
            KubeError: a passing fault of the API server; to be tried again with a back-off.
        """
        body = self._cache.queue(key)
        memory = self.memories.get(key)
        if memory is not None and (body is None or memory.uid != body["metadata"]["uid"]):
            await self._gone(key, memory)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        memory = self.memories.setdefault(key, _fresh(body))
        try:
            queue = read_queue(body)
        except SpecError as ex:
            await self._tell_invalid(body, memory, Problem(ex.reason, ex.message))
            return UNREADABLE_AGAIN_S
        await self._reconcile(queue, memory)
        after_s = self._next_poll_s(queue, memory)
        return min(after_s, shrinking.LOOK_EVERY_S) if memory.shrink.under_way else after_s

    def _next_poll_s(self, queue: Queue, memory: Memory) -> float:
        """Seconds until the newest sample is one period old: the queues of a database look when there is a new one for all of them."""
        poll_s = float(queue.spec.scaling.poll_period_seconds)
        view = memory.observation.database if memory.observation is not None else None
        age_s = self._wall() - view.at if view is not None else 0.0
        return max(LEAST_WAIT_S, poll_s - age_s) if 0 <= age_s < poll_s else poll_s

    def wake(self, key: Key) -> float | None:
        """New items are told of: seconds until the queue is to be looked at for that; None where the poll is soon enough.

        Only the first item of a queue without workers is news: where there are some, they are told as well.
        """
        memory = self.memories.get(key)
        now = self._clock()
        if memory is None or memory.woken_at > now or not _rests(memory.observation):
            return None
        memory.woken_at = max(now, memory.woken_at + WAKE_EVERY_S)
        return memory.woken_at - now

    async def _gone(self, key: Key, memory: Memory) -> None:
        del self.memories[key]
        self._tally.forget(key)
        self._applier.forget(key[0], offspring.all_names(key[1]))
        await self._hub.forget(memory.uid)
        self._reach.forget(memory.uid)

    async def _reconcile(self, queue: Queue, memory: Memory) -> None:
        refused = _refusal(queue)
        if refused is None:
            memory.accepted = queue.spec
        # While a newer spec is refused, the last valid one goes on.
        acting = replace(queue, spec=memory.accepted) if memory.accepted is not None else queue
        faults: list[KubeError] = []
        connection, secret = await self._connection(acting, faults)
        view = await self._look(acting, connection, memory)
        conflict, owner = await self._judge_owner(acting, view)
        seen = offspring.seen(self._cache, queue.name, queue.uid)
        decision = self._decide(acting, memory, seen, view, held=conflict is not None or memory.accepted is None)
        before = seen.replicas
        observation = Observation(
            now=self._wall(), queue=queue, refused=refused or conflict, secret=secret, connection=connection, database=view,
            owner=owner, deployment=seen.deployment, cron_job=seen.cron_job, jobs=seen.jobs, pods=seen.pods, decision=decision,
        )  # fmt: skip
        if observation.refused is None and isinstance(connection, Connection):
            observation = await self._act(observation, connection, seen, faults)
        if conflict is None and decision is not None:
            observation = await self._scale(observation, decision, seen, memory, faults)
        if decision is not None and seen.deployment is not None:
            self._tally.decided(queue.key, before, observation.after, decision.limiter)
        await self._tell(observation, memory, before, faults)
        if faults:
            raise faults[0]

    async def _connection(self, queue: Queue, faults: list[KubeError]) -> tuple[Connection | None, Problem | None]:
        """The connection, or what is wrong with the Secret; neither when the API server does not answer."""
        try:
            found = await self._read_secret(queue, queue.spec.database.secret_ref)
        except KubeError as ex:
            if ex.passing:
                faults.append(ex)
                return None, None
            found = Problem("SecretForbidden", f"The Secret cannot be read: {ex.message}")
        return (None, found) if isinstance(found, Problem) else (found, None)

    async def _read_secret(self, queue: Queue, ref: SecretRef) -> Connection | Problem:
        return await self._reach.read(queue, ref)

    async def _look(self, queue: Queue, connection: Connection | None, memory: Memory) -> DatabaseView | None:
        if connection is None:
            # What was seen last stays, for status and metrics; decisions see its age.
            return memory.observation.database if memory.observation is not None else None
        database, lanes = queue.spec.database, queue.spec.lease.lanes
        strict = lanes.on_blocked_head if lanes.strict else None
        own = tuple(queue.spec.worker.lanes)
        wanted = Wanted(queue.uid, queue.namespace, queue.name, database.schema_, database.table, strict, own)
        return await self._hub.look(connection, wanted, queue.spec.scaling.poll_period_seconds * FRESH)

    async def _judge_owner(self, queue: Queue, view: DatabaseView | None) -> tuple[Problem | None, bool]:
        if view is None or view.owner is None or view.owner.mine:
            return None, True
        other = self._cache.queue_by_uid(view.owner.cr_uid)
        verdict = judge(queue, view, other, visible=self._sees(view.owner.cr_namespace))
        if verdict.take_over:
            log.info("table_taken_over", queue=queue.label, table=queue.table)
            await self._hub.take_over(queue.uid, view.owner.cr_uid)
        return verdict.problem, False

    def _sees(self, namespace: str) -> bool:
        return not self._settings.watch_namespaces or namespace in self._settings.watch_namespaces

    def _decide(
        self, queue: Queue, memory: Memory, seen: Children, view: DatabaseView | None, *, held: bool
    ) -> Decision | None:
        if held:
            return None
        now = self._wall()
        if memory.scaling is None:
            told = (queue.status.get("scaling") or {}).get("state") or {}
            memory.scaling = saved.read(told, seen.replicas, now, scaling_spec(queue.spec))
        if view is not None and view.own is not None:
            memory.share = advance(memory.share, own_counters(view, seen.pods))
        sample = sample_of(view, seen.pods, seen.replicas, memory.share)
        return decide(memory.scaling, sample, scaling_spec(queue.spec), now)

    async def _act(self, o: Observation, connection: Connection, seen: Children, faults: list[KubeError]) -> Observation:
        """Make children and the schema. Children wait until the table has once been seen to be a queue."""
        try:
            job, problem = await self._ensure_schema(o, connection)
            problems = {"schema": problem} if problem is not None else {}
            o = replace(o, schema_job=job, child_problems=problems)
            if seen.deployment is None and not (o.database is not None and o.database.ok):
                return o
            made = await offspring.ensure(
                self._applier, self._settings, o.queue, seen,
                replicas=o.desired, reclaimer=o.owner, monitor=self.monitor,
            )  # fmt: skip
            return replace(o, child_problems={**problems, **made})
        except KubeError as ex:
            faults.append(ex)
            return o

    async def _ensure_schema(self, o: Observation, connection: Connection) -> tuple[str | None, Problem | None]:
        """The schema Job, only while the database shows that it is needed."""
        database = o.queue.spec.database
        unready = o.database.unready if o.database is not None and o.database.unreachable is None else None
        needed = {"Adopt": ("NotAdopted",), "Create": ("NotAdopted", "TableMissing"), "Verify": ()}
        if unready is None or unready.reason not in needed[database.manage_schema]:
            return None, None
        version = connection.version
        if database.schema_secret_ref is not None:
            other = await self._read_secret(o.queue, database.schema_secret_ref)
            if isinstance(other, Problem):
                return None, Problem(other.reason, f"spec.database.schemaSecretRef: {other.message}")
            version = other.version
        manifest = offspring.schema_manifest(self._settings, o.queue, version)
        name = manifest["metadata"]["name"]
        live = next((job for job in o.jobs if job["metadata"]["name"] == name), None)
        identity = await offspring.ensure_identity(self._applier, o.queue)
        return name, identity or await self._applier.create_once(o.queue.uid, manifest, live)

    async def _scale(
        self, o: Observation, decision: Decision, seen: Children, memory: Memory, faults: list[KubeError]
    ) -> Observation:
        """Write the number of pods where it differs, a lower one once nobody works in the pods that go, unless another autoscaler acts on the Deployment."""
        if seen.deployment is None or seen.deployment["metadata"].get("deletionTimestamp"):
            memory.scaling = decision.state
            return o
        autoscaler = self._cache.autoscalers.get((o.queue.namespace, seen.deployment["metadata"]["name"]))
        if autoscaler is not None:
            memory.scaling = replace(decision.state, desired=seen.replicas)
            kept = replace(decision, desired=seen.replicas, state=memory.scaling)
            return replace(o, autoscaler=autoscaler, decision=kept)
        try:
            going = await shrinking.approach(
                self._kube, self._hub, o.queue, seen, o.database, memory.shrink, decision.desired, self._wall()
            )
            if seen.replicas != going.replicas:
                await self._applier.scale(seen.deployment, going.replicas)
            memory.scaling, memory.shrink = decision.state, going.state
            memory.busy_kills += going.cut_off
            return replace(o, applied=going.replicas, draining=going.draining, busy_kills=memory.busy_kills)
        except KubeError as ex:
            # The decision is made again from the same memory: a fault never makes a step count twice.
            if ex.status == 403:
                text = f"The fleet stays at {seen.replicas}: {ex.message}. Give the operator this right, or lift the policy."
                return replace(
                    o, applied=seen.replicas, child_problems={**o.child_problems, "scaling": Problem("Forbidden", text)}
                )
            faults.append(ex)
        return o

    async def _tell(self, o: Observation, memory: Memory, before: int, faults: list[KubeError]) -> None:
        previous = {c["type"]: c for c in memory.written.get("conditions") or ()}
        found = conditions.conditions(o, previous)
        memory.observation, memory.conditions = o, found
        told = transitions.transitions(previous, found)
        if o.decision is not None and o.deployment is not None and o.after != before:
            told.append(transitions.scaled(before, o.after, o.decision.limiter))
        body = status.build(o, found, memory.written)
        await self._write(o.queue.namespace, o.queue.name, memory, body, told, faults)

    async def _tell_invalid(self, body: Mapping[str, Any], memory: Memory, problem: Problem) -> None:
        meta = body["metadata"]
        previous = {c["type"]: c for c in memory.written.get("conditions") or ()}
        found = conditions.invalid(problem)
        memory.conditions = found
        generation = int(meta.get("generation", 0))
        merged = conditions.merge(list(previous.values()), found, generation, self._wall())
        told = transitions.transitions(previous, found)
        faults: list[KubeError] = []
        kept = {**memory.written, "observedGeneration": generation, "conditions": merged}
        await self._write(meta["namespace"], meta["name"], memory, kept, told, faults)
        if faults:
            raise faults[0]

    async def _write(
        self,
        namespace: str,
        name: str,
        memory: Memory,
        body: Mapping[str, Any],
        told: list[transitions.Event],
        faults: list[KubeError],
    ) -> None:
        if not status.worth_writing(body, memory.written, self._clock() - memory.written_at):
            return
        manifest = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"namespace": namespace, "name": name, "uid": memory.uid},
            "status": body,
        }
        try:
            await self._kube.apply(LEASE_QUEUE, manifest, MANAGER, "status")
        except KubeError as ex:
            if ex.status == 404 or (ex.status == 409 and "uid" in ex.message.lower()):
                return  # deleted meanwhile: the watch will tell
            faults.append(ex)
            return
        memory.written, memory.written_at = body, self._clock()
        await events.post(self._kube, namespace, name, memory.uid, told, self._wall())


def _fresh(body: Mapping[str, Any]) -> Memory:
    """Memory of a queue that was not known yet: what its status carries over from an earlier process."""
    status = body.get("status") or {}
    kills = int((status.get("scaling") or {}).get("busyKills") or 0)
    return Memory(body["metadata"]["uid"], written=status, busy_kills=kills)


def _rests(o: Observation | None) -> bool:
    """No worker is there because nothing was waiting when we last looked."""
    if o is None or o.decision is None or o.decision.desired > 0 or o.decision.limiter in ("manual", "suspend"):
        return False
    if o.database is None or o.database.stats is None:
        return True
    own = o.database.own
    return (o.database.stats.due if own is None else own.pending + own.scheduled_due) == 0


def _refusal(queue: Queue) -> Problem | None:
    try:
        accept.check(queue)
    except SpecError as ex:
        return Problem(ex.reason, ex.message)
    return None
