"""Every form of handler and every verdict, with a real worker process against a real server."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import pytest
from psycopg import sql

from devtools.pgserver import free_port
from leasequeue import connect, cordon
from leasequeue.schema import ColumnSpec, create
from leasequeue.table import Table
from tests.support.processes import wait_for, worker
from tests.support.queues import Queue


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    made = Queue(dsn)
    yield made
    made.close()


VERDICTS = {
    "": ("RESOLVED", None),
    "sleep:0.05": ("RESOLVED", None),
    "fail:no": ("FAILED", "no"),
    "repair:look": ("REPAIR", "look"),
    "value:nul": ("REPAIR", "refused"),
    "value:nan": ("REPAIR", "refused"),
    "value:set": ("REPAIR", "refused"),
    "bad_column:x": ("REPAIR", "no_such_column"),
    "columns:hi": ("RESOLVED", None),
    "post:": ("RESOLVED", None),
    "retry:1000": ("FAILED", "asked for"),
    "release:1000": ("SCHEDULED", None),
    "raise:boom": ("FAILED", "RuntimeError: boom"),
    "post:raise": ("FAILED", "RuntimeError: after the posting"),
    "exit:3": ("FAILED", "SystemExit: 3"),
}


@pytest.mark.parametrize(
    ("handler", "isolation", "concurrency"),
    [
        ("act", "thread", 1),
        ("act", "thread", 4),
        ("act_async", "thread", 4),
        ("act", "process", 2),
        ("act_async", "process", 2),
    ],
)
def test_every_verdict_becomes_its_state_and_one_bad_result_spares_the_batch(
    queue: Queue, handler: str, isolation: str, concurrency: int
) -> None:
    ids = dict(zip(VERDICTS, queue.add(*VERDICTS), strict=True))
    with worker(queue.dsn, "work", handler, isolation=isolation, concurrency=concurrency, max_attempts=1) as process:
        for what, (state, error) in VERDICTS.items():
            row = queue.wait_state(ids[what], state)
            if error is not None:
                assert error in row["last_error"], what
        assert process.terminate() == 0
        assert len(process.named("item_resolved")) == 4
        assert len(process.named("item_repair")) == 5
        assert len(process.named("item_failed")) == 5
        assert not process.stray, process.stray
    assert queue.row(ids["release:1000"])["attempt"] == 0
    assert queue.row(ids["columns:hi"])["note"] == "hi"
    assert queue.row(ids["post:"])["result"] == {"posted": list(VERDICTS).index("post:")}
    assert [r["item"] for r in queue.execute("SELECT item FROM ledger")] == [str(ids["post:"])]


def test_money_reaches_the_handler_and_the_result_exactly(dsn: str) -> None:
    with connect(dsn) as conn:
        create(conn, "money", columns=[ColumnSpec("amount", "numeric(28,10)")], id_type="bigint")
        conn.execute("INSERT INTO money (amount) VALUES (100000000.0000000001)")
        with worker(dsn, "money", "tests.support.money:double") as process:
            process.wait_event("item_resolved")
            process.terminate()
        (result,) = conn.execute("SELECT result ->> 'twice' FROM money").fetchone() or ("",)
    assert Decimal(result) == Decimal("200000000.0000000002")


def test_a_failing_item_is_retried_with_backoff_until_its_attempts_are_used_up(queue: Queue) -> None:
    (item,) = queue.add("raise:again")
    with worker(queue.dsn, "work", "act", max_attempts=3) as process:
        row = queue.wait_state(item, "FAILED")
        assert row["attempt"] == 3
        assert len(process.named("item_leased")) == 3
        assert len(process.named("item_retried")) == 2
        raised = process.named("handler_raised")
        assert len(raised) == 3
        assert "again" not in json.dumps(raised)  # an exception's message may quote the payload: it stays in the table


def test_priority_then_age_is_the_order_of_work(queue: Queue) -> None:
    queue.add("", "", priority=0)
    queue.add("", "", priority=5)
    ordered = queue.execute("SELECT id FROM {t} ORDER BY priority DESC, created_at")
    with worker(queue.dsn, "work", "act") as process:
        lines = process.wait_event("item_resolved", 4)
    assert [line["item_id"] for line in lines] == [str(row["id"]) for row in ordered]


def test_a_due_item_is_promoted_without_a_reclaimer(queue: Queue) -> None:
    (item,) = queue.add("", state="SCHEDULED")
    with worker(queue.dsn, "work", "act"):
        queue.wait_state(item, "RESOLVED")


def test_strict_lanes_run_one_at_a_time_in_order_across_workers(dsn: str) -> None:
    queue = Queue(dsn, strict_lanes=True)
    with (
        worker(dsn, "work", "act", strict_lanes=True, concurrency=3) as one,
        worker(dsn, "work", "act", strict_lanes=True, concurrency=3) as two,
    ):
        one.wait_event("worker_started")
        two.wait_event("worker_started")
        for n in range(24):
            queue.add("sleep:0.02", lane=f"lane-{n % 3}", priority=n)
        queue.wait_states(RESOLVED=24)
        assert one.terminate() == 0
        assert two.terminate() == 0
    for lane in range(3):
        rows = queue.execute("SELECT leased_at, resolved_at FROM {t} WHERE lane = %s ORDER BY created_at, id", f"lane-{lane}")
        for earlier, later in pairwise(rows):
            assert earlier["resolved_at"] <= later["leased_at"]
    queue.close()


def test_workers_restricted_to_lanes_leave_the_rest(queue: Queue) -> None:
    queue.add("", lane="mine")
    (other,) = queue.add("", lane="theirs")
    with worker(queue.dsn, "work", "act", lanes=["mine"]) as process:
        process.wait_event("item_resolved")
        process.terminate()
    assert queue.row(other)["state"] == "PENDING"


# --- commands and services ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "state", "error"),
    [
        (
            'read line; echo "{\\"key\\": \\"$LEASEQUEUE_IDEMPOTENCY_KEY\\", \\"attempt\\": $LEASEQUEUE_ATTEMPT}"',
            "RESOLVED",
            None,
        ),
        ("exit 75", "FAILED", "exit code 75"),
        ("echo look at line 7 >&2; exit 65", "REPAIR", "exit code 65: look at line 7"),
        ("echo no >&2; exit 1", "FAILED", "exit code 1: no"),
        ("kill -9 $$", "FAILED", "signal SIGKILL"),
        ("echo not json", "REPAIR", "standard output is not JSON"),
    ],
)
def test_commands(queue: Queue, script: str, state: str, error: str | None) -> None:
    (item,) = queue.add("payload", idempotency_key="key-7")
    with worker(queue.dsn, "work", exec=["/bin/sh", "-c", script], max_attempts=1):
        row = queue.wait_state(item, state)
    if error is None:
        assert row["result"] == {"key": "key-7", "attempt": 1}
    else:
        assert row["last_error"].startswith(error)


def test_a_command_gets_the_whole_item_on_standard_input(queue: Queue) -> None:
    (item,) = queue.add("what it says")
    with worker(queue.dsn, "work", exec=["cat"]):
        row = queue.wait_state(item, "RESOLVED")
    assert row["result"]["what"] == "what it says"
    assert row["result"]["id"] == str(item)
    assert row["result"]["lease_token"] == str(row["lease_token"])


class Service(ThreadingHTTPServer):
    """Answers each request as its item's column `what` says: STATUS or STATUS:RETRY-AFTER."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.seen.append({"headers": dict(self.headers), "body": body, "path": self.path})
                status, _, wait = body["what"].partition(":")
                answer = b'{"ok": 0.10}'
                self.send_response(int(status))
                if wait:
                    self.send_header("Retry-After", wait)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                return

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/run?x=1"


