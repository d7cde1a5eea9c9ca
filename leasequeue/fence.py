"""Writes about a lease that is held: renew, resolve, retry, fail, repair, release. Each is fenced by owner and token.

On a connection of our own a lost lease is an answer (`LOST`), not an error. Inside the caller's transaction anything but the wanted
outcome raises `LeaseNotHeld`, so that the caller's effects roll back with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import psycopg

from leasequeue import jsonio
from leasequeue.arrays import text_array
from leasequeue.config import LeaseConfig
from leasequeue.errors import BadInput, LeaseNotHeld
from leasequeue.item import Lease, TextLease
from leasequeue.maintain import rows_of
from leasequeue.outcomes import Outcomes, rounds
from leasequeue.refusals import refuses_data, refuses_row
from leasequeue.rows import Result
from leasequeue.run import Flow, Operation, Query, callers_transaction, one
from leasequeue.spare import Skips
from leasequeue.states import Outcome, State
from leasequeue.table import LEASE_COLUMNS, Table, quoted

MAX_ERROR_CHARS = 2_000
MAX_DELAY_S = 366 * 86_400.0  # a year: the longest that a retry or a release may put an item off
# A statement with the results of many items stops growing here: it can be sent well within a call's deadline, and held in memory.
MAX_BATCH_BYTES = 16 * 2**20
NO_COLUMNS: Mapping[str, Any] = MappingProxyType({})


class Completion(NamedTuple):
    """One item to complete.

    Args:
        lease: the lease on it.
        result: any JSON value with exact Decimals; stored in `result`.
        columns: the user's own columns to set in the same statement.
    """

    lease: Lease
    result: Any = None
    columns: Mapping[str, Any] = NO_COLUMNS


def completion_list(given: Completion | Sequence[Completion]) -> list[Completion]:
    """One completion or several, as a list."""
    several = [given] if isinstance(given, Completion) else list(given)
    return cast(list[Completion], several)


@dataclass(frozen=True, slots=True)
class Settlement:
    """One lease to end without completion.

    Args:
        lease: the lease.
        verb: RETRY, FAIL, REPAIR or RELEASE.
        delay_s: seconds until the item is due again, ≥ 0 (RETRY and RELEASE).
        error: why, for `last_error`.
    """

    lease: Lease
    verb: str
    delay_s: float = 0.0
    error: str | None = None


def clean_error(text: str) -> str:
    """Text that a PostgreSQL text column takes: no NUL, no lone surrogates, bounded length."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")[:MAX_ERROR_CHARS]


def one_worker(leases: Iterable[Lease]) -> str:
    """The worker that all leases belong to.

    Raises:
        BadInput: leases of several workers in one call.
    """
    workers = {lease.worker_id for lease in leases}
    if len(workers) != 1:
        raise BadInput("leases", sorted(workers), "all leases of one call must belong to one worker")
    return workers.pop()


def _arrays(table: Table, leases: Sequence[Lease]) -> dict[str, Any]:
    ids, tokens, _ = zip(*leases, strict=True)  # a third of the time that names take
    if _in_text(leases):  # as the server wrote them: uuids and numbers need no quotes
        given, theirs = text_array(ids) if table.id_type == "text" else _braced(ids), _braced(tokens)
    elif table.id_type != "text" and isinstance(ids[0], str):
        # PostgreSQL would take it, but outcomes are told by id, and the text is not equal to it.
        raise BadInput("id", ids[0], f"is text; give the {table.id_type} that the claim gave")
    else:
        given, theirs = text_array(ids), text_array(tokens)
    return {"worker_id": one_worker(leases), "ids": given, "tokens": theirs}


def _braced(texts: Iterable[Any]) -> str:
    return "{" + ",".join(texts) + "}"


def _in_text(leases: Sequence[Lease]) -> bool:
    return isinstance(leases[0], TextLease)


def _ids_told(answer: Result, leases: Sequence[Lease]) -> list[Any]:
    """Ids of an answer, in the form that the leases have them."""
    ids = answer.column("id")
    return [str(item_id) for item_id in ids] if _in_text(leases) else ids


