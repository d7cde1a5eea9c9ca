"""The queues of one database: one connection, one grouped read-only query a poll.

Whoever asks first refreshes the whole group; those that ask a moment later get what that brought. A queue whose part of the
query fails is asked alone from then on, so that one missing or locked table holds nobody else. A database that cannot be
reached is tried again with a growing wait, whatever the number of its queues. What is not known is not said: the last sample
stays, with its age.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import structlog
from psycopg import errors

from leasequeue import aio
from leasequeue.config import BlockedHead
from leasequeue.errors import LeaseQueueError
from leasequeue.lane_depth import alane_depth
from leasequeue.owner import OwnedBy
from leasequeue.schema.marks import Mark, amarks
from leasequeue.schema.report import Report
from leasequeue.schema.spec import SCHEMA_VERSION
from leasequeue.schema.verify import averify
from leasequeue.table import Table
from leasequeue.workers import WorkerRow
from leasequeue_operator.observe import address, cordons, failures, sampling
from leasequeue_operator.observe.listen import Listener
from leasequeue_operator.observe.secret import Connection
from leasequeue_operator.observe.view import DatabaseView
from leasequeue_operator.plan.problem import Problem

log = structlog.get_logger()

CONNECT_DEADLINE_S = 8.0
QUERY_DEADLINE_S = 5.0
# A connection is replaced after this time, so that it follows a failover that left the old server alive.
CONNECTION_AGE_S = 600.0
# Whether anything about the tables has changed is asked this often, for all of them at once.
MARKS_EVERY_S = 60.0
BACKOFF_BASE_S, BACKOFF_CAP_S = 1.0, 60.0
SPLIT_BUDGET_S = 10.0
# The scaling holds where a sample is older than 15 s (`scaling.decide.STALE_AT_LEAST_S`).
KEPT_AT_MOST_S = 12.0
# After a message of many statements has failed, its statements are sent one by one for this long.
SLOW_S = 60.0
NEVER = float("-inf")

ANSWERED = (psycopg.Error, LeaseQueueError, TimeoutError, OSError)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which table of which queue is to be looked at.

    Args:
        uid, namespace, name: of the queue.
        schema, table: where its items are.
        strict: what a blocked head does, None where lanes are not strict.
        lanes: those that the queue serves, where it does not serve all.
    """

    uid: str
    namespace: str
    name: str
    schema: str
    table: str
    strict: BlockedHead | None
    lanes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Member:
    wanted: Wanted
    table: Table | None = None
    mark: str = ""
    view: DatabaseView = field(default_factory=lambda: DatabaseView(at=0.0))
    asked_at: float = NEVER
    max_age_s: float = 0.0
    answered_at: float = NEVER
    alone: bool = False


