"""Completions beside one that cannot be written: the others are, whatever keeps it back."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import leasequeue
from leasequeue.config import LeaseConfig
from leasequeue.dsn import DsnSource, connect
from leasequeue.process import logs
from leasequeue.verdict import Resolve, Retry, Verdict
from leasequeue_worker.audit import AuditLog
from leasequeue_worker.bell import Bell
from leasequeue_worker.completion import Completions
from leasequeue_worker.held import Held, Registry
from leasequeue_worker.link import CallCut, Link, Watchdog
from leasequeue_worker.metrics import WorkerMetrics
from leasequeue_worker.queuetable import QueueTable
from tests.support.processes import wait_for
from tests.support.queues import Queue

COUNT = 20
POISON = 7


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    made = Queue(dsn)
    yield made
    made.close()


def finished(queue: Queue, verdict: Verdict) -> tuple[Completions, list[Held]]:
    """`COUNT` items that ended with `verdict`, not yet written."""
    registry, table, config = Registry(), QueueTable("public", queue.name), LeaseConfig()
    link = Link("completions", DsnSource(dsn=queue.dsn), lease_s=30, watchdog=Watchdog())
    queue.add(*[""] * COUNT)
    with connect(queue.dsn) as conn:
        items = leasequeue.claim(conn, table.resolve(conn), worker_id="w", n=COUNT, config=config).items
    audit = AuditLog(logs.SINK, "w", "q", enabled=False)
    completions = Completions(link, table, registry, config, WorkerMetrics("", "q"), audit, lambda _freed: None)
    batch = [Held(item, item.lease, time.monotonic() + 30, time.monotonic()) for item in items]
    registry.add(batch)
    for held in batch:
        held.verdict = verdict
        completions.give(held)
    return completions, batch


def states(queue: Queue, batch: list[Held]) -> list[str]:
    return [str(queue.row(held.lease.id)["state"]) for held in batch]


def all_but(state: str) -> list[str]:
    return [state] * POISON + ["ASSIGNED"] + [state] * (COUNT - POISON - 1)


@pytest.mark.parametrize(("verdict", "state"), [(Resolve({"a": 1}), "RESOLVED"), (Retry(60.0), "SCHEDULED")])
def test_a_row_that_somebody_has_locked_keeps_back_itself_alone(queue: Queue, verdict: Verdict, state: str) -> None:
    completions, batch = finished(queue, verdict)
    with psycopg.connect(queue.dsn) as somebody:
        somebody.execute("SELECT FROM work WHERE id = %s FOR UPDATE", (batch[POISON].lease.id,))
        completions.flush()
        assert states(queue, batch) == all_but(state)
        assert completions.unflushed == 1
    completions.flush()
    assert states(queue, batch) == [state] * COUNT
    assert completions.unflushed == 0


@pytest.mark.parametrize("error", ["internal_error", "undefined_column"])
def test_a_row_that_the_server_cannot_change_keeps_back_itself_alone(queue: Queue, error: str) -> None:
    completions, batch = finished(queue, Resolve({"a": 1}))
    statement = "SELECT no_such_column FROM work" if error == "undefined_column" else "RAISE SQLSTATE 'XX001'"
    perform = statement.replace("SELECT", "PERFORM")
    queue.conn.execute(
        f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF NEW.n = {POISON} THEN {perform}; END IF; RETURN NEW; END $$"
    )
    queue.conn.execute("CREATE TRIGGER refuse BEFORE UPDATE ON work FOR EACH ROW EXECUTE FUNCTION refuse()")
    completions.flush()
    assert states(queue, batch) == all_but("RESOLVED")
    assert completions.unflushed == 1


def test_a_server_that_refuses_everything_is_not_asked_item_by_item(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    completions, _ = finished(queue, Resolve())
    asked: list[int] = []

    def refuse(_conn: Any, _table: Any, writes: Any) -> Any:
        asked.append(len(writes))
        raise psycopg.errors.UndefinedTable

    monkeypatch.setattr(leasequeue, "resolve", refuse)
    completions.flush()
    assert completions.unflushed == COUNT
    assert len(asked) < COUNT


class Interleaved(deque[Held]):
    """A deque in which the first append is followed at once by another thread's `give`."""

    def __init__(self, give: Callable[[], None]) -> None:
        super().__init__()
        self._give: Callable[[], None] | None = give

    def append(self, held: Held) -> None:
        super().append(held)
        give, self._give = self._give, None
        if give is not None:
            give()


