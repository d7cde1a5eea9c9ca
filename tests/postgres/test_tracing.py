"""Spans from enqueue to completion: one trace an item, in memory and at a receiver of OTLP over HTTP."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from uuid import UUID

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import leasequeue
from leasequeue import tracing
from leasequeue.table import Table
from tests.support.processes import reclaimer, worker
from tests.support.queues import Queue

pytestmark = pytest.mark.postgres

OK, ERROR = 0, 2


class Receiver:
    """A collector: OTLP over HTTP on a loopback port."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []  # with the service that sent each
        self.paths: set[str] = set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                receiver.take(self.path, ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path: str, request: ExportTraceServiceRequest) -> None:
        self.paths.add(path)
        for group in request.resource_spans:
            (service,) = [a.value.string_value for a in group.resource.attributes if a.key == "service.name"]
            self.spans += [(service, span) for scope in group.scope_spans for span in scope.spans]

    @property
    def environment(self) -> dict[str, str]:
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}", "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def of(self, trace_id: UUID) -> dict[str, list[Span]]:
        found: dict[str, list[Span]] = {}
        for _, span in list(self.spans):
            if span.trace_id == trace_id.bytes:
                found.setdefault(span.name, []).append(span)
        return found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def queue(dsn: str) -> Iterator[Queue]:
    made = Queue(dsn)
    yield made
    made.close()


@pytest.fixture(scope="module")
def exporter() -> Iterator[InMemorySpanExporter]:
    """The program around enqueue: a provider of its own."""
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    before = trace._TRACER_PROVIDER
    trace._TRACER_PROVIDER = provider
    yield made
    trace._TRACER_PROVIDER = before


def attributes(span: Span) -> dict[str, Any]:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


def enqueue(dsn: str, *rows: dict[str, Any]) -> list[Any]:
    with leasequeue.connect(dsn) as conn:
        return [e.id for e in leasequeue.enqueue(conn, Table.load(conn, "work"), rows)]


def test_one_trace_from_the_callers_span_to_the_completion(
    queue: Queue, dsn: str, receiver: Receiver, exporter: InMemorySpanExporter
) -> None:
    exporter.clear()
    with trace.get_tracer("shop").start_as_current_span("checkout") as checkout:
        own = UUID(int=1 << 100)
        one, two, other = enqueue(dsn, {"n": 1, "what": "ok"}, {"n": 2, "what": "ok"}, {"n": 3, "what": "ok", "trace_id": own})
    trace_id = UUID(int=checkout.get_span_context().trace_id)
    assert [queue.row(i)["trace_id"] for i in (one, two, other)] == [trace_id, trace_id, own]
    made = {
        s.attributes["leasequeue.item_id"]: s for s in exporter.get_finished_spans() if s.name == "enqueue" and s.attributes
    }
    assert set(made) == {str(one), str(two)}
    for span in made.values():
        assert span.parent is not None
        assert span.parent.span_id == checkout.get_span_context().span_id
        assert span.end_time is not None
        assert span.start_time is not None
        assert span.end_time - span.start_time > 0

    with worker(dsn, "work", "echo", audit=False, **receiver.environment) as process:
        queue.wait_states(RESOLVED=3)
        process.terminate()
    spans = receiver.of(trace_id)
    assert {name: len(found) for name, found in spans.items()} == {"claim": 2, "handle": 2, "resolve": 2}
    for name, found in spans.items():
        for span in found:
            enqueued = made[attributes(span)["leasequeue.item_id"]].context
            assert enqueued is not None
            assert span.parent_span_id == enqueued.span_id.to_bytes(8, "big"), name
            assert attributes(span)["leasequeue.attempt"] == 1
            assert span.status.code == OK
            assert span.start_time_unix_nano <= span.end_time_unix_nano
    assert {attributes(s)["leasequeue.outcome"] for s in spans["resolve"]} == {"RESOLVED"}
    assert set(receiver.of(own)) == {"claim", "handle", "resolve"}
    assert {service for service, _ in receiver.spans} == {"leasequeue-worker"}
    assert receiver.paths == {"/v1/traces"}


def test_errors_are_told_without_their_text_and_retries_as_their_outcome(queue: Queue, dsn: str, receiver: Receiver) -> None:
    trace_id = UUID(int=7 << 90)
    queue.add("", trace_id=trace_id)
    settings = {**receiver.environment, "TOLD": "secret payload", "max_attempts": 2}
    with worker(dsn, "work", "tells_the_environment", **settings) as process:
        queue.wait_states(SCHEDULED=1)
        queue.execute("UPDATE {t} SET run_at = now()")
        queue.wait_states(FAILED=1)
        process.terminate()
    spans = receiver.of(trace_id)
    assert {name: len(found) for name, found in spans.items()} == {"claim": 2, "handle": 2, "resolve": 2}
    assert {(s.status.code, s.status.message) for s in spans["handle"]} == {(ERROR, "RuntimeError")}
    assert [(attributes(s)["leasequeue.outcome"], s.status.code) for s in spans["resolve"]] == [
        ("RETRIED", ERROR),
        ("FAILED", ERROR),
    ]
    assert "secret payload" not in str(receiver.spans)