class Group:
    """The queues of one database, and the connection to it.

    Args:
        connection: from the Secret.
        clock: monotonic seconds.
        wall: seconds since 1970 UTC.
        heard: called with the uid of a queue whose table has just got items; None: nobody listens.
        asked: called with the kind of each question to the database.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Callable[[], float],
        wall: Callable[[], float],
        heard: Callable[[str], None] | None = None,
        asked: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self._dsn, self._verified, self._clock, self._wall = connection.dsn, connection.verified, clock, wall
        self._members: dict[str, _Member] = {}
        self._users: set[str] = set()
        self._lock = asyncio.Lock()
        self._conn: psycopg.AsyncConnection[Any] | None = None
        self._connected_at = 0.0
        self._unreachable: Problem | None = None
        self._failures = 0
        self._retry_at = float("-inf")
        self._marked_at = float("-inf")
        self._slow_until = float("-inf")
        self._took_s = 0.0
        self._asked = asked
        self._on_heard = heard
        self._listener = Listener(connection.dsn, self._heard, connection.verified) if heard is not None else None

    async def look(self, wanted: Wanted, max_age_s: float) -> DatabaseView:
        """See `Hub.look`."""
        member = self._members.get(wanted.uid)
        if member is None or member.wanted != wanted:
            view = member.view if member else DatabaseView(at=self._wall())
            member = self._members[wanted.uid] = _Member(wanted, view=view)
        member.max_age_s = max_age_s
        came_at = self._clock()
        async with self._lock:
            # An answer that came while we waited for our turn is one for us, however long it took.
            if self._clock() - member.asked_at > self._keeps(max_age_s) and member.answered_at <= came_at:
                await self._refresh(self._due(first=member.asked_at == NEVER))
            return member.view

    def _due(self, *, first: bool) -> list[_Member]:
        """Who is asked for together.

        At a poll, those who would ask within half a period of theirs are served along. For queues that are new to us only those
        whose time has come: a thousand that arrive one after the other must not have all of them sampled each time.
        """
        now, share = self._clock(), 1.0 if first else 0.5
        return [m for m in self._members.values() if now - m.asked_at > self._keeps(m.max_age_s) * share]

    def _keeps(self, max_age_s: float) -> float:
        """How old a sample may be, seconds: at least twice what one takes, but never so old that the scaling would hold for it.

        Where a sample of all takes longer than a period it would be old as soon as it is there: each that looks would ask for all of them
        again, and the database would do nothing else. Only what was answered counts: a table that is locked keeps nobody else's sample.
        """
        return max(max_age_s, min(2 * self._took_s, KEPT_AT_MOST_S))

    def expire(self, uid: str) -> None:
        """What is known of a queue is out of date: the next look asks."""
        member = self._members.get(uid)
        if member is not None:
            member.asked_at = member.answered_at = NEVER

    def join(self, uid: str) -> None:
        """A queue is about to look: from now on the group is in use."""
        self._users.add(uid)

    def leave(self, uid: str) -> bool:
        """Remove a queue; True when none is left."""
        self._users.discard(uid)
        self._members.pop(uid, None)
        self._listen()
        return not self._users

    async def close(self) -> None:
        """Close the connections."""
        if self._listener is not None:
            await self._listener.close()
        await self._disconnect()

    def _listen(self) -> None:
        if self._listener is not None:
            self._listener.want(m.table.channel for m in self._members.values() if m.table is not None)

    def _heard(self, channels: set[str]) -> None:
        for uid, member in list(self._members.items()):
            if self._on_heard is not None and member.table is not None and member.table.channel in channels:
                self._on_heard(uid)

    async def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    async def disown(self, uid: str) -> None:
        """Give up a queue's ownership of its table; best effort, since the next owner can also take over."""
        async with self._lock:
            member = self._members.get(uid)
            if member is None or member.table is None or self._conn is None:
                return
            await self._release(member.table, uid)

    async def take_over(self, uid: str, from_uid: str) -> None:
        """See `Hub.take_over`."""
        async with self._lock:
            member = self._members.get(uid)
            if member is None or member.table is None or self._conn is None:
                return
            await self._release(member.table, from_uid)
            member.mark = ""
            member.asked_at = member.answered_at = NEVER

    async def cordon(self, uid: str, cordon: Mapping[str, str], uncordon: Sequence[str]) -> list[WorkerRow] | None:
        """See `Hub.cordon`."""
        async with self._lock:
            member = self._members.get(uid)
            if member is None or member.table is None:
                return None
            conn = await self._connection()
            if conn is None:
                return None
            self._asked("cordon")
            try:
                async with asyncio.timeout(QUERY_DEADLINE_S):
                    return await cordons.change(conn, member.table, cordon, uncordon)
            except ANSWERED as ex:
                log.warning("cordon_failed", table=member.table.label, reason=type(ex).__name__)
                await self._maybe_drop(ex)
                return None

    async def _release(self, table: Table, uid: str) -> None:
        if self._conn is None:
            return
        try:
            async with asyncio.timeout(QUERY_DEADLINE_S):
                await aio.disown(self._conn, table, cr_uid=uid)
        except ANSWERED as ex:
            log.warning("owner_not_released", table=table.label, reason=type(ex).__name__)
            await self._maybe_drop(ex)

    async def _refresh(self, members: list[_Member]) -> None:
        now = self._clock()
        for member in members:
            member.asked_at = now
        conn = await self._connection()
        if conn is None:
            for member in members:
                member.view = replace(member.view, at=self._wall(), unreachable=self._unreachable)
            return
        if now - self._marked_at > MARKS_EVERY_S:
            self._marked_at = now
            await self._compare_marks()
        for member in members:
            if not member.mark:
                await self._resolve(member)
        self._listen()
        self._took_s = 0.0
        await self._sample([m for m in members if m.table is not None])

    async def _compare_marks(self) -> None:
        """Find the tables that changed since they were resolved. Where even that cannot be asked, all count as changed."""
        members = [m for m in self._members.values() if m.mark]
        marks = await self._marks(members)
        for n, member in enumerate(members):
            owner = member.view.owner.cr_uid if member.view.owner is not None else None
            if marks is None or marks[n] != Mark(member.mark, owner):
                member.mark = ""

    async def _marks(self, members: Sequence[_Member]) -> list[Mark] | None:
        """Marks of the members' tables; None where they cannot be had (no database, no control schema, no right)."""
        conn = await self._connection() if members else None
        if conn is None:
            return None
        self._asked("marks")
        try:
            async with asyncio.timeout(QUERY_DEADLINE_S):
                return await amarks(conn, [(m.wanted.schema, m.wanted.table) for m in members])
        except ANSWERED as ex:
            await self._maybe_drop(ex)
            return None

    async def _connection(self) -> psycopg.AsyncConnection[Any] | None:
        """The open connection, or a new one if it is time to try; None says that `_unreachable` tells why."""
        now = self._clock()
        if self._conn is not None and (self._conn.closed or now - self._connected_at > CONNECTION_AGE_S):
            await self._disconnect()
        if self._conn is not None:
            return self._conn
        if now < self._retry_at:
            return None
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                self._conn = await address.connect(self._dsn, self._verified, "leasequeue-operator")
        except ANSWERED as ex:
            self._failed(failures.connecting(ex))
            return None
        self._connected_at = now
        if self._read_only(self._conn):
            await self._disconnect()
            self._failed(Problem("DatabaseReadOnly", "The server is a read-only standby: the Secret must lead to the primary."))
            return None
        self._unreachable, self._failures = None, 0
        return self._conn

    @staticmethod
    def _read_only(conn: psycopg.AsyncConnection[Any]) -> bool:
        # Both are reported by the server without a question; a pooler may leave them out.
        reported = (conn.info.parameter_status(n) for n in ("in_hot_standby", "default_transaction_read_only"))
        return "on" in reported

    def _failed(self, problem: Problem) -> None:
        self._unreachable = problem
        self._failures += 1
        longest = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2.0 ** min(self._failures, 10))
        self._retry_at = self._clock() + longest * random.uniform(0.7, 1.0)

    async def _maybe_drop(self, ex: BaseException) -> None:
        if failures.breaks_connection(ex):
            await self._disconnect()

    async def _resolve(self, member: _Member) -> None:
        """Find the table, judge it, and learn who owns it."""
        wanted = member.wanted
        label = f"{wanted.schema}.{wanted.table}"
        member.table, member.mark = None, ""
        # Taken first: what changes after it is found at the next comparison.
        marks = await self._marks([member])
        conn = await self._connection()
        if conn is None:
            return self._tell(member, unreachable=self._unreachable)
        self._asked("verify")
        try:
            async with asyncio.timeout(QUERY_DEADLINE_S):
                report = await averify(conn, wanted.table, wanted.schema, strict_lanes=wanted.strict is not None)
                if not _usable(report):
                    member.view = replace(member.view, schema_version=report.version)
                    return self._tell(member, unready=failures.not_adopted(report))
                table = await Table.aload(conn, wanted.table, wanted.schema)
                owner = await _own(conn, table, wanted)
        except ANSWERED as ex:
            await self._maybe_drop(ex)
            return self._tell_failure(member, ex, label)
        member.table, member.mark = table, marks[0].text if marks is not None else ""
        gaps = tuple(report.missing)
        member.view = replace(member.view, owner=owner, schema_version=report.version, gaps=gaps, command=report.command)
        return None

    async def _sample(self, members: list[_Member]) -> None:
        """Those that went well last time in one message, the others each alone.

        Where the message fails, it is halved until the queues that make it fail are alone. That takes at most `SPLIT_BUDGET_S`: on a
        database that is slow as a whole the oldest samples are renewed first, and what is not reached keeps the one it has.
        """
        together = sorted((m for m in members if not m.alone), key=lambda m: m.asked_at)
        parts = [together] if together and self._clock() >= self._slow_until else _parts(together, sampling.MOST_TOGETHER)
        parts += [[m] for m in sorted((m for m in members if m.alone), key=lambda m: m.answered_at)]
        deadline = self._clock() + SPLIT_BUDGET_S
        while parts and self._clock() <= deadline:
            part = parts.pop(0)
            if await self._sampled(part) or len(part) == 1:
                continue
            if len(part) > sampling.MOST_TOGETHER:
                self._slow_until = self._clock() + SLOW_S
                parts = _parts(part, sampling.MOST_TOGETHER) + parts
            else:
                parts = _parts(part, (len(part) + 1) // 2) + parts

    async def _sampled(self, part: list[_Member]) -> bool:
        """Ask for all of them at once; False when that failed. One that fails alone is told, and asked alone from then on."""
        for member in part if len(part) <= sampling.MOST_TOGETHER else ():
            member.asked_at = self._clock()
        began = self._clock()
        try:
            await self._sample_together(part)
        except ANSWERED as ex:
            await self._maybe_drop(ex)
            if len(part) == 1:
                self._failed_alone(part[0], ex)
            return False
        self._took_s += self._clock() - began
        for member in part:
            member.alone, member.answered_at = False, self._clock()
        return True

    def _failed_alone(self, member: _Member, ex: BaseException) -> None:
        self._tell_failure(member, ex, f"{member.wanted.schema}.{member.wanted.table}")
        member.alone, member.answered_at = True, self._clock()
        if not isinstance(ex, (TimeoutError, errors.QueryCanceled)):
            member.mark = ""  # it may be another table by now

    async def _sample_together(self, members: list[_Member]) -> None:
        conn = await self._connection()
        if conn is None:
            for member in members:
                self._tell(member, unreachable=self._unreachable)
            return
        tables = {m.table.oid: m.table for m in members if m.table is not None}
        strict = {m.table.oid: m.wanted.strict for m in members if m.table is not None and m.wanted.strict is not None}
        self._asked("sample")
        at = self._wall()
        async with asyncio.timeout(sampling.deadline_s(len(tables))):
            found = await sampling.sample(conn, list(tables.values()), strict)
        for member in members:
            if member.wanted.lanes and member.table is not None:
                await self._sample_lanes(conn, member, member.table)
            stats = found.get(member.table.oid) if member.table else None
            member.view = replace(
                member.view, at=at, unreachable=None, unready=None, stats=stats, stats_at=at if stats else None
            )

    async def _sample_lanes(self, conn: psycopg.AsyncConnection[Any], member: _Member, table: Table) -> None:
        """A queue that serves some lanes alone is asked for apart: what they hold, and what its workers did."""
        self._asked("lanes")
        async with asyncio.timeout(QUERY_DEADLINE_S):
            own = await alane_depth(conn, table, member.wanted.lanes, strict=member.wanted.strict)
            workers = await aio.workers(conn, table)
        member.view = replace(member.view, own=own, workers=tuple(workers))

    def _tell(self, member: _Member, *, unreachable: Problem | None = None, unready: Problem | None = None) -> None:
        member.view = replace(member.view, at=self._wall(), unreachable=unreachable, unready=unready)

    def _tell_failure(self, member: _Member, ex: BaseException, label: str) -> None:
        if failures.breaks_connection(ex) and not isinstance(ex, TimeoutError):
            return self._tell(member, unreachable=failures.connecting(ex))
        return self._tell(member, unready=failures.querying(ex, label))


def _parts(members: list[_Member], size: int) -> list[list[_Member]]:
    return [members[n : n + size] for n in range(0, len(members), size)]


def _usable(report: Report) -> bool:
    """Whether the table can be worked with: adopted by this version, or all that is missing are indexes and the like."""
    return report.version is not None and report.version >= SCHEMA_VERSION


async def _own(conn: psycopg.AsyncConnection[Any], table: Table, wanted: Wanted) -> OwnedBy:
    return await aio.own_table(conn, table, cr_uid=wanted.uid, cr_namespace=wanted.namespace, cr_name=wanted.name)