def status_query(table: Table, leases: Sequence[Lease]) -> Query:
    """Query that says which of the leases still stand, and which were completed by their holder."""
    return Query(table.sql("lease_status"), _arrays(table, leases))


# --- renew ---------------------------------------------------------------------------------------------------------------


def renew_flow(table: Table, leases: Sequence[Lease], *, config: LeaseConfig) -> Flow[Outcomes]:
    """Flow behind `renew`."""
    outcomes = Outcomes()
    for round_ in rounds(leases, lambda lease: lease):
        outcomes.add(round_, (yield from _renew_round(table, round_, config)))
    return outcomes


def _renew_round(table: Table, leases: list[Lease], config: LeaseConfig) -> Flow[dict[Any, Outcome]]:
    outcomes = dict.fromkeys((yield from _renewed(table, leases, config)), Outcome.RENEWED)
    yield from _judge_missing(table, leases, outcomes, standing=Outcome.BUSY)
    return outcomes


def _renewed(table: Table, leases: list[Lease], config: LeaseConfig) -> Flow[list[Any]]:
    """Ids that were renewed: in halves where a row refuses any change, so that it costs the others nothing."""
    query = Query(table.sql("renew"), {**_arrays(table, leases), "lease_ms": config.lock_timeout_ms})
    try:
        renewed: Result = yield Operation(lambda: one(query), durable=False)
    except psycopg.Error as ex:
        if not refuses_row(ex):
            raise
        if len(leases) == 1:
            return []
        middle = len(leases) // 2
        first = yield from _renewed(table, leases[:middle], config)
        return first + (yield from _renewed(table, leases[middle:], config))
    return _ids_told(renewed, leases)


def _judge_missing(
    table: Table, leases: Sequence[Lease], outcomes: dict[Any, Outcome], *, standing: Outcome = Outcome.LOST
) -> Flow[None]:
    """Add the outcome of every lease that the write did not change, by a statement with a fresh snapshot.

    Args:
        table: the queue.
        leases: all leases of the write.
        outcomes: what is known so far, by item id; completed in place.
        standing: outcome of a lease that is still held after all.
    """
    if len(outcomes) == len(leases):  # no item occurs twice in one write
        return
    missing = [lease for lease in leases if lease.id not in outcomes]
    status: Result = yield Operation(lambda: one(status_query(table, missing)))
    found = dict(zip(_ids_told(status, missing), status.column("state"), strict=True))
    for lease in missing:
        state = found.get(lease.id)
        if state == State.RESOLVED:
            outcomes[lease.id] = Outcome.ALREADY_RESOLVED
        else:
            outcomes[lease.id] = standing if state == State.ASSIGNED else Outcome.LOST


# --- resolve -------------------------------------------------------------------------------------------------------------


def resolve_flow(table: Table, completions: Sequence[Completion]) -> Flow[Outcomes]:
    """Flow behind `resolve`: batches by the set of user columns; a batch that one row's data breaks is halved until that row is
    alone, and that row goes to REPAIR with the server's message."""
    outcomes = Outcomes()
    for columns, group in _by_columns(table, completions).items():
        for round_ in rounds(group, attrgetter("lease")):
            outcomes.add([c.lease for c in round_], (yield from _resolve_group(table, columns, round_)))
    return outcomes


def _by_columns(table: Table, completions: Sequence[Completion]) -> dict[tuple[str, ...], list[Completion]]:
    if not any(map(attrgetter("columns"), completions)):
        return {(): list(completions)} if completions else {}
    groups: dict[tuple[str, ...], list[Completion]] = {}
    for completion in completions:
        names = tuple(sorted(completion.columns))
        for name in names:
            if name in LEASE_COLUMNS:
                raise BadInput("columns", name, "is a lease column; a handler may set the table's own columns only")
            if not table.has(name):
                raise BadInput("columns", name, f"is no column of {table.label}; it has: {', '.join(table.columns)}")
        groups.setdefault(names, []).append(completion)
    return groups


def _resolve_group(table: Table, columns: tuple[str, ...], group: list[Completion]) -> Flow[dict[Any, Outcome]]:
    outcomes: dict[Any, Outcome] = {}
    for part, query in _resolve_queries(table, columns, group):
        outcomes |= yield from _resolve_part(table, columns, part, query)
    return outcomes


