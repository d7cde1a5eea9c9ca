"""The metrics of operator and workers, asked from the collectors that export them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import cast

from prometheus_client.core import Metric

from devtools.reference.markdown import code, codes, head, section, table
from devtools.reference.source import module_texts, same, text_of, trees
from leasequeue_operator.kube import Kube
from leasequeue_operator.metrics import QUEUE_LABELS, Collector, Tally
from leasequeue_operator.selfcheck import Rights
from leasequeue_operator.usage import Usage
from leasequeue_worker.metrics import WorkerMetrics


class _Idle:
    """A work queue with nothing in it."""

    def __len__(self) -> int:
        return 0

    def ready(self) -> int:
        """Nothing is due."""
        return 0

    def lag_s(self) -> float:
        """Nobody waits."""
        return 0.0


# By the class that makes them; each gives every family also where there is nothing to tell of.
OPERATOR: dict[str, Callable[[], Iterable[Metric]]] = {
    "Collector": lambda: Collector({}, Tally(), _Idle()).collect(),
    "Usage": lambda: Usage().collect(),
    "Rights": lambda: Rights(cast(Kube, None), ()).collect(),
}


def of_operator() -> list[Metric]:
    """Every family of the operator.

    Raises:
        ValueError: a class of the operator's exports metrics and is not in `OPERATOR`.
    """
    same(set(collectors()), set(OPERATOR), "collectors", "devtools/reference/metrics.py")
    return [family for families in OPERATOR.values() for family in families()]


def collectors() -> list[str]:
    """Classes of the operator with a method `collect`."""
    classes = (node for _, tree in trees("leasequeue_operator") for node in tree.body if isinstance(node, ast.ClassDef))
    return [c.name for c in classes if any(isinstance(f, ast.FunctionDef) and f.name == "collect" for f in c.body)]


def of_worker() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Rows of a worker process: its collector's, and the gauges that the supervisor adds."""
    found = _rows(WorkerMetrics("", "").collect())
    for path, tree in trees("leasequeue_worker"):
        constants = module_texts(tree)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if getattr(call.func, "id", getattr(call.func, "attr", "")) != "gauge":
                continue
            name, text = (text_of(argument) or constants.get(ast.unparse(argument)) for argument in call.args[:2])
            if name is None or text is None:
                raise ValueError(f"{path.name}: a gauge whose name and text are no plain strings; give them so")
            found.append((name, "gauge", QUEUE_LABELS, text))
    return found


def _rows(families: Iterable[Metric]) -> list[tuple[str, str, tuple[str, ...], str]]:
    found = []
    for family in families:
        if not family.documentation:
            raise ValueError(f"metric {family.name} has no help text; give it one")
        # A counter's samples end in _total; the family's name does not.
        name = family.name + ("_total" if family.type == "counter" else "")
        found.append((name, family.type, tuple(getattr(family, "_labelnames", ())), family.documentation))
    return found


def names() -> set[str]:
    """Every name that is exported, histograms by their family's name."""
    return {row[0] for row in _rows(of_operator())} | {row[0] for row in of_worker()}


def page() -> str:
    """The page."""
    first = (
        "Base units throughout. `queue_namespace` and `queue` name the LeaseQueue, whatever Prometheus makes of `namespace`. A value "
        "that is not known is not exported; the series of a deleted LeaseQueue vanish. Histograms export `_bucket`, `_sum`, `_count`."
    )
    operator = "At `/metrics` of the operator's pod. Facts of the database come from here alone."
    worker = (
        "At `/metrics` of each worker pod: what this process did. By hand, `queue_namespace` is empty and `queue` is the table."
    )
    source = "the collectors of operator and worker"
    return (
        head("Metrics", source, first)
        + section("Operator", f"{operator}\n\n{_table(_rows(of_operator()))}")
        + section("Worker", f"{worker}\n\n{_table(of_worker())}")
    )


def _table(rows: Iterable[tuple[str, str, tuple[str, ...], str]]) -> str:
    columns = ("metric", "type", "labels", "what it is")
    return table(columns, ((code(name), kind, codes(labels), text) for name, kind, labels, text in rows))
