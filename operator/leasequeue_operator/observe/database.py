"""Samples of all queues: one connection a database, one grouped read-only query a poll.

Queues whose Secrets lead to the same database with the same parameters form a group (`observe/group.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from leasequeue.workers import WorkerRow
from leasequeue_operator.observe.group import Group, Wanted
from leasequeue_operator.observe.secret import Connection
from leasequeue_operator.observe.view import DatabaseView


class Hub:
    """All groups.

    Args:
        clock: monotonic seconds.
        wall: seconds since 1970 UTC.
        heard: called with the uid of a queue whose table has just got items, a few times a second at most; None: nobody
            listens, and a database costs one connection instead of two.
        asked: called with the kind of each question to a database.
        acting: whether this process may write now.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        heard: Callable[[str], None] | None = None,
        asked: Callable[[str], None] = lambda _kind: None,
        acting: Callable[[], bool] = lambda: True,
    ) -> None:
        self._acting = acting
        self._clock, self._wall, self._heard, self._asked = clock, wall, heard, asked
        self._groups: dict[str, Group] = {}
        self._group_of: dict[str, str] = {}

    async def look(self, connection: Connection, wanted: Wanted, max_age_s: float) -> DatabaseView:
        """What the database shows of one queue, at most `max_age_s` old unless it cannot be read."""
        group = await self._join(connection, wanted)
        return await group.look(wanted, max_age_s)

    def expire(self, uid: str) -> None:
        """What is known of a queue is out of date: the next look asks the database."""
        group = self._groups.get(self._group_of.get(uid, ""))
        if group is not None:
            group.expire(uid)

    async def _join(self, connection: Connection, wanted: Wanted) -> Group:
        name = connection.group
        before = self._group_of.get(wanted.uid)
        if before not in (None, name):
            # The Secret changed: what was known of the queue goes along, the old connection goes when nobody needs it.
            await self._leave(wanted.uid)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(connection, self._clock, self._wall, self._heard, self._asked)
        self._group_of[wanted.uid] = name
        group.join(wanted.uid)
        return group

    async def _leave(self, uid: str) -> None:
        name = self._group_of.pop(uid, "")
        group = self._groups.get(name)
        if group is not None and group.leave(uid):
            del self._groups[name]
            await group.close()

    async def forget(self, uid: str) -> None:
        """A queue is gone: its ownership of the table is given up if the database answers."""
        group = self._groups.get(self._group_of.get(uid, ""))
        if group is not None and self._acting():
            await group.disown(uid)
        await self._leave(uid)

    async def take_over(self, uid: str, from_uid: str) -> None:
        """Free a table from a LeaseQueue that is no more, so that the queue `uid` can own it."""
        group = self._groups.get(self._group_of.get(uid, ""))
        if group is not None and self._acting():
            await group.take_over(uid, from_uid)

    async def workers(self, uid: str) -> list[WorkerRow] | None:
        """The processes of a queue, each with its leases; None when the database does not answer."""
        return await self.cordon(uid, {}, ())

    async def cordon(self, uid: str, cordon: Mapping[str, str], uncordon: Sequence[str]) -> list[WorkerRow] | None:
        """Lift cordons, set cordons, and read the processes after that.

        Args:
            uid: the queue's.
            cordon: pod uid → pod name of those that may not claim for the next minute.
            uncordon: pod uids of those that may again.

        Returns:
            The processes; None when the database does not answer, and then nothing is certain.
        """
        group = self._groups.get(self._group_of.get(uid, ""))
        if group is None or not self._acting():
            return None
        return await group.cordon(uid, cordon, uncordon)

    async def close(self) -> None:
        """Close all connections."""
        groups, self._groups, self._group_of = list(self._groups.values()), {}, {}
        for group in groups:
            await group.close()
