"""B29: a server with too few connections: told before it happens, and survived when it does."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from devtools.pgserver import PgServer
from leasequeue.doctor import Code, Limits, diagnose
from leasequeue.dsn import DsnSource
from leasequeue_worker.settings import HandlerSpec, Settings
from leasequeue_worker.supervisor import Worker
from tests.support.processes import worker
from tests.support.queues import Queue

ALLOWED = 20
_numbers = itertools.count()
LIMITS = Limits(watch_s=0)


@pytest.fixture(scope="module")
def server() -> Iterator[PgServer]:
    with PgServer(18, settings={"max_connections": str(ALLOWED), "superuser_reserved_connections": "0"}) as started:
        yield started


@pytest.fixture
def queue(server: PgServer) -> Iterator[Queue]:
    made = Queue(server.create_database(f"budget_{next(_numbers)}"))
    yield made
    made.close()


def fill(server: PgServer, stack: ExitStack) -> int:
    """Take every connection that is left."""
    count = 0
    while True:
        try:
            stack.enter_context(psycopg.connect(server.dsn("postgres")))
        except psycopg.OperationalError as ex:
            assert "too many clients" in str(ex)  # noqa: PT017
            return count
        count += 1


def findings(queue: Queue, limits: Limits) -> list[tuple[str, str]]:
    with psycopg.connect(queue.dsn, autocommit=True) as conn:
        return [(f.code, f.sign) for f in diagnose(conn, queue.name, limits=limits).findings]


def test_more_workers_than_the_server_has_connections_for_are_seen_before_they_start(queue: Queue) -> None:
    assert findings(queue, LIMITS) == []
    assert findings(queue, Limits(watch_s=0, max_workers=50)) == [(Code.CONNECTIONS, "budget")]
    assert findings(queue, Limits(watch_s=0, max_workers=4)) == []


def test_a_server_that_is_nearly_full_is_seen(server: PgServer, queue: Queue) -> None:
    with ExitStack() as stack:
        for _ in range(ALLOWED - 3):
            stack.enter_context(psycopg.connect(server.dsn("postgres")))
        assert findings(queue, LIMITS) == [(Code.CONNECTIONS, "nearly_full")]


def test_at_the_limit_leases_live_on_and_new_workers_wait(server: PgServer, queue: Queue) -> None:
    """The running worker keeps its connections, so its lease of 3 s outlives a full server of 7 s; the new one backs off and starts later."""
    (long,) = queue.add("sleep:7")
    with worker(queue.dsn, "work", "act", lock_timeout_ms=3_000, reclaim_after_s=10) as running:
        queue.wait_state(long, "ASSIGNED")
        with ExitStack() as stack:
            fill(server, stack)
            with worker(queue.dsn, "work", "act") as late:
                trouble = late.wait_event("claim_loop_trouble")
                assert queue.wait_state(long, "RESOLVED")["attempt"] == 1
                assert "too many clients" in trouble[0]["error"]
                assert len(late.named("claim_loop_trouble")) == 1, "told once, not at each attempt"
                assert late.process.poll() is None
                stack.close()
                running.terminate()
                (next_one,) = queue.add("")
                assert queue.wait_state(next_one, "RESOLVED")["leased_by"] != running.named("worker_started")[0]["worker_id"]
    assert not running.named("item_lost")
    assert not running.named("lease_unconfirmed")


def test_nothing_is_leased_that_could_not_be_completed(queue: Queue) -> None:
    """The claims have the last free connection: nothing is leased before renewals and completions have theirs."""
    queue.add("", "", "")
    spec = HandlerSpec("python", "tests.support.handlers:nothing")
    made = Worker(Settings(DsnSource(dsn=queue.dsn), "public", "work", spec, concurrency=3, http_port=0))
    loop, links = made._loop, (made._completions._link, made._renewal._link)
    loop._turn(time.monotonic())
    assert queue.states() == {"PENDING": 3}
    for link in links:
        assert link.connection
    loop._next_claim = 0.0
    loop._turn(time.monotonic())
    assert queue.states() == {"ASSIGNED": 3}
    for link in (loop._link, *links):
        link.close()