def _resolve_part(table: Table, columns: tuple[str, ...], part: list[Completion], query: Query) -> Flow[dict[Any, Outcome]]:
    try:
        done: Result = yield Operation(lambda: one(query))
    except psycopg.Error as ex:
        if not refuses_data(ex):
            raise
        if len(part) > 1:
            middle = len(part) // 2
            halves = yield from _resolve_group(table, columns, part[:middle])
            return halves | (yield from _resolve_group(table, columns, part[middle:]))
        return (yield from _set_aside(table, part[0].lease, ex))
    leases = list(map(attrgetter("lease"), part))
    outcomes = dict.fromkeys(_completed(done, leases), Outcome.RESOLVED)
    yield from _judge_missing(table, leases, outcomes)
    return outcomes


def _completed(answer: Result, leases: Sequence[Lease]) -> list[Any]:
    """Ids that a completion changed, in the form that the leases have them."""
    if answer.names == ("id",):
        return _ids_told(answer, leases)
    if int(answer.rows[0][0]) == len(leases):
        return [lease[0] for lease in leases]
    ids = answer.typed().rows[0][1] or []
    return [str(item_id) for item_id in ids] if _in_text(leases) else ids


def _completing(table: Table, name: str, **fragments: str) -> str:
    """Text of a statement that completes items; on a table with rules its UPDATE alone, which answers each row."""
    text = table.sql(name, **fragments)
    return text.removeprefix("WITH done AS (\n").partition("\n)\nSELECT count(*)")[0] if table.rules else text


def _set_aside(table: Table, lease: Lease, error: psycopg.Error) -> Flow[dict[Any, Outcome]]:
    """Send an item whose completion was refused to REPAIR; one that refuses this as well stays leased until its lease ends."""
    said = f"result refused by the database: {error.diag.message_primary or error} ({error.sqlstate or 'not sent'})"
    try:
        return (yield from settle_flow(table, [Settlement(lease, "REPAIR", error=said)]))
    except psycopg.Error as ex:
        if not refuses_row(ex):
            raise
        return {lease.id: Outcome.REFUSED}


def _resolve_queries(
    table: Table, columns: tuple[str, ...], group: list[Completion]
) -> Iterator[tuple[list[Completion], Query]]:
    """The statements that complete a group, mostly one: more where the results are large."""
    if not columns and not [c for c in group if c.result is not None]:
        leases = list(map(attrgetter("lease"), group))
        yield group, Query(_completing(table, "resolve"), _arrays(table, leases), raw=_in_text(leases))
        return
    start, size = 0, 0
    texts: list[tuple[str | None, str | None]] = []
    for completion in group:
        result = None if completion.result is None else jsonio.dumps_result(completion.result)
        set_ = jsonio.dumps_result(dict(completion.columns)) if columns else None
        grown = len(result or "") + len(set_ or "")
        if texts and size + grown > MAX_BATCH_BYTES:
            yield _part(table, columns, group[start : start + len(texts)], texts)
            start, size, texts = start + len(texts), 0, []
        texts.append((result, set_))
        size += grown
    yield _part(table, columns, group[start:], texts)


def _part(
    table: Table, columns: tuple[str, ...], part: list[Completion], texts: list[tuple[str | None, str | None]]
) -> tuple[list[Completion], Query]:
    params = _arrays(table, [c.lease for c in part])
    params["results"] = [result for result, _ in texts]
    if not columns:
        return part, Query(_completing(table, "resolve_results"), params)
    params["columns"] = [set_ for _, set_ in texts]
    names = [quoted(name) for name in columns]
    sources = ", ".join(f"given.{name}" for name in names)
    return part, Query(_completing(table, "resolve_columns", targets=", ".join(names), sources=sources), params)


# --- retry, fail, repair, release ----------------------------------------------------------------------------------------

