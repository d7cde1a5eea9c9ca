"""What the watches and lists have shown: the queues and their children, by kind and name.

An entry is replaced by a newer resourceVersion only, and a list removes what it does not hold unless that is newer than the
list: so a list that was under way while events came in does no harm, and a deletion that a broken watch missed is noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leasequeue_operator.kinds import LEASE_QUEUE, POD, WATCHED_CHILDREN
from leasequeue_operator.plan.names import DELETION_COST, UID_LABEL

Key = tuple[str, str]


class Cache:
    """Objects by kind, and the children of each queue."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[Key, dict[str, Any]]] = {kind.name: {} for kind in (LEASE_QUEUE, *WATCHED_CHILDREN)}
        self._keys: dict[str, Key] = {}  # uid of a queue → its key
        self._children: dict[str, set[tuple[str, Key]]] = {}  # uid of a queue → kind and key of children
        self.autoscalers: dict[Key, str] = {}  # Deployment → the other autoscaler that acts on it

    def queue(self, key: Key) -> dict[str, Any] | None:
        """A LeaseQueue as last seen."""
        return self._objects[LEASE_QUEUE.name].get(key)

    def queue_by_uid(self, uid: str) -> dict[str, Any] | None:
        """A LeaseQueue by its uid."""
        key = self._keys.get(uid)
        return self.queue(key) if key else None

    def queue_keys(self) -> list[Key]:
        """Keys of all queues."""
        return list(self._objects[LEASE_QUEUE.name])

    def children(self, uid: str, kind: str) -> list[dict[str, Any]]:
        """Objects of one kind that carry the queue's uid label, in a stable order."""
        keys = sorted(key for found, key in self._children.get(uid, ()) if found == kind)
        return [self._objects[kind][key] for key in keys]

    def put(self, kind: str, body: Mapping[str, Any]) -> Key | None:
        """Store an object unless a newer one is known. Returns the key of the queue it concerns."""
        key = _key(body)
        known = self._objects[kind].get(key)
        if known is None or _version(body) >= _version(known) or _uid(known) != _uid(body):
            if known is not None:
                self._unlink(kind, key, known)
            self._objects[kind][key] = _slim(body) if kind == POD.name else dict(body)
            self._link(kind, key, body)
        return self._concerns(kind, body)

    def drop(self, kind: str, body: Mapping[str, Any]) -> Key | None:
        """Forget an object. Returns the key of the queue it concerns."""
        key = _key(body)
        concerned = self._concerns(kind, body)
        known = self._objects[kind].get(key)
        if known is not None and _uid(known) == _uid(body):
            del self._objects[kind][key]
            self._unlink(kind, key, known)
        return concerned

    def replace(self, kind: str, bodies: Iterable[Mapping[str, Any]], version: int, namespace: str | None) -> set[Key]:
        """Take over a whole list.

        Args:
            kind: what was listed.
            bodies: all of its items.
            version: resourceVersion of the list.
            namespace: the namespace that was listed, None for all.

        Returns:
            Keys of the queues that are concerned by a difference.
        """
        listed: set[Key] = set()
        concerned: set[Key | None] = set()
        for body in bodies:
            listed.add(_key(body))
            known = self._objects[kind].get(_key(body))
            if known is None or _version(known) < _version(body):
                concerned.add(self.put(kind, body))
        for key, known in list(self._objects[kind].items()):
            here = namespace is None or key[0] == namespace
            if here and key not in listed and _version(known) <= version:
                concerned.add(self.drop(kind, known))
        return {key for key in concerned if key is not None}

    def _link(self, kind: str, key: Key, body: Mapping[str, Any]) -> None:
        if kind == LEASE_QUEUE.name:
            self._keys[_uid(body)] = key
        else:
            self._children.setdefault(_owner(body), set()).add((kind, key))

    def _unlink(self, kind: str, key: Key, known: Mapping[str, Any]) -> None:
        if kind == LEASE_QUEUE.name:
            self._keys.pop(_uid(known), None)
            return
        owner = _owner(known)
        self._children.get(owner, set()).discard((kind, key))
        if not self._children.get(owner):
            self._children.pop(owner, None)

    def _concerns(self, kind: str, body: Mapping[str, Any]) -> Key | None:
        return _key(body) if kind == LEASE_QUEUE.name else self._keys.get(_owner(body))


def _key(body: Mapping[str, Any]) -> Key:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _uid(body: Mapping[str, Any]) -> str:
    return str(body["metadata"].get("uid", ""))


def _owner(body: Mapping[str, Any]) -> str:
    return str((body["metadata"].get("labels") or {}).get(UID_LABEL, ""))


def _version(body: Mapping[str, Any]) -> int:
    # Versions of one resource are comparable as numbers (KEP-5504). Any other server's count as new.
    text = str(body["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def _slim(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A pod without what is never looked at: of thousands of pods the specs would be most of the memory."""
    meta = pod["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "labels", "creationTimestamp", "deletionTimestamp")
    cost = (meta.get("annotations") or {}).get(DELETION_COST)
    status = pod.get("status") or {}
    parts = ("phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses")
    return {
        "metadata": {
            **{k: meta[k] for k in kept if k in meta},
            **({"annotations": {DELETION_COST: cost}} if cost is not None else {}),
        },
        "status": {k: status[k] for k in parts if k in status},
    }
