"""The worker's spans: `claim`, `handle` and `resolve` of each lease, in the item's own trace.

`claim` and `resolve` are made after the fact, where the audit log hears of them; only `handle` is there while the handler runs, so that
spans of the handler's own become its children. Without tracing none of this is imported or called.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from leasequeue import tracing
from leasequeue.item import Item
from leasequeue.process.logs import get
from leasequeue.states import Outcome
from leasequeue.verdict import Resolve
from leasequeue_worker.audit import AuditLog, Writer
from leasequeue_worker.held import Held
from leasequeue_worker.settings import Settings
from leasequeue_worker.slots import Runner

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

FLUSH_S = 3.0
# Audit events that end a lease without completing the item, and what they mean for it.
ENDS = {
    "item_retried": ("RETRIED", True),
    "item_failed": ("FAILED", True),
    "item_repair": ("REPAIR", True),
    "item_released": ("RELEASED", False),
    "item_lost": ("LOST", True),
}


def start(settings: Settings, worker_id: str) -> WorkerTracing | None:
    """Tracing as the environment asks for it; None where it does not, or where it cannot be had (a warning says why)."""
    exporter = tracing.wanted()
    if not exporter:
        return None
    try:
        provider = tracing.setup("leasequeue-worker", exporter)
    except tracing.TracingUnavailable as ex:
        get().warning("tracing_unavailable", error=str(ex))
        return None
    return WorkerTracing(provider, settings.config.lease_s, settings.queue or f"{settings.schema}.{settings.table}", worker_id)


class WorkerTracing:
    """Makes the spans of one worker.

    Args:
        provider: exports them.
        lease_s: lease duration, seconds.
        queue: namespace/name, or schema.table by hand.
        worker_id: identity of this process.
    """

    def __init__(self, provider: TracerProvider, lease_s: float, queue: str, worker_id: str) -> None:
        from opentelemetry.trace import SpanKind, StatusCode

        self._provider, self._lease_s = provider, lease_s
        self._tracer = provider.get_tracer(tracing.SCOPE)
        self._common = {
            "messaging.system": tracing.SCOPE,
            "messaging.destination.name": queue,
            "leasequeue.worker_id": worker_id,
        }
        self._consumer, self._internal, self._error = SpanKind.CONSUMER, SpanKind.INTERNAL, StatusCode.ERROR

    def audit(self, sink: Writer, worker_id: str, queue: str, *, enabled: bool) -> AuditLog:
        """The audit log that makes spans of what it hears."""
        return TracedAudit(self, sink, worker_id, queue, enabled=enabled)

    def runner(self, inner: Runner) -> Runner:
        """`inner` inside spans."""
        return TracedRunner(self, inner)

    def handler(self, call: Any) -> Any:
        """A coroutine function inside spans."""

        async def traced(item: Item, ctx: Any) -> Any:
            with self.handle(item) as span:
                try:
                    verdict = await call(item, ctx)
                except BaseException as ex:
                    self.say(span, ex)
                    raise
                self.say(span, verdict)
                return verdict

        return traced

    def handle(self, item: Item) -> Any:
        """Context manager of the span that is active while a handler runs."""
        parent = tracing.parent_of(item.trace_id, item.id, self._provider)
        # The text of an error may quote the payload: say() tells its class alone.
        return self._tracer.start_as_current_span(
            "handle", context=parent, kind=self._consumer, attributes=self._about(item), record_exception=False,
            set_status_on_exception=False,
        )  # fmt: skip

    def say(self, span: Span, verdict: Any) -> None:
        """What a handler returned or raised."""
        name = type(verdict).__name__
        if isinstance(verdict, BaseException):
            span.set_attribute("error.type", name)
            span.set_status(self._error, name)
        elif hasattr(verdict, "error") and not isinstance(verdict, Resolve):
            span.set_status(self._error, name)

    def claimed(self, batch: Iterable[Held]) -> None:
        """`claim` of each item: from the request to its answer."""
        offset = _offset_ns()
        for held in batch:
            began = held.deadline - self._lease_s
            self._made("claim", held, _at(began, offset), _at(held.claimed_at, offset), {})

    def ended(self, batch: Iterable[Held], outcome: str, *, error: bool) -> None:
        """`resolve` of each item: from its verdict to the database's answer."""
        offset, now = _offset_ns(), time.time_ns()
        for held in batch:
            began = held.started + held.took_s if held.started else held.claimed_at
            span = self._made("resolve", held, _at(began, offset), None, {"leasequeue.outcome": outcome})
            if error:
                span.set_status(self._error, outcome)
            span.end(now)

    def _made(self, name: str, held: Held, began_ns: int, ended_ns: int | None, more: dict[str, str]) -> Span:
        item = held.item
        parent = tracing.parent_of(item.trace_id, item.id, self._provider)
        span = self._tracer.start_span(
            name, context=parent, kind=self._internal, attributes={**self._about(item), **more}, start_time=began_ns
        )
        if ended_ns is not None:
            span.end(ended_ns)
        return span

    def _about(self, item: Item) -> dict[str, Any]:
        return {**self._common, "leasequeue.item_id": str(item.id), "leasequeue.attempt": item.attempt}

    def flush(self) -> None:
        """Send what is left, for a few seconds at most: a collector that is away keeps nobody from leaving."""
        sender = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        sender.start()
        sender.join(FLUSH_S)


class TracedRunner:
    """Runs items of a slot inside spans."""

    def __init__(self, spans: WorkerTracing, inner: Runner) -> None:
        self._spans, self._inner = spans, inner

    def __call__(self, item: Item, ctx: Any) -> Any:
        """See `Runner`."""
        with self._spans.handle(item) as span:
            try:
                verdict = self._inner(item, ctx)
            except BaseException as ex:
                self._spans.say(span, ex)
                raise
            self._spans.say(span, verdict)
            return verdict

    def stop(self, held: Held, *, hard: bool) -> bool:
        """See `Runner`."""
        return self._inner.stop(held, hard=hard)

    def close(self) -> None:
        """See `Runner`."""
        self._inner.close()


class TracedAudit(AuditLog):
    """An audit log that makes spans of what it hears."""

    def __init__(self, spans: WorkerTracing, sink: Writer, worker_id: str, queue: str, *, enabled: bool) -> None:
        super().__init__(sink, worker_id, queue, enabled=enabled)
        self._spans = spans

    def leased(self, batch: Iterable[Held]) -> None:
        """See `AuditLog`."""
        held = list(batch)
        self._spans.claimed(held)
        super().leased(held)

    def event(self, name: str, batch: Iterable[Held], **fields: Any) -> None:
        """See `AuditLog`."""
        held = list(batch)
        if name in ENDS:
            outcome, error = ENDS[name]
            self._spans.ended(held, outcome, error=error)
        super().event(name, held, **fields)

    def resolved(self, batch: Sequence[Held]) -> None:
        """See `AuditLog`."""
        self._spans.ended(batch, str(Outcome.RESOLVED), error=False)
        super().resolved(batch)

    def unchanged(self, held: Held, outcome: Outcome) -> None:
        """See `AuditLog`."""
        self._spans.ended([held], str(outcome), error=outcome is Outcome.LOST)
        super().unchanged(held, outcome)


def _offset_ns() -> int:
    return time.time_ns() - time.monotonic_ns()


def _at(monotonic_s: float, offset_ns: int) -> int:
    return int(monotonic_s * 1e9) + offset_ns
