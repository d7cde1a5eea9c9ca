"""The reclaimer's spans: `reclaim` for each item taken back, with the event, in the item's own trace."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from leasequeue import tracing
from leasequeue.maintain import Reclaimed
from leasequeue.process.logs import get
from leasequeue_reclaimer.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

FLUSH_S = 3.0


def start(settings: Settings) -> ReclaimTracing | None:
    """Tracing as the environment asks for it; None where it does not, or where it cannot be had (a warning says why)."""
    exporter = tracing.wanted()
    if not exporter:
        return None
    try:
        provider = tracing.setup("leasequeue-reclaimer", exporter)
    except tracing.TracingUnavailable as ex:
        get().warning("tracing_unavailable", error=str(ex))
        return None
    return ReclaimTracing(provider, settings.queue or f"{settings.schema}.{settings.table}")


class ReclaimTracing:
    """Makes the spans of one run."""

    def __init__(self, provider: TracerProvider, queue: str) -> None:
        self._provider, self._queue = provider, queue
        self._tracer = provider.get_tracer(tracing.SCOPE)

    def reclaimed(self, page: Reclaimed) -> None:
        """One span an item of the page."""
        from opentelemetry.trace import StatusCode

        for item in page.items:
            parent = tracing.parent_of(item.trace_id, item.id, self._provider)
            about: dict[str, str | int] = {
                "messaging.system": tracing.SCOPE, "messaging.destination.name": self._queue,
                "leasequeue.item_id": str(item.id), "leasequeue.attempt": item.attempt,
            }  # fmt: skip
            fields: dict[str, str | int] = {
                "leasequeue.worker_id": item.leased_by or "", "leasequeue.crash_count": item.crash_count,
                "leasequeue.state": str(item.state),
            }  # fmt: skip
            with self._tracer.start_as_current_span("reclaim", context=parent, attributes=about) as span:
                span.add_event("lease_reclaimed", fields)
                span.set_status(StatusCode.ERROR, "the lease ended without a completion")

    def flush(self) -> None:
        """Send what is left, for a few seconds at most."""
        sender = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        sender.start()
        sender.join(FLUSH_S)