@pytest.mark.parametrize("handler", ["traced", "traced_async"])
def test_spans_of_the_handler_are_children_of_handle(queue: Queue, dsn: str, receiver: Receiver, handler: str) -> None:
    trace_id = UUID(int=9 << 90)
    queue.add("", trace_id=trace_id)
    with worker(dsn, "work", handler, **receiver.environment) as process:
        queue.wait_states(RESOLVED=1)
        process.terminate()
    (row,) = queue.rows()
    (handle,) = receiver.of(trace_id)["handle"]
    assert row["result"] == {"trace": handle.trace_id.hex(), "span": handle.span_id.hex()}


def test_resolve_begins_where_handle_ends(queue: Queue, dsn: str, receiver: Receiver) -> None:
    trace_id = UUID(int=15 << 90)
    queue.add("sleep:1", trace_id=trace_id)
    with worker(dsn, "work", "act", **receiver.environment) as process:
        queue.wait_states(RESOLVED=1)
        process.terminate()
    spans = receiver.of(trace_id)
    (handle,), (resolve,) = spans["handle"], spans["resolve"]
    assert abs(resolve.start_time_unix_nano - handle.end_time_unix_nano) < 5e8, "half of what the handler took"


def test_commands_get_the_trace_in_their_environment(queue: Queue, dsn: str, receiver: Receiver) -> None:
    trace_id = UUID(int=11 << 90)
    queue.add("", trace_id=trace_id)
    command = [sys.executable, "-c", "import json, os; print(json.dumps(os.environ['TRACEPARENT']))"]
    with worker(dsn, "work", exec=command, **receiver.environment) as process:
        queue.wait_states(RESOLVED=1)
        process.terminate()
    (row,) = queue.rows()
    (handle,) = receiver.of(trace_id)["handle"]
    assert row["result"] == f"00-{trace_id.hex}-{handle.span_id.hex()}-01"


def test_a_lease_taken_back_is_an_event_of_its_trace(queue: Queue, dsn: str, receiver: Receiver) -> None:
    trace_id = UUID(int=13 << 90)
    queue.add("", trace_id=trace_id)
    with leasequeue.connect(dsn) as conn:
        table = Table.load(conn, "work")
        leasequeue.claim(conn, table, worker_id="gone", n=1, config=leasequeue.LeaseConfig())
    queue.expire()
    with reclaimer(dsn, "work", lock_timeout_ms=1_000, start_jitter_s=0, **receiver.environment) as process:
        process.wait_event("item_lease_reclaimed")
        process.wait()
    (span,) = receiver.of(trace_id)["reclaim"]
    (event,) = span.events
    assert (event.name, span.status.code) == ("lease_reclaimed", ERROR)
    assert {a.key: a.value.string_value for a in event.attributes if a.value.string_value} == {
        "leasequeue.worker_id": "gone", "leasequeue.state": "PENDING",
    }  # fmt: skip


def test_a_collector_that_is_away_keeps_nobody(queue: Queue, dsn: str) -> None:
    queue.add("ok")
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with worker(dsn, "work", "nothing", **away) as process:
        queue.wait_states(RESOLVED=1)
        assert process.terminate() == 0


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "zipkin"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc"),
    ],
)
def test_what_cannot_be_had_is_told_and_the_work_goes_on(
    queue: Queue, dsn: str, environment: dict[str, str], told: str
) -> None:
    queue.add("ok")
    with worker(dsn, "work", "nothing", **environment) as process:
        assert told in process.wait_event("tracing_unavailable")[0]["error"]
        queue.wait_states(RESOLVED=1)
        process.terminate()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""), ({"OTEL_TRACES_EXPORTER": "none"}, ""), ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, "otlp"), ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, ""),
    ],
)  # fmt: skip
def test_off_unless_it_is_asked_for(environment: dict[str, str], expected: str) -> None:
    assert tracing.wanted(environment) == expected


def test_the_sampler_decides_by_trace_and_everybody_alike() -> None:
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.5)))
    decided = set()
    for n in range(1, 200):
        trace_id = UUID(int=(n << 64) | (n * 0x9E3779B97F4A7C15 % 2**64))
        contexts = [tracing.parent_of(trace_id, "item", provider) for _ in range(2)]
        flags = {trace.get_current_span(context).get_span_context().trace_flags for context in contexts}
        assert len(flags) == 1
        decided |= flags
    assert decided == {0, 1}


IMPORTED = """
import sys
import leasequeue, leasequeue_worker.main, leasequeue_reclaimer.main, leasequeue_worker.tracing
from leasequeue import tracing
assert tracing.stamped(rows := [{"n": 1}]) is rows
assert tracing.carrier() == {}
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_nothing_is_imported_where_tracing_is_off() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