def test_two_verdicts_given_at_once_wake_the_writer(queue: Queue) -> None:
    completions, batch = finished(queue, Resolve())
    completions.finished = Interleaved(lambda: completions.give(batch[1]))
    completions._armed = Bell()
    completions.thread.start()
    completions.give(batch[0])
    wait_for("both resolved", lambda: states(queue, batch[:2]) == ["RESOLVED"] * 2)


def test_a_batch_that_cannot_be_answered_in_time_is_offered_in_smaller_ones(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of gigabytes: whole, they would be sent, cut and offered again for ever."""
    completions, batch = finished(queue, Resolve("large"))
    monkeypatch.setattr("leasequeue_worker.completion.CALL_LIMIT_S", 1.0)
    asked: list[int] = []
    real = leasequeue.resolve

    def slow(conn: Any, table: Any, writes: Any) -> Any:
        asked.append(len(writes))
        conn.execute("SELECT pg_sleep(%s)", [0.25 * len(writes)])
        return real(conn, table, writes)

    monkeypatch.setattr(leasequeue, "resolve", slow)
    with watched(completions):
        for _ in range(10):
            completions.flush()
            if not completions.unflushed:
                break
    assert states(queue, batch) == ["RESOLVED"] * COUNT
    assert asked[:3] == [20, 10, 5]
    assert max(asked[3:]) < 5


def test_a_call_that_was_cut_says_so(queue: Queue) -> None:
    completions, _ = finished(queue, Resolve())
    with watched(completions), pytest.raises(CallCut, match=r"no answer within 0\.2 s"):
        completions._link.run(0.2, lambda conn: conn.execute("SELECT pg_sleep(20)"))


@contextmanager
def watched(completions: Completions) -> Iterator[None]:
    """Its calls are cut at their limit, as by the worker's main thread."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            completions._link._watchdog.check(time.monotonic())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_an_item_that_refuses_every_change_is_let_go(queue: Queue) -> None:
    """It cannot be completed, nor set aside: its lease ends by itself, and the others are done."""
    completions, batch = finished(queue, Resolve({"a": 1}))
    queue.conn.execute(f"ALTER TABLE work ADD CONSTRAINT never CHECK (n <> {POISON}) NOT VALID")
    completions.flush()
    assert states(queue, batch) == all_but("RESOLVED")
    assert completions.unflushed == 0
    assert completions._metrics.finished["refused"] == 1
    assert not len(completions._registry)


def test_many_writers_at_once_write_each_verdict_once(queue: Queue) -> None:
    """Slots that write themselves, slots that leave it to the thread, and a connection that is lost again and again between them."""
    config, registry, table = LeaseConfig(batch_size=1), Registry(), QueueTable("public", queue.name)
    link = Link("completions", DsnSource(dsn=queue.dsn), lease_s=30, watchdog=Watchdog(), keep={"durable": True})
    audit, metrics = AuditLog(logs.SINK, "w", "q", enabled=False), WorkerMetrics("", "q")
    completions = Completions(link, table, registry, config, metrics, audit, lambda _freed: None)
    queue.fill(400)
    with connect(queue.dsn) as conn:
        items = [
            item
            for _ in range(2)
            for item in leasequeue.claim(conn, table.resolve(conn), worker_id="w", n=200, config=config).items
        ]
    batch = [Held(item, item.lease, time.monotonic() + 30, time.monotonic()) for item in items]
    registry.add(batch)
    completions.thread.start()
    wait_for("it is connected", lambda: link.opened)

    def slot(mine: list[Held]) -> None:
        for n, held in enumerate(mine):
            held.verdict = Resolve()
            (completions.write_here, completions.write_here, completions.give, completions.hold)[n % 4](held)

    slots = [threading.Thread(target=slot, args=[batch[n::8]]) for n in range(8)]
    for thread in slots:
        thread.start()
    while any(thread.is_alive() for thread in slots):
        queue.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasequeue-worker completions'"
        )
        time.sleep(0.02)
    wait_for("everything is written", lambda: not completions.unflushed)
    assert queue.states() == {"RESOLVED": 400}
    assert len(registry) == 0
    assert metrics.finished["resolved"] + metrics.finished["noop"] == sum(metrics.finished.values()) == 400
