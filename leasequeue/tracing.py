"""Traces from enqueue to completion, over OpenTelemetry; off unless the standard `OTEL_*` variables ask for it.

An item's `trace_id` is the trace's id: 128 bits each. What one column cannot carry is the id of the span that enqueued the item, so
that is made from the trace's id and the item's: whoever sees the item later knows its parent without having been told.

Nothing here imports OpenTelemetry before tracing is asked for. Enqueueing takes part where the program around it has an active
span; worker and reclaimer export their own spans (`setup`).
Source: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanContext

SCOPE = "leasequeue"
EXPORTERS = ("otlp", "console", "none")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class TracingUnavailable(Exception):
    """Tracing was asked for and cannot be had; says why and the way out."""


def wanted(environment: Mapping[str, str] = os.environ) -> str:
    """The exporter that the environment asks for; empty where tracing is off.

    `OTEL_TRACES_EXPORTER` names it; an OTLP endpoint alone means otlp. `OTEL_SDK_DISABLED=true` wins over both.
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    named = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if named:
        return "" if named == "none" else named
    return "otlp" if any(environment.get(name) for name in _ENDPOINTS) else ""


def setup(service: str, exporter: str) -> TracerProvider:
    """Start exporting this process's spans; everything else is taken from the environment, as the SDK documents it.

    Args:
        service: value of service.name where neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES gives one.
        exporter: otlp (HTTP with protobuf) or console.

    Raises:
        TracingUnavailable: the packages are not installed, or the exporter or protocol is not known here.
    """
    if exporter not in EXPORTERS:
        raise TracingUnavailable(f"OTEL_TRACES_EXPORTER={exporter!r} is not one of {', '.join(EXPORTERS)}")
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    except ImportError:
        raise TracingUnavailable("OpenTelemetry is not installed: pip install 'leasequeue[tracing]'") from None
    resource = Resource.create({"service.version": version("leasequeue")})
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):  # the environment names none
        resource = resource.merge(Resource({"service.name": service}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter() if exporter == "console" else _otlp()))
    return provider


def _otlp() -> Any:
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in (None, "", "http/protobuf"):
        raise TracingUnavailable(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r} is not spoken here: use http/protobuf")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise TracingUnavailable("the OTLP exporter is not installed: pip install 'leasequeue[tracing]'") from None
    return OTLPSpanExporter()


# --- identities ----------------------------------------------------------------------------------------------------------


def parent_id(trace: UUID, item_id: Any) -> int:
    """Id of the span that enqueued an item: the same for everybody, never 0."""
    digest = hashlib.blake2b(trace.bytes + str(item_id).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


def parent_of(trace: UUID | None, item_id: Any, provider: TracerProvider) -> Context | None:
    """Context of an item's enqueue span, for spans about the item; None where it has no trace.

    The head of a trace decides whether it is sampled, and that decision is not in the row: the sampler is asked again. By trace id,
    as the usual ones decide, it says the same everywhere.
    """
    if trace is None or trace.int == 0:
        return None
    from opentelemetry.sdk.trace.sampling import Decision
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    sampled = provider.sampler.should_sample(None, trace.int, "enqueue").decision is not Decision.DROP
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    context = SpanContext(trace.int, parent_id(trace, item_id), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(context))


def carrier() -> dict[str, str]:
    """W3C headers (`traceparent`, …) of the active span; empty where there is none."""
    if active() is None:
        return {}
    from opentelemetry.propagate import inject

    headers: dict[str, str] = {}
    inject(headers)
    return headers


def active() -> SpanContext | None:
    """The active span's context, where the program around us uses OpenTelemetry and has one."""
    if "opentelemetry.trace" not in sys.modules:  # a look-up: tracing costs nothing where nobody traces
        return None
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    return context if context.is_valid else None


# --- enqueueing ----------------------------------------------------------------------------------------------------------


def stamped(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """`rows` with the active trace as the trace_id of those that give none; the same object where no span is active."""
    current = active()
    if current is None:
        return rows
    trace = UUID(int=current.trace_id)
    return [row if row.get("trace_id") is not None else {**row, "trace_id": trace} for row in rows]


def each_stamped(rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """`stamped` for rows that are read one at a time."""
    current = active()
    if current is None:
        return rows
    trace = UUID(int=current.trace_id)
    return (row if row.get("trace_id") is not None else {**row, "trace_id": trace} for row in rows)


def enqueued(table: str, created: Sequence[tuple[Mapping[str, Any], Any]], began_ns: int) -> None:
    """One span `enqueue` for each item of the active trace that was created, with the id that the item's later spans name as parent.

    Args:
        table: schema.table.
        created: row and id of each item.
        began_ns: wall clock, nanoseconds since 1970 UTC; the spans end now.
    """
    current = active()
    if current is None or not current.trace_flags.sampled:
        return
    from opentelemetry import trace

    # An SDK span's id cannot be chosen through the API, so the finished span is handed to the program's own processors.
    provider = trace.get_tracer_provider()
    hand_over = getattr(getattr(provider, "_active_span_processor", None), "on_end", None)
    if hand_over is None:
        return
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    own_trace, ended_ns = UUID(int=current.trace_id), time.time_ns()
    for row, item_id in created:
        if str(row.get("trace_id")) != str(own_trace):
            continue
        own = trace.SpanContext(
            current.trace_id, parent_id(own_trace, item_id), is_remote=False, trace_flags=current.trace_flags
        )
        hand_over(
            ReadableSpan(
                "enqueue", context=own, parent=current, resource=getattr(provider, "resource", None),
                attributes={"messaging.system": SCOPE, "messaging.destination.name": table, "leasequeue.item_id": str(item_id)},
                kind=trace.SpanKind.PRODUCER, start_time=began_ns, end_time=ended_ns,
                instrumentation_scope=InstrumentationScope(SCOPE),
            )
        )  # fmt: skip
