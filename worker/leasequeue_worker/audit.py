"""The audit log: one JSON line for what happens to an item, with its identity and never its payload.

Same shape as structlog's lines, rendered by hand: at tens of thousands of items a second the processor chain would cost more
than the work. The identity is rendered once a lease; lines of a batch leave in one write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii
from typing import Any, Protocol

from leasequeue.item import Item, text_of, texts_of
from leasequeue.states import Outcome
from leasequeue_worker.held import Held
from leasequeue_worker.verdicts import NOTHING

DECISION = "match_decision"
IDENTITY = ("id", "trace_id", "source_hash", "idempotency_key", "attempt")


class Writer(Protocol):
    """Where lines go."""

    def write(self, lines: bytes) -> None:
        """Write complete lines."""


def _text(value: str | None) -> str:
    return "null" if value is None else encode_basestring_ascii(value)


class AuditLog:
    """Audit lines of one worker.

    Args:
        sink: where lines go.
        worker_id: identity of this process.
        queue: namespace/name, or schema.table by hand.
        enabled: False writes nothing.
    """

    def __init__(self, sink: Writer, worker_id: str, queue: str, *, enabled: bool = True) -> None:
        self._sink, self._enabled = sink, enabled
        self._tail = f', "worker_id": {_text(worker_id)}, "queue": {_text(queue)}, "level": "info", "timestamp": "'
        self._offset = timedelta()

    def identities(self, items: Sequence[Item]) -> list[str]:
        """For each item of a claim, the fields that every line about this lease carries."""
        if not self._enabled:
            return [""] * len(items)
        decided = bool(items) and DECISION in items[0]
        told = texts_of(items, *IDENTITY, *((DECISION,) if decided else ()))
        render = _decided if decided else _identities
        try:
            return render(told, encode_basestring_ascii)
        except TypeError:  # NULL among them
            return render(told, _text)

    def identity(self, item: Item) -> str:
        """The fields that every line about one lease carries."""
        return self.identities([item])[0]

    def database_clock(self, database_now: datetime | None) -> None:
        """Learn how far the database's clock is from ours, from a time it has just reported."""
        if isinstance(database_now, datetime) and database_now.tzinfo is not None:
            self._offset = database_now - datetime.now(UTC)

    def leased(self, batch: Iterable[Held]) -> None:
        """`item_leased` for each item of a claim."""
        self._write("item_leased", batch)

    def event(self, name: str, batch: Iterable[Held], **fields: Any) -> None:
        """One line an item with the same extra fields."""
        extra = "".join(f', "{key}": {_value(value)}' for key, value in fields.items() if value is not None)
        self._write(name, batch, extra)

    def resolved(self, batch: Sequence[Held]) -> None:
        """`item_resolved`; resolved_at is the database's clock as far as we know it, to the batch."""
        if not self._enabled:
            return
        for held in batch:
            if held.verdict is not NOTHING:
                _decide(held)
        self._write("item_resolved", batch, f', "resolved_at": "{(datetime.now(UTC) + self._offset).isoformat()}"')

    def unchanged(self, held: Held, outcome: Outcome) -> None:
        """`item_completion_noop`: a completion or other verdict that changed nothing (a repeat, or the lease was lost)."""
        self.event("item_completion_noop", [held], outcome=str(outcome))

    def _write(self, name: str, batch: Iterable[Held], extra: str = "") -> None:
        if not self._enabled:
            return
        head = f'{{"event": "{name}", '
        end = f'{extra}{self._tail}{datetime.now(UTC).isoformat()}"}}\n'
        text = "".join([f"{head}{held.identity}{end}" for held in batch])
        if text:
            self._sink.write(text.encode())


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6f}"
    return _text(text_of(value))


def _identities(told: Iterable[tuple[Any, ...]], text: Callable[[Any], str]) -> list[str]:
    return [
        f'"item_id": {text(item_id)}, "trace_id": {text(trace)}, "source_hash": {text(source)}, "idempotency_key": {text(key)}, '
        f'"attempt": {attempt}'
        for item_id, trace, source, key, attempt in told
    ]


def _decided(told: Iterable[tuple[Any, ...]], text: Callable[[Any], str]) -> list[str]:
    return [
        f'"item_id": {text(item_id)}, "trace_id": {text(trace)}, "source_hash": {text(source)}, "idempotency_key": {text(key)}, '
        f'"attempt": {attempt}, "{DECISION}": {text(decision)}'
        for item_id, trace, source, key, attempt, decision in told
    ]


def _decide(held: Held) -> None:
    """match_decision as the handler set it, in place of the row's."""
    columns = getattr(held.verdict, "columns", None) or {}
    before, label, _ = held.identity.rpartition(f', "{DECISION}": ')
    if DECISION in columns and label:
        held.identity = f"{before}{label}{_text(text_of(columns[DECISION]))}"
