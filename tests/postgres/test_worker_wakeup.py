"""Notifications end the sleep of an idle worker; nothing hangs on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from devtools.pgserver import free_port
from leasequeue import DsnSource
from leasequeue.run import Query, keep_limits, run, single
from leasequeue_worker.link import Link, Watchdog
from leasequeue_worker.wakeup import Listener, Waker
from tests.postgres.test_worker_handlers import get
from tests.support.processes import wait_for, worker
from tests.support.queues import Queue


@pytest.fixture
def link(dsn: str) -> Iterator[Link]:
    made = Link("test", DsnSource(dsn=dsn), lease_s=30, watchdog=Watchdog())
    yield made
    made.close()


def test_a_notification_ends_the_sleep(link: Link, conn: psycopg.Connection) -> None:
    waker, listener = Waker(), Listener(link.connection, "leasequeue_1")
    assert listener.listening
    timer = threading.Timer(0.2, lambda: conn.execute("NOTIFY leasequeue_1"))
    timer.start()
    assert waker.sleep(60.0, listener.conn)
    listener.read()
    assert listener.heard()
    assert not listener.heard()


@pytest.mark.parametrize("kept", [False, True])
def test_a_notification_that_comes_with_an_answer_is_heard(link: Link, conn: psycopg.Connection, kept: bool) -> None:
    """It wakes no poll: the socket is empty once the answer is read."""
    listener = Listener(link.connection, "leasequeue_1")
    if kept:
        keep_limits(listener.conn)
    conn.execute("NOTIFY leasequeue_1")
    conn.execute("SELECT pg_sleep(0.1)")
    run(listener.conn, single(Query("SELECT pg_sleep(0.1)", {})))
    assert listener.heard()
    assert not Waker().sleep(0.0, listener.conn)


def test_the_end_of_the_connection_ends_the_sleep_and_is_told(link: Link, conn: psycopg.Connection) -> None:
    waker, listener = Waker(), Listener(link.connection, "leasequeue_1")
    conn.execute("SELECT pg_terminate_backend(%s)", (listener.conn.info.backend_pid,))

    def listen_on() -> None:
        for _ in range(5):  # the server's last message first, then the end of the stream
            assert waker.sleep(60.0, listener.conn)
            listener.read()
            assert not listener.heard()

    with pytest.raises(psycopg.OperationalError):
        listen_on()


def test_a_call_without_an_answer_is_cut_by_the_watchdog(dsn: str) -> None:
    watchdog = Watchdog()
    link = Link("test", DsnSource(dsn=dsn), lease_s=30, watchdog=watchdog)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            watchdog.check(time.monotonic())

    threading.Thread(target=watch, daemon=True).start()
    with pytest.raises(psycopg.OperationalError):
        link.run(0.3, lambda conn: conn.execute("SELECT pg_sleep(600)"))
    over.set()
    assert link.current is None
    assert link.run(30.0, lambda conn: conn.execute("SELECT 1").fetchone()) == (1,)
    link.close()


@pytest.mark.parametrize("wakeup", [True, False])
def test_items_come_with_and_without_notifications(dsn: str, wakeup: bool) -> None:
    queue = Queue(dsn)
    with worker(dsn, "work", "act", wakeup=wakeup) as process:
        wait_for("it is registered", lambda: queue.execute("SELECT 1 FROM leasequeue.worker"))
        listens = queue.execute("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND %s", True)
        assert wakeup or not listens
        (item,) = queue.add("")
        queue.wait_state(item, "RESOLVED")
        assert process.terminate() == 0
    queue.close()


def test_health_does_not_hang_on_the_database() -> None:
    """B80: no database at all; the worker is healthy and ready, and says what is wrong in its log."""
    port = free_port()
    with worker("host=127.0.0.1 port=1 user=u dbname=d", "work", "act", LEASEQUEUE_HTTP_PORT=port) as process:
        process.wait_event("claim_loop_trouble", kind="connection")
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/readyz") == (200, "ok\n")
        assert 'leasequeue_database_errors_total{kind="connection"' in get(port, "/metrics")[1]
        assert process.terminate() == 0
