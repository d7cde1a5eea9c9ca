"""What the operator costs others: its calls to the API server and its questions to databases, as metrics.

A platform team sees here whether the operator is quiet: with nothing to change it writes nothing, and asks each database once
a poll whatever the number of its queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class Usage(Collector):
    """Counters since the start of the process; a collector for prometheus_client."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, str]] = Counter()  # method, resource, status
        self.questions: Counter[str] = Counter(dict.fromkeys(("sample", "marks", "verify", "cordon"), 0))

    def called(self, method: str, path: str, status: int) -> None:
        """Count a call to the API server. `status`: of HTTP, 0 when there was no answer."""
        self.calls[method, resource_of(path), str(status)] += 1

    def asked(self, kind: str) -> None:
        """Count a question to a database: one round trip."""
        self.questions[kind] += 1

    def describe(self) -> Iterable[Metric]:
        """Nothing: so that registering asks nobody."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families."""
        calls = CounterMetricFamily(
            "leasequeue_kube_requests", "Calls to the API server; status 0: no answer.", labels=["method", "resource", "status"]
        )
        for labels, count in sorted(self.calls.items()):
            calls.add_metric(labels, count)
        yield calls
        questions = CounterMetricFamily("leasequeue_database_questions", "Questions to databases, by kind.", labels=["kind"])
        for kind, count in sorted(self.questions.items()):
            questions.add_metric([kind], count)
        yield questions


def resource_of(path: str) -> str:
    """`deployments/scale` of a path with names in it; the whole path where it leads to no resource."""
    parts = path.strip("/").split("/")
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    return "/".join(part for n, part in enumerate(rest) if n != 1) or path
