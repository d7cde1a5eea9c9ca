"""Metrics of one worker process, counted a batch at a time.

Durations of a batch are sorted into plain lists of bucket counts; prometheus-client renders them at a scrape. So an item costs
one `bisect`, not a locked `observe` with label lookups.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from leasequeue.process.faults import Fault

# Claims: milliseconds to the 10 s statement timeout. Handlers: microseconds to hours. Waits: milliseconds to a day.
CLAIM_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
HANDLER_BUCKETS = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
WAIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
OUTCOMES = ("resolved", "retried", "failed", "repair", "released", "noop", "lost", "refused")


class Durations:
    """A histogram whose counts are plain integers. Written by one thread, read by the scrape."""

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.bounds = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.sum = 0.0

    def observe(self, values: Iterable[float]) -> None:
        """Count a batch of durations, seconds."""
        bounds, counts, values = self.bounds, self.counts, list(values)
        if not values:
            return
        self.sum += sum(values)
        least = bisect_left(bounds, min(values))
        if bisect_left(bounds, max(values)) == least:  # as mostly: one bucket has them all
            counts[least] += len(values)
            return
        for value in values:
            counts[bisect_left(bounds, value)] += 1

    def family(self, name: str, text: str, labels: dict[str, str]) -> HistogramMetricFamily:
        """The histogram as prometheus-client renders it."""
        family = HistogramMetricFamily(name, text, labels=list(labels))
        total, buckets = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(float(bound)), float(total)))
        family.add_metric(list(labels.values()), buckets, self.sum)
        return family


class WorkerMetrics:
    """Counters and gauges of this process, exported with the labels queue_namespace and queue.

    Args:
        namespace: namespace of the LeaseQueue; empty by hand.
        queue: its name, or schema.table by hand.
    """

    def __init__(self, namespace: str, queue: str) -> None:
        self._labels = {"queue_namespace": namespace, "queue": queue}
        self.claim, self.wait, self.handler = Durations(CLAIM_BUCKETS), Durations(WAIT_BUCKETS), Durations(HANDLER_BUCKETS)
        self.finished: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.renewals: Counter[str] = Counter(dict.fromkeys(("renewed", "busy", "lost", "unanswered"), 0))
        # All kinds from the start: a counter that first appears at its first error has no rate.
        self.faults: Counter[str] = Counter(dict.fromkeys((fault.value for fault in Fault), 0))
        self.claimed = 0
        self.lost = 0
        self.busy_s = 0.0
        self.abandoned = 0
        self.promoted = 0
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Export `read()` at each scrape."""
        self._gauges[name] = (text, read)

    def describe(self) -> Iterator[Metric]:
        """Nothing ahead of time: names depend on what was registered."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All families, for a scrape."""
        labels = self._labels
        yield self.claim.family("leasequeue_claim_duration_seconds", "Time of one claim statement.", labels)
        yield self.wait.family("leasequeue_wait_duration_seconds", "From due (created_at or run_at) to leased.", labels)
        yield self.handler.family("leasequeue_handler_duration_seconds", "Time in the handler.", labels)
        yield self._counter("leasequeue_claimed", "Items claimed.", self.claimed)
        yield self._counter("leasequeue_lost", "Leases this worker lost while it held them.", self.lost)
        yield self._counter("leasequeue_busy_seconds", "Time spent in handlers.", self.busy_s)
        yield self._counter("leasequeue_promoted", "Due SCHEDULED items made PENDING by this worker.", self.promoted)
        yield self._counter("leasequeue_abandoned_handlers", "Handlers left behind past maxRuntimeSeconds.", self.abandoned)
        yield self._by("leasequeue_finished", "Verdicts taken by the database.", "outcome", self.finished)
        yield self._by("leasequeue_renewals", "Renewals by outcome.", "outcome", self.renewals)
        yield self._by("leasequeue_database_errors", "Database errors by kind.", "kind", self.faults)
        for name, (text, read) in self._gauges.items():
            family = GaugeMetricFamily(name, text, labels=list(labels))
            family.add_metric(list(labels.values()), read())
            yield family

    def _counter(self, name: str, text: str, value: float) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _by(self, name: str, text: str, label: str, counts: Counter[str]) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=[*self._labels, label])
        for key, value in list(counts.items()):
            family.add_metric([*self._labels.values(), key], value)
        return family
