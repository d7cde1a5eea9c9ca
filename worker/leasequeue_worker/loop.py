"""The claim loop: keeps the waiting line filled, the worker's row alive, and due items promoted.

One thread, one connection (which also listens for the queue's notifications), no handler code: it always makes progress. Each turn
does what is due and then sleeps until a slot needs items, a completion freed a lane, the database notified, or the poll is due.

After a claim whose reply was lost the database may have leased rows to us that we do not know of: before the next claim they
are given back, without counting the attempt.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import leasequeue
from leasequeue.claim import Claimed
from leasequeue.errors import BadInput
from leasequeue.item import Item, text_leases, texts_of
from leasequeue.jsonio import printable
from leasequeue.mark import ClaimMark
from leasequeue.process.faults import Fault, classify, describe
from leasequeue.process.logs import get
from leasequeue.process.pacing import Backoff, Eagerness, poll_s
from leasequeue.spare import Skips
from leasequeue.table import Table
from leasequeue.verdict import Release
from leasequeue_worker.audit import AuditLog
from leasequeue_worker.board import Board
from leasequeue_worker.completion import Completions
from leasequeue_worker.heartbeat import Presence
from leasequeue_worker.held import Held
from leasequeue_worker.link import Connection, Link
from leasequeue_worker.metrics import WorkerMetrics
from leasequeue_worker.queuetable import QueueTable
from leasequeue_worker.settings import Settings
from leasequeue_worker.sizing import Load, claim_size, hoarded, low_water, yield_s
from leasequeue_worker.wakeup import Listener

CALL_LIMIT_S = 20.0
PROMOTE_S = 1.0
PROMOTE_PAGE = 500
PROMOTE_PAGES = 10
READY_S = 0.02
REFUSING = "Items passed over for a while because the database refuses to change them."


class ClaimLoop:
    """The thread that claims.

    Args:
        settings: of this worker.
        link: its own connection.
        table: the queue's table; this thread resolves it.
        board: the waiting line.
        completions: knows the pace and what is not yet acknowledged.
        presence: the worker's row.
        metrics: counters.
        audit: audit log.
        beat: called at each turn, for /healthz.
        ready: whether completions and renewals have their connections; nothing is claimed before.
    """

    def __init__(
        self,
        settings: Settings,
        link: Link,
        table: QueueTable,
        board: Board,
        completions: Completions,
        presence: Presence,
        metrics: WorkerMetrics,
        audit: AuditLog,
        beat: Callable[[], None],
        ready: Callable[[], bool],
    ) -> None:
        self._settings, self._link, self._table, self._board = settings, link, table, board
        self._completions, self._presence, self._metrics, self._audit = completions, presence, metrics, audit
        self._beat, self._ready = beat, ready
        self._rng = random.Random()
        self._limits = settings.limits
        self._interval_s = settings.config.poll_interval_ms / 1000
        self._mark, self._skips = ClaimMark(), Skips()
        metrics.gauge("leasequeue_worker_refusing_items", REFUSING, lambda: len(self._skips))
        self._backoff = Backoff(0.2, 10.0)
        self._next_claim = self._next_promote = 0.0
        self._unsure = False  # a claim's reply was lost
        self._short_of_room = False
        self._listener: Listener | None = None
        self._eagerness = Eagerness(settings.max_replicas, self._interval_s, self._rng)
        self._fault: str | None = None
        self._claiming = True
        self._ending = threading.Event()
        self.claims_ended = threading.Event()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._loop, name="claims", daemon=True)

    def stop_claiming(self) -> None:
        """Drain: no claim after the one under way; what has not started goes back."""
        self._claiming = False
        self._board.waker.wake()

    def end(self) -> None:
        """Deregister and end the thread."""
        self._ending.set()
        self._board.waker.wake()

    def freed(self, room: bool) -> None:
        """Completions were flushed. With lanes or at the ceiling that lets the next item go: claim at once."""
        eager = room and (self._settings.config.strict_lanes or bool(self._settings.lanes) or self._enforced)
        if eager:
            self._next_claim = 0.0
        if eager or self._short_of_room or self._presence.cordoned:
            self._board.waker.wake()

    @property
    def _enforced(self) -> bool:
        return self._settings.config.max_inflight_policy == "Enforce"

    def _loop(self) -> None:
        while not self._ending.is_set():
            self._beat()
            wait_s = self._guarded_turn()
            self._sleep(wait_s)
        self._leave()
        self.ended.set()

    def _guarded_turn(self) -> float:
        try:
            wait_s = self._turn(time.monotonic())
        except Exception as ex:  # noqa: BLE001  (the loop outlives every error: it backs off and tries again)
            return self._failed(ex)
        self._backoff.reset()
        if self._fault is not None:
            get().info("database_back", after=self._fault)
            self._fault = None
        return wait_s

    def _failed(self, error: Exception) -> float:
        fault = Fault.SCHEMA if isinstance(error, BadInput) else classify(error)
        self._metrics.faults[fault] += 1
        if fault is Fault.SCHEMA:
            self._table.forget()
            self._presence.registered = False
        said = describe(error)
        if said != self._fault:  # once per kind of trouble, not once per attempt
            get().warning("claim_loop_trouble", error=said, kind=str(fault))
            self._fault = said
        if not self._claiming:
            self._return_line()
            self.claims_ended.set()
        return self._backoff.next_s()

    def _turn(self, now: float) -> float:
        """Everything that is due; returns how long to sleep, seconds."""
        conn = self._link.connection
        table = self._table.resolve(conn)
        self._presence_turn(table, now)
        if not self._claiming:
            self._return_line()
            self.claims_ended.set()
            return min(1.0, self._presence.due_in(now))
        self._listen(conn, table)
        self._promote_turn(table, now)
        self._tell_refused()
        if hoarded(len(self._board.line), now - self._board.last_start):
            self._return_line()
        self._claim_turn(table, now)
        now = time.monotonic()
        return max(0.0, min(self._presence.due_in(now), self._next_promote - now, self._next_claim_in(now)))

    def _presence_turn(self, table: Table, now: float) -> None:
        presence = self._presence
        if not presence.registered or presence.due_in(now) == 0.0:
            self._link.run(CALL_LIMIT_S, lambda conn: presence.keep(conn, table, now))

    def _promote_turn(self, table: Table, now: float) -> None:
        if now < self._next_promote or self._presence.cordoned:
            self._next_promote = max(self._next_promote, now + 0.1)
            return
        self._next_promote = now + poll_s(PROMOTE_S, self._rng) + PROMOTE_S / 2
        for _ in range(PROMOTE_PAGES):
            count = self._link.run(CALL_LIMIT_S, lambda conn: self._promote(conn, table))
            self._metrics.promoted += count
            if count:
                self._next_claim = 0.0
            if count < PROMOTE_PAGE:
                return

    def _promote(self, conn: Connection, table: Table) -> int:
        return leasequeue.promote(conn, table, limit=PROMOTE_PAGE, skips=self._skips)

    # --- claiming ----------------------------------------------------------------------------------------------------

    def _next_claim_in(self, now: float) -> float:
        """Sleep until the next claim may be made; with full slots, until a slot wakes us."""
        return self._next_claim - now if self._size() else self._interval_s

    def _size(self) -> int:
        board, limits = self._board, self._limits
        self._short_of_room = True  # before looking: a flush that ends meanwhile wakes us to look again
        load = self._load()
        board.low_water = low_water(limits, load.item_s)
        size = claim_size(limits, load)
        if size or load.queued > board.low_water:
            self._short_of_room = False  # a claim is due, or the slots wake us once they need one
        return size

    def _load(self) -> Load:
        board, completions = self._board, self._completions
        queued, unflushed = len(board.line), completions.unflushed
        running = max(0, len(board.registry) - queued - unflushed)
        item_s = completions.pace.item_s(self._longest_running(running))
        return Load(queued, min(running, self._limits.slots), unflushed, item_s)

    def _longest_running(self, running: int) -> float:
        # While the slots take items briskly nothing runs long in all of them; looking at each item would cost per batch.
        since = time.monotonic() - self._board.last_start
        if not running or since < 1.0:
            return 0.0
        return since

    def _claim_turn(self, table: Table, now: float) -> None:
        """Claim while there is room and the queue gives full pages."""
        if not self._ready():
            self._next_claim = now + READY_S
            return
        while self._claiming and now >= self._next_claim:
            n = self._size()
            if not n:
                return
            claimed = self._claim(table, n)
            now = time.monotonic()
            if claimed.admission == "unregistered":
                self._presence.registered = False
                return
            self._presence.heard_of_cordon(claimed.admission == "cordoned")
            self._eagerness.claimed(len(claimed.items))
            if claimed.refused:  # there may be more behind them, at once, but heartbeats come first
                self._tell_refused()
                return
            if not claimed.full:
                self._next_claim = now + poll_s(self._interval_s, self._rng)
            self._beat()

    def _claim(self, table: Table, n: int) -> Claimed:
        settings, worker_id = self._settings, self._presence.worker_id
        if self._unsure:
            self._release_unheld(table)

        def call(conn: Connection) -> Claimed:
            mark, lanes, skips = self._mark, settings.lanes, self._skips
            return leasequeue.claim(
                conn,
                table,
                worker_id=worker_id,
                n=n,
                config=settings.config,
                lanes=lanes,
                mark=mark,
                registered=True,
                skips=skips,
            )

        sent_at = time.monotonic()
        try:
            claimed = self._link.run(CALL_LIMIT_S, call)
        except BaseException as ex:
            self._unsure = classify(ex) is not Fault.BUSY
            self._mark.rewind()
            raise
        if claimed.items:
            self._metrics.claim.observe([time.monotonic() - sent_at])
            self._accept(claimed.items, sent_at)
        return claimed

    def _accept(self, items: list[Item], sent_at: float) -> None:
        deadline, now = sent_at + self._settings.config.lease_s, time.monotonic()
        named = zip(items, text_leases(items), self._audit.identities(items), strict=True)
        batch = [Held(item, lease, deadline, now, identity) for item, lease, identity in named]
        self._metrics.claimed += len(batch)
        self._metrics.wait.observe(waits(items))
        self._audit.database_clock(items[-1]["leased_at"])
        self._audit.leased(batch)
        self._board.put(batch)

    def _release_unheld(self, table: Table) -> None:
        me, tokens = self._presence.worker_id, self._board.registry.tokens()

        def call(conn: Connection) -> int:
            return leasequeue.release_unheld(conn, table, worker_id=me, held_tokens=tokens, skips=self._skips)

        count = self._link.run(CALL_LIMIT_S, call)
        self._unsure = False
        if count:
            get().warning("unknown_leases_released", items=count)

    def _tell_refused(self) -> None:
        for refused in self._skips.take_news():
            get().error(
                "item_refuses_change", item_id=printable(refused.id), verb=refused.verb, sqlstate=refused.sqlstate,
                next="it is passed over for a while; leasequeue doctor looks for the cause",
            )  # fmt: skip

    def _return_line(self) -> None:
        """Give back what waits and has not started."""
        for held in self._board.take_back():
            if held.say(Release()):
                self._completions.give(held)
        self._completions.kick()

    # --- sleeping ----------------------------------------------------------------------------------------------------

    def _listen(self, conn: Connection, table: Table) -> None:
        if self._settings.wakeup and (self._listener is None or self._listener.conn is not conn):
            self._listener = Listener(conn, table.channel)

    def _sleep(self, wait_s: float) -> None:
        listener = self._listener
        if listener is None or not listener.listening or listener.conn is not self._link.current or self._fault is not None:
            self._board.waker.sleep(wait_s, None)
            return
        # A notification that came with the answer to the last claim may be of rows which that claim could not see yet.
        if listener.heard():
            wait_s = min(wait_s, self._notified(time.monotonic()))
        try:
            if self._board.waker.sleep(wait_s, listener.conn):
                listener.read()
        except Exception as ex:  # noqa: BLE001  (the end of the connection; the next turn connects again)
            get().info("claim_connection_ended", error=describe(ex))
            self._link.close()
        if listener.heard():
            self._notified(time.monotonic())

    def _notified(self, now: float) -> float:
        """The queue has new items: claim soon. Returns in how many seconds."""
        wait_s = self._eagerness.wait_s() + yield_s(self._limits, self._load())
        self._next_claim = min(self._next_claim, now + wait_s)
        self._mark.rewind()
        return wait_s

    def _leave(self) -> None:
        conn = self._link.current
        try:
            if conn is not None and self._presence.registered:
                table = self._table.get()
                if self._unsure:
                    self._release_unheld(table)
                self._link.run(2.0, lambda conn: self._presence.leave(conn, table))
        except Exception as ex:  # noqa: BLE001  (the row goes stale and is swept later)
            get().info("not_deregistered", error=describe(ex))


def waits(items: list[Item]) -> list[float]:
    """Seconds from due (the later of created_at and run_at) to leased, on the database's clock."""
    texts = texts_of(items, "leased_at", "created_at", "run_at")
    try:
        return _waits(texts)
    except (TypeError, ValueError):  # NULL, or a time that Python cannot hold: infinity
        return _waits([times for times in texts if all(map(_is_time, times))])


def _waits(texts: list[tuple[Any, ...]]) -> list[float]:
    found = []
    for leased, created, due in texts:
        begin, due_at = _parsed(created), _parsed(due)
        found.append((_parsed(leased) - (due_at if due_at > begin else begin)).total_seconds())
    return [max(0.0, wait_s) for wait_s in found] if min(found, default=0.0) < 0.0 else found


_parsed = datetime.fromisoformat


def _is_time(text: str | None) -> bool:
    try:
        return text is not None and bool(_parsed(text))
    except ValueError:
        return False
