"""Waker, board, audit lines, metrics, probes, pacing, database errors."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from psycopg import errors

from leasequeue import BadInput, Item, Outcome, Resolve, TableMissing
from leasequeue.dsn import DsnSource, redact
from leasequeue.process.faults import Fault, classify, describe
from leasequeue.process.pacing import Backoff, Eagerness, poll_s
from leasequeue_worker.audit import AuditLog
from leasequeue_worker.board import Board
from leasequeue_worker.heartbeat import new_worker_id
from leasequeue_worker.held import Held
from leasequeue_worker.metrics import WorkerMetrics
from leasequeue_worker.probes import Beats, Probes, Server
from leasequeue_worker.wakeup import Waker

NAMES = ("id", "lease_token", "leased_by", "attempt", "trace_id", "source_hash", "idempotency_key", "amount")
INDEX = {name: i for i, name in enumerate(NAMES)}


def held(n: int = 1, **columns: Any) -> Held:
    row = {"id": n, "lease_token": uuid.uuid4(), "leased_by": "w", "attempt": 1, "trace_id": None, "source_hash": "h",
           "idempotency_key": f"k{n}", "amount": Decimal("12.50"), **columns}  # fmt: skip
    item = Item({name: i for i, name in enumerate(row)}, tuple(row.values()))
    return Held(item, item.lease, 0.0, 0.0)


class Lines:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, lines: bytes) -> None:
        self.text += lines.decode()

    def parsed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


# --- waking ---------------------------------------------------------------------------------------------------------------


def test_a_wake_before_the_sleep_ends_it_at_once() -> None:
    waker = Waker()
    waker.wake()
    before = time.monotonic()
    waker.sleep(30.0, None)
    assert time.monotonic() - before < 20


def test_no_wake_is_lost_however_the_threads_interleave() -> None:
    """A consumer sleeps up to 20 s a turn; a lost wake-up would show as a turn that times out."""
    waker, made, seen = Waker(), [0], 0

    def produce() -> None:
        for _ in range(20_000):
            made[0] += 1
            waker.wake()

    threads = [threading.Thread(target=produce) for _ in range(2)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    while any(t.is_alive() for t in threads) or seen < made[0]:
        assert time.monotonic() < until
        before = time.monotonic()
        waker.sleep(20.0 if seen < made[0] or any(t.is_alive() for t in threads) else 0.0, None)
        assert time.monotonic() - before < 15, "a wake was lost"
        seen = made[0]
        if not any(t.is_alive() for t in threads):
            break
    waker.wake()
    before = time.monotonic()
    waker.sleep(20.0, None)
    assert time.monotonic() - before < 15


# --- board ----------------------------------------------------------------------------------------------------------------


def test_items_leave_the_board_in_order_and_the_loop_is_woken_at_low_water() -> None:
    waker = Waker()
    board = Board(2, waker)
    board.low_water = 1
    batch = [held(n) for n in range(4)]
    board.put(batch)
    assert [board.take(), board.take()] == batch[:2]
    assert not waker._pending
    assert board.take() is batch[2]
    assert waker._pending
    assert board.take_back() == [batch[3]]
    assert board.take() is None
    assert len(board.registry) == 4  # what was taken back is still leased until the database says otherwise


def test_a_waiting_slot_sees_a_batch_and_the_end() -> None:
    board, got = Board(1, Waker()), []

    def slot() -> None:
        while not board.closed:
            item = board.take()
            got.append(item) if item else board.wait(30.0)

    thread = threading.Thread(target=slot)
    thread.start()
    one = held()
    board.put([one])
    board.close()
    thread.join(20)
    assert not thread.is_alive()
    assert got in ([one], [])
    assert got or board.take() is one


# --- audit ----------------------------------------------------------------------------------------------------------------


def test_an_audit_line_has_the_identity_and_never_the_payload() -> None:
    lines = Lines()
    audit = AuditLog(lines, 'w"1', "shop/reviews")
    one = held(9007199254740993, trace_id=uuid.UUID(int=5), source_hash='h"ü\n')
    one.identity = audit.identity(one.item)
    audit.leased([one])
    (line,) = lines.parsed()
    assert line["event"] == "item_leased"
    assert line["item_id"] == "9007199254740993"
    assert line["trace_id"] == str(uuid.UUID(int=5))
    assert line["source_hash"] == 'h"ü\n'
    assert line["idempotency_key"] == "k9007199254740993"
    assert (line["attempt"], line["worker_id"], line["queue"]) == (1, 'w"1', "shop/reviews")
    assert "12.50" not in lines.text


def test_resolved_lines_carry_the_database_clock_and_the_decision() -> None:
    lines = Lines()
    audit = AuditLog(lines, "w", "q")
    audit.database_clock(datetime(2031, 5, 5, 12, 0, tzinfo=UTC))
    had, set_by_handler = held(1, match_decision="PARTIAL"), held(2, match_decision="PARTIAL")
    for one in (had, set_by_handler):
        one.identity, one.verdict = audit.identity(one.item), Resolve()
    set_by_handler.verdict = Resolve(None, {"match_decision": "MATCHED"})
    audit.resolved([had, set_by_handler])
    first, second = lines.parsed()
    assert (first["match_decision"], second["match_decision"]) == ("PARTIAL", "MATCHED")
    assert first["resolved_at"].startswith("2031-05-05T12:00")


def test_a_write_that_changed_nothing_says_so() -> None:
    lines = Lines()
    audit = AuditLog(lines, "w", "q")
    one = held()
    one.identity = audit.identity(one.item)
    audit.unchanged(one, Outcome.LOST)
    assert lines.parsed()[0]["event"] == "item_completion_noop"
    assert lines.parsed()[0]["outcome"] == "LOST"


def test_without_audit_nothing_is_written() -> None:
    lines = Lines()
    audit = AuditLog(lines, "w", "q", enabled=False)
    one = held()
    one.identity = audit.identity(one.item)
    audit.leased([one])
    audit.resolved([one])
    assert lines.text == ""


# --- metrics and probes ---------------------------------------------------------------------------------------------------


def test_metrics_have_prefix_labels_zeros_and_correct_buckets() -> None:
    metrics = WorkerMetrics("shop", "reviews")
    metrics.handler.observe([0.00005, 0.3, 99_999.0])
    metrics.gauge("leasequeue_worker_slots", "Slots.", lambda: 4)
    families = {f.name: f for f in text_string_to_metric_families(generate_latest(metrics.registry).decode())}
    assert all(name.startswith("leasequeue_") for name in families)
    for family in families.values():
        for sample in family.samples:
            assert sample.labels["queue_namespace"] == "shop"
            assert sample.labels["queue"] == "reviews"
    buckets = {s.labels["le"]: s.value for s in families["leasequeue_handler_duration_seconds"].samples if "le" in s.labels}
    assert (buckets["0.0001"], buckets["0.25"], buckets["0.5"], buckets["3600.0"], buckets["+Inf"]) == (1, 1, 2, 2, 3)
    outcomes = {s.labels["outcome"]: s.value for s in families["leasequeue_finished"].samples}
    assert outcomes == dict.fromkeys(("resolved", "retried", "failed", "repair", "released", "noop", "lost", "refused"), 0.0)
    assert families["leasequeue_worker_slots"].samples[0].value == 4


def test_health_is_the_progress_of_our_threads_and_readiness_a_reason() -> None:
    reason = [""]
    beats = Beats(stalled_s=5.0)
    beats.mark("claims")
    probes = Probes(0, beats, lambda: reason[0], WorkerMetrics("", "q").registry)
    assert probes.answer("/healthz")[0] == 200
    assert probes.answer("/readyz")[0] == 200
    reason[0] = "cordoned and drained"
    assert probes.answer("/readyz")[0] == 503
    beats._last["claims"] -= 6
    status, _, body = probes.answer("/healthz")
    assert (status, body) == (500, b"stalled: claims\n")
    beats.forget("claims")
    assert probes.answer("/healthz")[0] == 200
    assert probes.answer("/metrics")[0] == 200
    assert probes.answer("/else")[0] == 404


@pytest.mark.parametrize(("error", "told"), [(BrokenPipeError, False), (ConnectionResetError, False), (ValueError, True)])
def test_a_client_that_went_away_is_no_traceback(
    error: type[Exception], told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(("127.0.0.1", 0), BaseHTTPRequestHandler)
    try:
        raise error("gone")
    except error:
        server.handle_error(None, ("127.0.0.1", 1))
    server.server_close()
    assert bool(capsys.readouterr().err) == told


# --- waits and errors -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 80))
def test_backoff_is_bounded_never_spins_and_resets(seed: int, failures: int) -> None:
    backoff = Backoff(0.2, 10.0, random.Random(seed))
    waits = [backoff.next_s() for _ in range(failures)]
    assert all(0.02 <= wait <= 10.0 for wait in waits)
    backoff.reset()
    assert backoff.next_s() <= 0.2


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_polls_are_jittered_within_bounds(seed: int) -> None:
    assert 0.25 <= poll_s(0.5, random.Random(seed)) <= 0.75


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 10_000))
def test_who_found_nothing_lets_others_go_first(seed: int, replicas: int) -> None:
    eagerness = Eagerness(replicas, 0.5, random.Random(seed))
    assert eagerness.wait_s() == 0.0, "nobody was faster yet"
    eagerness.claimed(0)
    assert 0 <= eagerness.wait_s() <= min(0.25, 0.002 * (replicas - 1)) + 1e-9
    eagerness.claimed(3)
    assert eagerness.wait_s() == 0.0


def test_only_claims_after_a_notification_count() -> None:
    eagerness = Eagerness(1_000, 0.5, random.Random(1))
    eagerness.claimed(0)  # a poll
    assert eagerness.wait_s() == 0.0
    eagerness.claimed(1)
    eagerness.claimed(0)  # the page after it
    assert eagerness.wait_s() == 0.0


def raised(sqlstate: str) -> psycopg.Error:
    """An error as a trigger raises it, with a SQLSTATE that has no class of its own."""
    error = psycopg.DatabaseError()
    error.sqlstate = sqlstate
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (errors.ReadOnlySqlTransaction(), Fault.CONNECTION),
        (errors.AdminShutdown(), Fault.CONNECTION),
        (errors.CannotConnectNow(), Fault.CONNECTION),
        (errors.TooManyConnections(), Fault.CONNECTION),
        (errors.InvalidPassword(), Fault.CONNECTION),
        (errors.FeatureNotSupported(), Fault.CONNECTION),
        (psycopg.OperationalError("server closed the connection"), Fault.CONNECTION),
        (psycopg.InterfaceError("closed"), Fault.CONNECTION),
        (errors.LockNotAvailable(), Fault.BUSY),
        (errors.DeadlockDetected(), Fault.BUSY),
        (errors.SerializationFailure(), Fault.BUSY),
        (errors.QueryCanceled(), Fault.BUSY),
        (errors.UndefinedTable(), Fault.SCHEMA),
        (errors.InsufficientPrivilege(), Fault.SCHEMA),
        (TableMissing("t", "gone"), Fault.SCHEMA),
        (errors.UntranslatableCharacter(), Fault.DATA),
        (errors.UniqueViolation(), Fault.DATA),
        (errors.RaiseException(), Fault.DATA),
        (BadInput("result", "x", "bad"), Fault.DATA),
        (errors.ProgramLimitExceeded(), Fault.DATA),
        (errors.GeneratedAlways(), Fault.DATA),
        (errors.TriggeredDataChangeViolation(), Fault.DATA),
        (raised("45000"), Fault.DATA),
        (raised("UE001"), Fault.DATA),
        (raised("XX001"), Fault.OTHER),
        (raised("72000"), Fault.OTHER),
        (errors.InternalError_(), Fault.OTHER),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_database_error_has_one_reaction(error: Exception, fault: Fault) -> None:
    assert classify(error) is fault


def test_hiding_passwords_takes_no_longer_for_a_text_full_of_urls() -> None:
    urls = "http://host:80/ " * 200_000  # a search from each port to the end of the line took minutes
    assert redact(urls) == urls
    assert redact(f"{urls}postgresql://u:secret@h") == "http://host:***@h"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:secret@h/db", "postgresql://u:a secret password=secret@h", "password='secret \\' secret' host=h",
        "postgresql://h/db?password=secret&x=1", "http://h:1/password=secret@secret", "PASSWORD = secret", "://u:@secret@h",
    ],
)  # fmt: skip
def test_no_form_of_a_password_is_shown(text: str) -> None:
    assert "secret" not in redact(text)


def test_a_dsn_file_that_is_no_text_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "uri").write_bytes(b"postgresql://u:\xff\xfe@h/x")
    with pytest.raises(BadInput, match="is not UTF-8"):
        DsnSource(path=tmp_path).read()


def test_descriptions_show_neither_values_nor_passwords() -> None:
    assert "secret" not in describe(psycopg.OperationalError("connection to postgresql://u:secret@h failed"))
    assert "1234" not in describe(errors.UniqueViolation("key (iban)=(1234) exists"))


def test_a_worker_id_is_new_for_each_process_of_a_pod() -> None:
    ids = {new_worker_id("reviews-abc") for _ in range(100)}
    assert len(ids) == 100
    assert all(worker_id.startswith("reviews-abc-") for worker_id in ids)
