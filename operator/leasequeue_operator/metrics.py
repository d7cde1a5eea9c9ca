"""Metrics: gauges from the present state of each queue at the moment of the scrape, counters of the operator itself.

A queue that is gone is not in the state, so its series vanish with it. A value that is not known is not exported (a frozen
number would look like a fact); `leasequeue_sample_timestamp_seconds` tells the age of what is. Facts of the database come from
here alone, never from workers, where each replica would export them once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector as CollectorBase

from leasequeue.sample import Stats
from leasequeue.states import State
from leasequeue_operator.cache import Key
from leasequeue_operator.memory import Memory
from leasequeue_operator.plan import reclaim
from leasequeue_operator.plan.observation import Observation
from leasequeue_operator.settings import own_version

log = structlog.get_logger()

QUEUE_LABELS = ("queue_namespace", "queue")
RECONCILE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Queueing(Protocol):
    """What the metrics ask of the work queue."""

    def __len__(self) -> int:
        """Keys that wait."""

    def ready(self) -> int:
        """Keys that are due."""

    def lag_s(self) -> float:
        """How long the longest has been due, seconds."""


class Tally:
    """Counters since the start of the process."""

    def __init__(self) -> None:
        self.reconciliations: Counter[str] = Counter(dict.fromkeys(("done", "failed", "crashed"), 0))
        self.decisions: Counter[tuple[Key, str, str]] = Counter()
        self.events: Counter[str] = Counter()
        self.resyncs: Counter[str] = Counter(dict.fromkeys(("done", "failed"), 0))
        self.wakes = 0
        self._buckets = [0] * (len(RECONCILE_BUCKETS) + 1)
        self._seconds = 0.0

    def decided(self, key: Key, before: int, after: int, limiter: str) -> None:
        """Count a change of the number of workers. The name of a schedule is no label value."""
        if before != after:
            self.decisions[key, "up" if after > before else "down", limiter.partition(":")[0]] += 1

    def forget(self, key: Key) -> None:
        """Drop a queue's counters."""
        for counted in [c for c in self.decisions if c[0] == key]:
            del self.decisions[counted]

    def reconciled(self, outcome: str, seconds: float) -> None:
        """Count a reconciliation."""
        self.reconciliations[outcome] += 1
        self._seconds += seconds
        self._buckets[sum(seconds > bound for bound in RECONCILE_BUCKETS)] += 1

    def duration(self) -> HistogramMetricFamily:
        """Durations of reconciliations."""
        family = HistogramMetricFamily("leasequeue_reconcile_duration_seconds", "Duration of a reconciliation.")
        total, buckets = 0, []
        for bound, count in zip((*map(float, RECONCILE_BUCKETS), float("inf")), self._buckets, strict=True):
            total += count
            buckets.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        family.add_metric([], buckets, self._seconds)
        return family


