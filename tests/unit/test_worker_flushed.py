"""Whoever is woken by a flush must see its room: else a drain of full batches slept for a poll between two claims (six times slower)."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from leasequeue import Item, LeaseConfig, Outcome, Resolve
from leasequeue.outcomes import Outcomes
from leasequeue.process import logs
from leasequeue_worker.audit import AuditLog
from leasequeue_worker.completion import Completions
from leasequeue_worker.held import Held, Registry
from leasequeue_worker.metrics import WorkerMetrics
from leasequeue_worker.probes import Beats
from leasequeue_worker.queuetable import QueueTable
from tests.support.processes import wait_for


class TakesAll:
    """Stands for the database: every completion is taken."""

    opened = 1

    def __init__(self, batch: list[Held]) -> None:
        self._batch = batch

    def run(self, _limit_s: float, _call: Callable[..., Any]) -> Outcomes:
        answer = Outcomes()
        answer.add([held.lease for held in self._batch], {held.lease.id: Outcome.RESOLVED for held in self._batch})
        return answer


def held() -> Held:
    index = {"id": 0, "lease_token": 1, "leased_by": 2}
    item = Item(index, (uuid.uuid4(), uuid.uuid4(), "w"))
    return Held(item, item.lease, 0.0, 0.0)


def test_flushed_items_are_no_longer_counted_when_the_claim_loop_is_told() -> None:
    seen: list[int] = []
    batch, registry = [held() for _ in range(200)], Registry()
    registry.add(batch)
    audit = AuditLog(logs.SINK, "w", "q", enabled=False)
    link: Any = TakesAll(batch)
    completions = Completions(
        link, QueueTable("public", "t"), registry, LeaseConfig(), WorkerMetrics("", "q"), audit,
        lambda _freed: seen.append(completions.unflushed),
    )  # fmt: skip
    for one in batch:
        one.verdict = Resolve()
        completions.give(one)
    completions.flush()
    assert seen == [0]
    assert len(registry) == 0


class Hangs:
    """Stands for a database link whose call never comes back."""

    opened = 1

    def run(self, _limit_s: float, _call: Callable[..., Any]) -> Outcomes:
        threading.Event().wait()
        raise AssertionError("never")


@pytest.mark.parametrize("who", ["its own thread", "a slot"])
def test_a_writer_that_hangs_is_seen_by_healthz_and_one_that_waits_is_not(monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    monkeypatch.setattr("leasequeue_worker.completion.IDLE_S", 0.05)
    beats, registry = Beats(stalled_s=0.5), Registry()
    audit = AuditLog(logs.SINK, "w", "q", enabled=False)
    link: Any = Hangs()
    completions = Completions(
        link, QueueTable("public", "t"), registry, LeaseConfig(), WorkerMetrics("", "q"), audit, lambda _freed: None,
        beats.mark("completions"),
    )  # fmt: skip
    completions.thread.start()
    time.sleep(1.0)
    assert beats.stalled(time.monotonic()) == []
    one = held()
    one.verdict = Resolve()
    if who == "a slot":
        threading.Thread(target=completions.write_here, args=[one], daemon=True).start()
    else:
        completions.give(one)
    wait_for("the hang is seen", lambda: beats.stalled(time.monotonic()) == ["completions"])


def writer(link: Any, registry: Registry) -> Completions:
    audit = AuditLog(logs.SINK, "w", "q", enabled=False)
    return Completions(
        link, QueueTable("public", "t"), registry, LeaseConfig(batch_size=1), WorkerMetrics("", "q"), audit, lambda _freed: None
    )


def test_a_slot_with_nothing_else_to_do_writes_its_verdict_itself() -> None:
    batch, registry = [held()], Registry()
    registry.add(batch)
    completions = writer(TakesAll(batch), registry)  # its thread is not started
    batch[0].verdict = Resolve()
    completions.write_here(batch[0])
    assert (completions.unflushed, len(registry)) == (0, 0)


def test_a_slot_leaves_its_verdict_to_the_one_that_writes() -> None:
    batch, registry = [held(), held()], Registry()
    registry.add(batch)
    completions = writer(TakesAll(batch), registry)
    for one in batch:
        one.verdict = Resolve()
    with completions._writing:
        completions.write_here(batch[0])
        assert completions.unflushed == 1
    completions.thread.start()
    wait_for("the thread writes it", lambda: not completions.unflushed)


class FailsOnce(TakesAll):
    """Stands for a database that cannot be reached at first."""

    def run(self, limit_s: float, call: Callable[..., Any]) -> Outcomes:
        if not self.failed:
            self.failed = True
            raise psycopg.OperationalError("gone")
        return super().run(limit_s, call)

    failed = False


def test_what_a_slot_could_not_write_is_offered_again_by_the_thread() -> None:
    batch, registry = [held()], Registry()
    registry.add(batch)
    link = FailsOnce(batch)
    completions = writer(link, registry)
    batch[0].verdict = Resolve()
    completions.write_here(batch[0])
    assert link.failed
    assert (completions.unflushed, len(registry)) == (1, 1)
    link.failed = True
    completions.thread.start()
    wait_for("it is taken", lambda: not completions.unflushed)
    assert len(registry) == 0


class OpensSlowly(TakesAll):
    """Stands for a link that is open a moment before the call that opened it has ended."""

    opened = 0

    def __init__(self, batch: list[Held]) -> None:
        super().__init__(batch)
        self.go_on = threading.Event()
        self.users = self.most_users = 0

    def run(self, limit_s: float, call: Callable[..., Any]) -> Outcomes:
        self.users += 1
        self.most_users = max(self.users, self.most_users)
        try:
            if self.opened:
                return super().run(limit_s, call)
            self.opened = 1
            assert self.go_on.wait(20)
            return Outcomes()
        finally:
            self.users -= 1


def test_a_slot_does_not_write_on_a_connection_that_is_still_being_opened() -> None:
    """Both would be watched under one key: whose call ended first would leave the other's without a deadline."""
    batch, registry = [held()], Registry()
    registry.add(batch)
    link = OpensSlowly(batch)
    completions = writer(link, registry)
    completions.thread.start()
    wait_for("it is open", lambda: link.opened)
    batch[0].verdict = Resolve()
    completions.write_here(batch[0])
    link.go_on.set()
    wait_for("it is taken", lambda: not completions.unflushed)
    assert link.most_users == 1