def test_services(queue: Queue) -> None:
    wanted = {"200": "RESOLVED", "422": "REPAIR", "500": "FAILED", "302": "FAILED"}
    ids = dict(zip(wanted, queue.add(*wanted), strict=True))
    (keyed,) = queue.add("201", idempotency_key="key-1")
    with Service() as service, worker(queue.dsn, "work", http_url=service.url, max_attempts=1, concurrency=2):
        for what, state in wanted.items():
            queue.wait_state(ids[what], state)
        queue.wait_state(keyed, "RESOLVED")
        keys = {seen["body"]["id"]: seen["headers"]["Idempotency-Key"] for seen in service.seen}
        assert keys[str(keyed)] == "key-1"
        assert keys[str(ids["200"])] == str(ids["200"])
        assert service.seen[0]["path"] == "/run?x=1"
        assert service.seen[0]["headers"]["LeaseQueue-Attempt"] == "1"


def test_a_service_says_when_to_come_back(queue: Queue) -> None:
    (item,) = queue.add("503:3600")
    with Service() as service, worker(queue.dsn, "work", http_url=service.url):
        row = queue.wait_state(item, "SCHEDULED")
    (wait,) = queue.execute("SELECT extract(epoch FROM run_at - clock_timestamp()) AS s FROM {t}")
    assert 3000 < wait["s"] <= 3600
    assert row["last_error"].startswith("HTTP 503")


