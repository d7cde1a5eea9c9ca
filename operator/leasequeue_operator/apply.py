"""Makes children be as planned, without touching what is somebody else's.

Created by POST, since an apply would take over a foreign object of the same name. Later changes are server-side applies that
carry the uid, so they reach this very object or nothing. `replicas` is part of the POST and then belongs to the scaler alone.
A manifest that was applied is not sent again until it, or the object, changes. Objects of kinds that are not watched are read
every 10 minutes to see that; where nothing changed, nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from leasequeue_operator.kinds import BY_NAME, DEPLOYMENT, WATCHED_CHILDREN, Kind
from leasequeue_operator.kube import JSON_PATCH, MERGE, Kube, KubeError
from leasequeue_operator.plan.names import MANAGER
from leasequeue_operator.plan.ownership import SCALER, migrated, owned_by
from leasequeue_operator.plan.problem import Problem

REREAD_S = 600.0
UNSEEN_S = 10.0
REFUSED_FIRST_S, REFUSED_LONGEST_S = 5.0, 60.0

ChildKey = tuple[str, str, str]


@dataclass(slots=True)
class _Memory:
    """What was done for one child: the manifest's digest, the object it made, or when to try a refused one again."""

    digest: str = ""
    uid: str = ""
    generation: int = -1
    version: str = ""
    carried: bool = False
    at: float = 0.0
    refusals: int = 0
    problem: Problem | None = None
    retry_at: float = 0.0


