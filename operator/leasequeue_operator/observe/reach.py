"""How a queue's database is reached: the Secret with the connection and the one with the authorities, read at each poll."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from leasequeue.tls import SYSTEM, Tls
from leasequeue_operator.kinds import SECRET, Kind
from leasequeue_operator.observe.authority import Authorities, read_authority
from leasequeue_operator.observe.secret import Connection, read_connection
from leasequeue_operator.observe.shared import Found
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import Queue, SecretRef


class Finder(Protocol):
    """What is asked of the API."""

    async def find(self, kind: Kind, namespace: str, name: str) -> Found:
        """One object; None where there is none."""


class Reach:
    """Reads connections.

    Args:
        finder: the API.
    """

    def __init__(self, finder: Finder) -> None:
        self._finder, self._authorities = finder, Authorities()

    async def read(self, queue: Queue, ref: SecretRef) -> Connection | Problem:
        """The connection in a Secret of the queue's namespace, protected as the spec says, or what is wrong.

        Raises:
            KubeError: the API server does not answer, or refuses.
        """
        database = queue.spec.database
        root, version = (SYSTEM if database.system_ca else None), ""
        if database.ca_secret_ref is not None:
            secret = await self._finder.find(SECRET, queue.namespace, database.ca_secret_ref.name)
            pem = read_authority(secret, database.ca_secret_ref)
            if isinstance(pem, Problem):
                return pem
            root = self._authorities.keep(queue.uid, pem)
            version = "+" + str((secret or {}).get("metadata", {}).get("resourceVersion", ""))
        found = await self._finder.find(SECRET, queue.namespace, ref.name)
        connection = read_connection(found, ref, queue.namespace, Tls(database.ssl_mode, root))
        return replace(connection, version=connection.version + version) if isinstance(connection, Connection) else connection

    def forget(self, uid: str) -> None:
        """A queue is gone."""
        self._authorities.forget(uid)
