"""Completions beside one that cannot be written: the others are, whatever keeps it back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import leasequeue
from leasequeue.config import LeaseConfig
from leasequeue.dsn import DsnSource, connect
from leasequeue.process import logs
from leasequeue.verdict import Resolve, Retry, Verdict
from leasequeue_worker.audit import AuditLog
from leasequeue_worker.completion import Completions
from leasequeue_worker.held import Held, Registry
from leasequeue_worker.link import Link, Watchdog
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
    completions._armed.clear()
    completions.thread.start()
    completions.give(batch[0])
    wait_for("both resolved", lambda: states(queue, batch[:2]) == ["RESOLVED"] * 2)