class Applier:
    """Applies manifests.

    Args:
        kube: the API.
        clock: monotonic seconds.
    """

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._memory: dict[ChildKey, _Memory] = {}

    def forget(self, namespace: str, names: set[str]) -> None:
        """Drop what is remembered of a queue's children."""
        for key in [k for k in self._memory if k[1] == namespace and k[2] in names]:
            del self._memory[key]

    async def ensure(
        self, uid: str, manifest: Mapping[str, Any], live: Mapping[str, Any] | None, *, replicas: int | None = None
    ) -> Problem | None:
        """Make one child be as its manifest says.

        Args:
            uid: uid of the queue that owns it.
            manifest: the child as it should be.
            live: the child as last seen; None when it was not seen.
            replicas: number of pods of a Deployment that has to be created.

        Returns:
            What keeps it from being so, None when all is well.

        Raises:
            KubeError: a passing fault; the caller tries again later.
        """
        kind, meta = BY_NAME[manifest["kind"]], manifest["metadata"]
        memory = self._memory.setdefault((kind.name, meta["namespace"], meta["name"]), _Memory())
        digest = _digest(manifest)
        if memory.problem is not None and memory.digest == digest and self._clock() < memory.retry_at:
            return memory.problem
        try:
            problem = await self._ensure(kind, uid, manifest, live, digest, memory, replicas)
        except KubeError as ex:
            if ex.passing:
                raise
            problem = _refused(kind, meta["name"], ex)
        self._remember_problem(memory, digest, problem)
        return problem

    async def _ensure(
        self,
        kind: Kind,
        uid: str,
        manifest: Mapping[str, Any],
        live: Mapping[str, Any] | None,
        digest: str,
        memory: _Memory,
        replicas: int | None,
    ) -> Problem | None:
        meta = manifest["metadata"]
        if live is None and self._made_lately(kind, memory, digest):
            return None
        if live is None and kind not in WATCHED_CHILDREN and memory.uid:
            live = await self._kube.find(kind, meta["namespace"], meta["name"])
        if live is None:
            live = await self._create(kind, manifest, replicas)
        if not owned_by(live, uid):
            return _taken(kind, meta["name"])
        if live["metadata"].get("deletionTimestamp") or self._settled(kind, memory, digest, live, meta):
            memory.at = self._clock()
            return None
        live = await self._migrate(kind, live)
        carrying = {**manifest, "metadata": {**meta, "uid": live["metadata"]["uid"]}}
        applied = await self._kube.apply(kind, carrying, MANAGER)
        self._remember(memory, digest, applied, carrying["metadata"])
        return None

    async def _create(self, kind: Kind, manifest: Mapping[str, Any], replicas: int | None) -> Mapping[str, Any]:
        meta = manifest["metadata"]
        body = dict(manifest)
        if kind is DEPLOYMENT:
            body["spec"] = {**manifest["spec"], "replicas": replicas or 0}
        try:
            return await self._kube.create(kind, body, MANAGER)
        except KubeError as ex:
            if ex.reason != "AlreadyExists":
                raise
        return await self._kube.get(kind, meta["namespace"], meta["name"])

    async def _migrate(self, kind: Kind, live: Mapping[str, Any]) -> Mapping[str, Any]:
        meta = live["metadata"]
        entries = migrated(list(meta.get("managedFields") or []))
        if entries is None:
            return live
        changes = [
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
        ]
        return await self._kube.patch(
            kind.path(meta["namespace"], meta["name"]), changes, content_type=JSON_PATCH, manager=MANAGER
        )

    def _made_lately(self, kind: Kind, memory: _Memory, digest: str) -> bool:
        """True for an object that is not seen: one of a kind that is not watched, or one the watch has yet to show."""
        unseen_s = UNSEEN_S if kind in WATCHED_CHILDREN else REREAD_S
        done = memory.digest == digest and memory.problem is None and bool(memory.uid)
        return done and self._clock() - memory.at < unseen_s

    @staticmethod
    def _settled(kind: Kind, memory: _Memory, digest: str, live: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
        """True when this manifest was applied and the object has not changed since.

        The generation of a watched kind moves with its spec alone, so its metadata are compared; other kinds have none.
        """
        meta = live["metadata"]
        if memory.digest != digest or memory.problem is not None or meta.get("uid") != memory.uid:
            return False
        if kind not in WATCHED_CHILDREN:
            return bool(meta.get("resourceVersion") == memory.version)
        return int(meta.get("generation", 0)) <= memory.generation and (not memory.carried or _carries(meta, planned))

    def _remember(self, memory: _Memory, digest: str, applied: Mapping[str, Any], planned: Mapping[str, Any]) -> None:
        meta = applied["metadata"]
        # Somebody's webhook may take labels away: then their lack is no drift, and no reason to apply for ever.
        memory.carried = _carries(meta, planned)
        memory.digest, memory.uid, memory.at = digest, meta.get("uid", ""), self._clock()
        memory.generation, memory.version = int(meta.get("generation", 0)), str(meta.get("resourceVersion", ""))

    def _remember_problem(self, memory: _Memory, digest: str, problem: Problem | None) -> None:
        memory.problem = problem
        if problem is None:
            memory.refusals = 0
            return
        memory.digest = digest
        wait_s = min(REFUSED_LONGEST_S, REFUSED_FIRST_S * 2.0 ** min(memory.refusals, 8))
        memory.refusals += 1
        memory.retry_at = self._clock() + wait_s

    async def create_once(self, uid: str, manifest: Mapping[str, Any], live: Mapping[str, Any] | None) -> Problem | None:
        """Make a Job that is never changed afterwards. Raises KubeError for passing faults."""
        kind, meta = BY_NAME[manifest["kind"]], manifest["metadata"]
        if live is not None:
            return None if owned_by(live, uid) else _taken(kind, meta["name"])
        try:
            made = await self._create(kind, manifest, None)
        except KubeError as ex:
            if ex.passing:
                raise
            return _refused(kind, meta["name"], ex)
        return None if owned_by(made, uid) else _taken(kind, meta["name"])

    async def scale(self, live: Mapping[str, Any], replicas: int) -> None:
        """Set the number of pods of a Deployment, through its scale subresource, under the scaler's own name.

        Raises:
            KubeError: refused or unanswered.
        """
        meta = live["metadata"]
        path = DEPLOYMENT.path(meta["namespace"], meta["name"], "scale")
        await self._kube.patch(path, {"spec": {"replicas": replicas}}, content_type=MERGE, manager=SCALER)
        # Our own change of the generation is no drift.
        memory = self._memory.get((DEPLOYMENT.name, meta["namespace"], meta["name"]))
        if memory is not None and memory.generation == int(meta.get("generation", 0)):
            memory.generation += 1


def _carries(live: Mapping[str, Any], planned: Mapping[str, Any]) -> bool:
    """Whether an object still has the labels and annotations that were applied to it."""
    return all((planned.get(part) or {}).items() <= (live.get(part) or {}).items() for part in ("labels", "annotations"))


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _taken(kind: Kind, name: str) -> Problem:
    return Problem(
        "ChildNameTaken",
        f"{kind.name} {name} exists and belongs to somebody else; it is left alone. Rename or delete it, or rename this "
        "LeaseQueue.",
    )


def _refused(kind: Kind, name: str, ex: KubeError) -> Problem:
    if ex.status == 403 and "exceeded quota" not in ex.message:
        return Problem("Forbidden", f"{kind.name} {name}: {ex.message}. Give the operator this right, or lift the policy.")
    return Problem("ChildRefused", f"{kind.name} {name} was refused by the API server: {ex.message}")