# --- probes, registry, cordon ---------------------------------------------------------------------------------------------


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as ex:
        return ex.code, ex.read().decode()
    except OSError as ex:
        return 0, str(ex)


def test_probes_metrics_and_the_cordon(queue: Queue) -> None:
    port = free_port()
    (first,) = queue.add("")
    with worker(
        queue.dsn, "work", "act", LEASEQUEUE_HTTP_PORT=port, LEASEQUEUE_QUEUE="shop/reviews", POD_UID="uid-1", POD_NAME="pod-1"
    ):
        queue.wait_state(first, "RESOLVED")
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/readyz") == (200, "ok\n")
        wait_for(
            "the resolved item in the metrics",
            lambda: (
                'leasequeue_finished_total{outcome="resolved",queue="reviews",queue_namespace="shop"} 1.0'
                in get(port, "/metrics")[1]
            ),
        )
        (row,) = queue.execute("SELECT * FROM leasequeue.worker")
        assert row["pod_uid"] == "uid-1"
        assert row["worker_id"].startswith("pod-1-")
        with connect(queue.dsn) as conn:
            table = Table.load(conn, "work")
            cordon(conn, table, ["uid-1"], seconds=60)
            (second,) = queue.add("")
            wait_for("not ready when cordoned and drained", lambda: get(port, "/readyz")[0] == 503)
            assert get(port, "/healthz")[0] == 200
            assert queue.row(second)["state"] == "PENDING"
            cordon(conn, table, ["uid-1"], seconds=0)
        queue.wait_state(second, "RESOLVED")
        wait_for("ready again", lambda: get(port, "/readyz")[0] == 200)


def test_a_worker_whose_row_was_deleted_registers_again(queue: Queue) -> None:
    with worker(queue.dsn, "work", "act") as process:
        wait_for("a row", lambda: queue.execute("SELECT 1 FROM leasequeue.worker"))
        queue.execute("DELETE FROM leasequeue.worker")
        (item,) = queue.add("")
        queue.wait_state(item, "RESOLVED")
        assert len(queue.execute("SELECT 1 FROM leasequeue.worker")) == 1
        assert process.terminate() == 0
    assert queue.execute("SELECT 1 FROM leasequeue.worker") == []


def test_audit_lines_follow_an_item_through_its_life(queue: Queue) -> None:
    (item,) = queue.add("", source_hash="hash-1", idempotency_key="key-1")
    with worker(queue.dsn, "work", "act") as process:
        (leased,) = process.wait_event("item_leased")
        (resolved,) = process.wait_event("item_resolved")
    row = queue.row(item)
    for line in (leased, resolved):
        assert line["item_id"] == str(item)
        assert line["trace_id"] == str(row["trace_id"])
        assert (line["source_hash"], line["idempotency_key"], line["attempt"]) == ("hash-1", "key-1", 1)
        assert line["worker_id"] == row["leased_by"]
    assert "resolved_at" in resolved


def test_a_missing_table_is_waited_for_and_a_handler_that_cannot_be_loaded_is_not(dsn: str) -> None:
    with worker(dsn, "work", "act") as process:
        (line,) = process.wait_event("claim_loop_trouble")
        assert "does not exist" in line["error"]
        queue = Queue(dsn)
        (item,) = queue.add("")
        queue.wait_state(item, "RESOLVED")
        assert process.terminate() == 0
        queue.close()
    for isolation in ("thread", "process"):
        with worker(dsn, "work", "no_such_handler", isolation=isolation) as process:
            assert process.wait() == 2
            assert "no_such_handler" in "".join(process.stray)


def test_no_password_in_logs_or_process_list(pg: Any, db: str) -> None:
    password = "p@s:w/o%r#d ?&='\\\" x"
    pg.execute(sql.SQL("CREATE ROLE rotated SUPERUSER LOGIN PASSWORD {}").format(password))
    try:
        dsn = pg.dsn(db, user="rotated", password=password)
        queue = Queue(pg.dsn(db))
        (item,) = queue.add("")
        with worker(dsn, "work", "act") as process:
            queue.wait_state(item, "RESOLVED")
            with open(f"/proc/{process.pid}/cmdline") as listed:
                assert "p@s" not in listed.read()
            process.terminate()
            assert "p@s" not in json.dumps(process.events) + "".join(process.stray)
        with worker(pg.dsn(db, user="rotated", password="wr0ng-secret"), "work", "act") as process:
            (line,) = process.wait_event("claim_loop_trouble")
            assert "password authentication failed" in line["error"]
            process.terminate()
            assert "wr0ng-secret" not in json.dumps(process.events) + "".join(process.stray)
        queue.close()
    finally:
        pg.execute(sql.SQL("DROP ROLE rotated"))