WROTE = {
    "RETRY": {State.FAILED: Outcome.FAILED, State.PENDING: Outcome.RETRIED, State.SCHEDULED: Outcome.RETRIED},
    "FAIL": {State.FAILED: Outcome.FAILED},
    "REPAIR": {State.REPAIR: Outcome.REPAIR},
    "RELEASE": {State.PENDING: Outcome.RELEASED, State.SCHEDULED: Outcome.RELEASED},
}


def settle_flow(table: Table, settlements: Sequence[Settlement], *, config: LeaseConfig | None = None) -> Flow[Outcomes]:
    """Flow behind `retry`, `fail`, `repair` and `release`, for any mixture of them in one statement."""
    for settlement in settlements:
        if settlement.verb not in WROTE:
            raise BadInput("verb", settlement.verb, f"must be one of {', '.join(WROTE)}")
        if not 0 <= settlement.delay_s <= MAX_DELAY_S:
            raise BadInput("after_s", settlement.delay_s, f"must be between 0 and {MAX_DELAY_S:.0f} seconds (a year)")
    outcomes = Outcomes()
    for round_ in rounds(settlements, lambda settlement: settlement.lease):
        outcomes.add([s.lease for s in round_], (yield from _settle_round(table, round_, config or LeaseConfig())))
    return outcomes


def _settle_round(table: Table, settlements: list[Settlement], config: LeaseConfig) -> Flow[dict[Any, Outcome]]:
    settled: Result = yield Operation(lambda: one(_settle_query(table, settlements, config)))
    leases = [s.lease for s in settlements]
    verbs = {s.lease.id: s.verb for s in settlements}
    written = zip(_ids_told(settled, leases), settled.column("state"), strict=True)
    outcomes = {item_id: WROTE[verbs[item_id]][State(state)] for item_id, state in written}
    yield from _judge_missing(table, leases, outcomes)
    return outcomes


def _settle_query(table: Table, settlements: Sequence[Settlement], config: LeaseConfig) -> Query:
    params = {
        **_arrays(table, [s.lease for s in settlements]),
        "verbs": [s.verb for s in settlements],
        "delays": [float(s.delay_s) for s in settlements],
        "errors": [None if s.error is None else clean_error(s.error) for s in settlements],
        "max_attempts": config.max_attempts,
    }
    return Query(table.sql("settle"), params)


# --- after a lost reply --------------------------------------------------------------------------------------------------


def release_unheld_flow(table: Table, *, worker_id: str, held_tokens: Sequence[Any], skips: Skips | None = None) -> Flow[int]:
    """Flow behind `release_unheld`; a registered process waits first until its claims under way have ended."""
    own = Query(table.sql("worker_own_lock"), {"queue": table.oid, "worker_id": worker_id})
    yield Operation(lambda: one(own))
    params = {"worker_id": worker_id, "held": text_array(held_tokens)}
    pages = yield from rows_of(table, "release_unheld", params, skips)
    return sum(len(released.rows) for released in pages.done)


def lease_outcome_flow(table: Table, lease: Lease) -> Flow[Outcome | None]:
    """Flow behind `lease_outcome`: RESOLVED (the commit happened), None (it did not, the lease stands), LOST."""
    query = Query(table.sql("lease_outcome"), {"id": lease.id, "token": lease.token, "worker_id": lease.worker_id})

    found: Result = yield Operation(lambda: one(query), lock_timeout_ms=5_000)
    if found.scalar == State.RESOLVED:
        return Outcome.RESOLVED
    return None if found.scalar == State.ASSIGNED else Outcome.LOST


def set_result_query(table: Table, lease: Lease, result: Any) -> Query:
    """Query that stores a result inside the transaction that has resolved the item."""
    return Query(
        table.sql("set_result"),
        {"id": lease.id, "token": lease.token, "worker_id": lease.worker_id, "result": jsonio.dumps_result(result)},
    )


def wanted(
    conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], outcomes: Outcomes, good: Sequence[Outcome]
) -> Outcomes:
    """Return `outcomes`; inside the caller's transaction only if every one is among `good`.

    Raises:
        LeaseNotHeld: inside the caller's transaction, with the outcomes that are not.
    """
    if callers_transaction(conn) and (bad := outcomes.other_than(good)):
        raise LeaseNotHeld(bad)
    return outcomes