class Collector:
    """Renders the state of all queues.

    Args:
        memories: the queues, as the reconciler remembers them.
        tally: counters.
        work: the work queue.
        acting: whether this process serves queues now, rather than standing by or waiting for something.
    """

    def __init__(
        self, memories: Mapping[Key, Memory], tally: Tally, work: Queueing, acting: Callable[[], bool] = lambda: True
    ) -> None:
        self._memories, self._tally, self._work, self._acting = memories, tally, work, acting
        self._left_out: set[str] = set()  # told once each

    def describe(self) -> Iterable[Metric]:
        """Nothing: so that registering asks nobody."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._operator()
        queues = [(list(key), memory) for key, memory in sorted(self._memories.items())]
        try:
            found = list(_of_queues(queues))
        except Exception:  # noqa: BLE001  (whatever it is, it is one queue's: the metrics of the others are not to go with it)
            found = list(_of_queues([queue for queue in queues if self._can_be_told(*queue)]))
        yield from found
        yield from self._decisions()

    def _can_be_told(self, labels: list[str], memory: Memory) -> bool:
        name = "/".join(labels)
        try:
            list(_of_queues([(labels, memory)]))
        except Exception:
            if name not in self._left_out:
                log.exception("queue_not_measured", queue=name)
            self._left_out.add(name)
            return False
        return True

    def _operator(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("leasequeue_operator_info", "Version of the operator.", labels=["version"])
        info.add_metric([own_version()], 1)
        yield info
        yield _single(
            "leasequeue_operator_acting", "1 while this replica serves queues; 0 while it stands by or cannot start.",
            float(self._acting()),
        )  # fmt: skip
        yield _counter("leasequeue_reconcile", "Reconciliations by outcome.", "outcome", self._tally.reconciliations)
        yield _counter("leasequeue_watch_events", "Watch events by kind.", "kind", self._tally.events)
        yield _counter("leasequeue_resync", "Full lists by outcome.", "outcome", self._tally.resyncs)
        yield CounterMetricFamily("leasequeue_wakes", "Looks brought about by a notification.", value=self._tally.wakes)
        yield self._tally.duration()
        yield _single("leasequeue_workqueue_depth", "Queues that wait to be reconciled.", len(self._work))
        yield _single("leasequeue_workqueue_ready", "Queues that are due to be reconciled.", self._work.ready())
        yield _single("leasequeue_workqueue_lag_seconds", "How long the longest has been due.", self._work.lag_s())

    def _decisions(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "leasequeue_scaling_decisions",
            "Changes of the number of workers, by what decided them.",
            labels=[*QUEUE_LABELS, "direction", "limiter"],
        )
        for (key, direction, limiter), count in sorted(self._tally.decisions.items()):
            family.add_metric([*key, direction, limiter], count)
        yield family


def registry(collector: Collector, *others: CollectorBase) -> CollectorRegistry:
    """A registry with these collectors and nothing else."""
    made = CollectorRegistry(auto_describe=False)
    for one in (collector, *others):
        made.register(one)
    return made


def _of_queues(queues: Sequence[tuple[list[str], Memory]]) -> Iterator[Metric]:
    """The families with a series for each queue."""
    yield from _conditions(queues)
    yield _busy_kills(queues)
    seen = [(labels, m.observation) for labels, m in queues if m.observation is not None]
    yield from _wishes(seen)
    yield from _facts([(labels, o, o.database.stats) for labels, o in seen if o.database and o.database.stats])


def _single(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _conditions(queues: Iterable[tuple[list[str], Memory]]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "leasequeue_condition", "1 for the status a condition has, 0 for the others.", labels=[*QUEUE_LABELS, "type", "status"]
    )
    for labels, memory in queues:
        for c in memory.conditions:
            for status in ("True", "False", "Unknown"):
                family.add_metric([*labels, c.type, status], float(c.status == status))
    yield family


def _busy_kills(queues: Iterable[tuple[list[str], Memory]]) -> Metric:
    family = CounterMetricFamily(
        "leasequeue_busy_kills", "Leases that ended because their worker was removed at its drain limit.", labels=QUEUE_LABELS
    )
    for labels, memory in queues:
        family.add_metric(labels, memory.busy_kills)
    return family


Seen = list[tuple[list[str], Observation]]
Known = list[tuple[list[str], Observation, Stats]]


def _gauge(name: str, text: str, rows: Iterable[tuple[list[str], float | None]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=QUEUE_LABELS)
    for labels, value in rows:
        if value is not None:
            family.add_metric(labels, value)
    return family


def _wishes(seen: Seen) -> Iterator[Metric]:
    """What spec and Kubernetes say; known without the database."""
    info = GaugeMetricFamily("leasequeue_info", "Each LeaseQueue.", labels=[*QUEUE_LABELS, "max_inflight_policy", "table"])
    for labels, o in seen:
        info.add_metric([*labels, o.queue.spec.lease.max_inflight_policy, o.queue.table], 1)
    yield info
    yield _limiter(seen)
    texts: tuple[tuple[str, str, Callable[[Observation], float | None]], ...] = (
        ("max_inflight", "Most items that may be in flight.", lambda o: o.queue.spec.lease.max_inflight),
        ("inflight_warning_ratio", "Share of max_inflight at which a warning is due.",
         lambda o: o.queue.spec.alerts.inflight_warning_percent / 100),
        ("inflight_critical_ratio", "Share of max_inflight at which it is critical.",
         lambda o: o.queue.spec.alerts.inflight_critical_percent / 100),
        ("oldest_pending_limit_seconds", "Age of the oldest due item at which an alert is due.",
         lambda o: o.queue.spec.alerts.oldest_pending_seconds),
        ("reclaim_after_seconds", "How long a lease is left after its expiry.",
         lambda o: o.queue.spec.lease.reclaim_after_seconds),
        ("reclaimer_overdue_seconds", "Seconds after a success by which the next must have come.", _overdue),
        ("reclaimer_made_timestamp_seconds", "When the reclaimer's CronJob was made.", _made),
        ("poll_period_seconds", "Seconds between two samples.", lambda o: o.queue.spec.scaling.poll_period_seconds),
        ("workers_desired", "Worker pods wanted.", lambda o: o.desired),
        ("workers_ready", "Worker pods that are ready.", lambda o: o.ready),
        ("workers_draining", "Worker pods that finish what they hold before the fleet shrinks.", lambda o: o.draining),
        ("database_up", "1 when the newest look at the database gave a sample.", _up),
        ("sample_timestamp_seconds", "When the sample was taken.", lambda o: o.database.stats_at if o.database else None),
    )  # fmt: skip
    for name, text, value in texts:
        yield _gauge(f"leasequeue_{name}", text, ((labels, value(o)) for labels, o in seen))


def _limiter(seen: Seen) -> Metric:
    """The name of a schedule is no label value, so that the label has a closed set of them."""
    family = GaugeMetricFamily(
        "leasequeue_scaling_limiter", "1 for what decides the number of workers now.", labels=[*QUEUE_LABELS, "limiter"]
    )
    for labels, o in seen:
        if o.decision is not None:
            family.add_metric([*labels, o.decision.limiter.partition(":")[0]], 1)
    return family


def _overdue(o: Observation) -> float | None:
    """None where this queue has no reclaimer. A suspended one is waited for: a forgotten suspension must not be silent."""
    if not o.owner or o.refused is not None:
        return None
    return reclaim.overdue_s(o.queue, o.now)


def _made(o: Observation) -> float | None:
    """From when on a first run is waited for."""
    if o.cron_job is None or not o.owner or o.refused is not None:
        return None
    return datetime.fromisoformat(o.cron_job["metadata"]["creationTimestamp"]).timestamp()


def _up(o: Observation) -> float | None:
    if o.secret is not None:
        return 0.0
    return None if o.database is None else float(o.database.ok)


def _facts(known: Known) -> Iterator[Metric]:
    """What the database says. The items of a shared table are exported by its owner alone."""
    owned = [(labels, o, stats) for labels, o, stats in known if o.owner]
    items = GaugeMetricFamily("leasequeue_items", "Items by state.", labels=[*QUEUE_LABELS, "state"])
    reclaimed = CounterMetricFamily(
        "leasequeue_reclaimed", "Leases taken back, by where their item went.", labels=[*QUEUE_LABELS, "result"]
    )
    for labels, _, stats in owned:
        for state in State:
            items.add_metric([*labels, state.value], stats.counts[state])
        reclaimed.add_metric([*labels, "pending"], stats.reclaimed_total)
        reclaimed.add_metric([*labels, "repair"], stats.repaired_total)
    yield items
    yield reclaimed
    yield _lanes(owned)
    gauges: tuple[tuple[str, str, Callable[[Stats], float | None]], ...] = (
        ("assigned", "Items in flight.", lambda s: s.assigned),
        ("pending_due", "Items that a worker could take now.", lambda s: s.due),
        ("leases_expired", "Items in flight past their expiry.", lambda s: s.expired),
        ("oldest_pending_timestamp_seconds", "When the oldest due item was made.", lambda s: _at(s.oldest_pending_at)),
        ("oldest_expired_timestamp_seconds", "When the oldest expired lease ended.", lambda s: _at(s.oldest_expired_at)),
        ("next_due_timestamp_seconds", "When the next SCHEDULED item is due.", lambda s: _at(s.next_due_at)),
        ("reclaimer_last_success_timestamp_seconds", "When a reclaimer run last ended well.", lambda s: _at(s.swept_at)),
        ("workers_registered", "Worker processes seen in the last 30 s.", lambda s: s.workers),
        ("workers_busy", "Worker processes that work on something.", lambda s: s.workers_busy),
        ("workers_cordoned", "Worker processes that may not claim.", lambda s: s.workers_cordoned),
    )  # fmt: skip
    for name, text, value in gauges:
        yield _gauge(f"leasequeue_{name}", text, ((labels, value(stats)) for labels, _, stats in owned))
    counters: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
        ("claimed", "Items claimed, over all processes.", lambda s: s.claimed_total),
        ("completed", "Items finished, over all processes.", lambda s: s.finished_total),
        ("leases_lost", "Leases lost, over all processes.", lambda s: s.lost_total),
        ("busy_seconds", "Time spent in handlers, over all processes.", lambda s: s.busy_ms_total / 1000),
    )
    for name, text, amount in counters:
        family = CounterMetricFamily(f"leasequeue_queue_{name}", text, labels=QUEUE_LABELS)
        for labels, _, stats in owned:
            family.add_metric(labels, amount(stats))
        yield family


def _lanes(owned: Known) -> Metric:
    family = GaugeMetricFamily("leasequeue_lanes", "Strict lanes by what their head is at.", labels=[*QUEUE_LABELS, "head"])
    for labels, _, stats in owned:
        if stats.lanes is not None:
            for head in ("claimable", "blocked", "later", "busy"):
                family.add_metric([*labels, head], getattr(stats.lanes, head))
    return family


def _at(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
