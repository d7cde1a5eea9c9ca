"""Plans as they are executed: an engine whose every statement is first run under EXPLAIN (ANALYZE, BUFFERS) and taken back.

Statements are prepared once a connection and planned generically, as psycopg's prepared statements are after a few runs. So a plan made
while the queue was empty stays in use when it is full.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer

from leasequeue import run as engine_run
from leasequeue.run import Operation, Query
from leasequeue.table import Table

_names = itertools.count(1)


@dataclass
class Plan:
    """One statement's plan."""

    text: str
    root: dict[str, Any]

    def nodes(self, of: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """All nodes, top down."""
        node = of or self.root
        yield node
        for child in node.get("Plans", []):
            yield from self.nodes(child)

    @property
    def buffers(self) -> int:
        """Pages looked at."""
        return int(self.root["Shared Hit Blocks"]) + int(self.root["Shared Read Blocks"])

    def on(self, table: Table) -> list[dict[str, Any]]:
        """Nodes that read the table."""
        return [n for n in self.nodes() if n.get("Relation Name") == table.name and n["Node Type"] != "ModifyTable"]


@dataclass
class ExplainingDriver:
    """Runs flows like `leasequeue.run.run` does on a connection of its own, and keeps the plans."""

    conn: psycopg.Connection[Any]
    plans: list[Plan] = field(default_factory=list)
    _prepared: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.conn.prepare_threshold = None  # psycopg would throw away all prepared statements after each ROLLBACK
        self.conn.execute("SET plan_cache_mode = force_generic_plan")

    def about(self, table: Table) -> list[Plan]:
        """Plans that read or write the table."""
        return [plan for plan in self.plans if any(n.get("Relation Name") == table.name for n in plan.nodes())]

    @property
    def buffers(self) -> int:
        """Pages of all plans."""
        return sum(plan.buffers for plan in self.plans)

    def run(self, flow: Any) -> Any:
        """Run a flow, operation by operation, each in its transaction with the engine's limits."""
        try:
            operation = next(flow)
            while True:
                operation = flow.send(self._operation(operation))
        except StopIteration as stop:
            return stop.value

    def _operation(self, operation: Operation[Any]) -> Any:
        limits = operation.limits()
        with self.conn.transaction():
            self.conn.execute(limits.text, limits.params)
            steps = operation.steps()
            try:
                batch = next(steps)
                while True:
                    batch = steps.send([self._query(query) for query in batch.queries])
            except StopIteration as stop:
                return stop.value

    def _query(self, query: Query) -> Any:
        name, order = self._prepare(query)
        values = sql.SQL(", ").join(sql.Literal(query.params[key]) for key in order)
        explain = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) EXECUTE {} ({})")
        if not order:
            explain = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) EXECUTE {}{}")
        with self.conn.transaction(force_rollback=True):
            (found,) = self.conn.execute(explain.format(sql.Identifier(name), values)).fetchone()  # type: ignore[misc]
        self.plans.append(Plan(query.text, found[0]["Plan"]))
        return engine_run.result_of(self.conn.execute(query.text, query.params), self.conn)

    def _prepare(self, query: Query) -> tuple[str, list[str]]:
        if query.text not in self._prepared:
            converted = PostgresQuery(Transformer(self.conn))
            converted.convert(query.text, query.params)
            types = [self._type(oid) for oid in converted.types]
            name = f"hot_{next(_names)}"
            given = f"({', '.join(types)})" if types else ""
            self.conn.execute(f"PREPARE {name} {given} AS {converted.query.decode()}")  # type: ignore[arg-type]
            self._prepared[query.text] = (name, list(converted._order or []))
        return self._prepared[query.text]

    def _type(self, oid: int) -> str:
        (name,) = self.conn.execute("SELECT format_type(%s, NULL)", [oid]).fetchone() if oid else ("unknown",)  # type: ignore[misc]
        return str(name)
