"""The measurements, each in its own tables on one server; both sides of a ratio take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
from psycopg import sql

import leasequeue
from benchmarks.flat.figures import Figure, compare, ends, fact, tail
from benchmarks.flat.queue import Queue
from leasequeue.config import LeaseConfig
from leasequeue.dsn import connect
from leasequeue.fence import renew_flow
from leasequeue.run import Flow, Operation, Steps, run

BATCH = 100
CLAIMS = 60
LANES, LANE_ROWS = 200, 1000
HELD = 200
RENEWALS = 20
Say = Callable[[str], None]


def history(dsn: str, say: Say, rows: int) -> list[Figure]:
    """Claims beside `rows` RESOLVED rows and beside none."""
    with connect(dsn) as conn:
        empty, full = Queue(conn, "no_history"), Queue(conn, "with_history")
        for queue in (empty, full):
            # Before the history: filled later, the narrower waiting rows would go one each into gaps of its pages, which is no matter of
            # how many RESOLVED rows there are.
            queue.fill(BATCH * (CLAIMS + 10))
        say(f"filling {rows:,} RESOLVED rows")
        full.fill(rows, "RESOLVED", start="2026-01-01")
        for queue in (empty, full):
            queue.settle()
        buffers = {queue.name: queue.claim_buffers(BATCH) for queue in (empty, full)}
        samples = _alternate([empty, full], CLAIMS, BATCH)
    base, found = samples["no_history"], samples["with_history"]
    name = f"claim of {BATCH} beside {rows:,} RESOLVED rows"
    before, beside = buffers["no_history"], buffers["with_history"]
    return [
        compare(f"{name}, p50", base, found, 1.2),
        compare(f"{name}, p95", [tail(base)], [tail(found)], None),
        compare(f"{name}, buffers of the search", [before.search], [beside.search], 1.2, "buffers"),
        # One more level of the unique indexes is one more buffer for each new version's entries.
        compare(f"{name}, buffers with the update of rows and indexes", [before.whole], [beside.whole], None, "buffers"),
    ]


def _alternate(queues: list[Queue], claims: int, n: int) -> dict[str, list[float]]:
    """Claim and complete in turn on each queue; milliseconds of the claims, the first ones left out."""
    samples: dict[str, list[float]] = {queue.name: [] for queue in queues}
    for number in range(claims + 5):
        for queue in queues if number % 2 else reversed(queues):
            took_ms, items = queue.claim(n)
            queue.resolve(items)
            if number >= 5:
                samples[queue.name].append(took_ms)
    return samples


def pinned(dsn: str, say: Say, items: int) -> list[Figure]:
    """Claims while a snapshot from before all of them is held, and what the mark's rewind costs."""
    with connect(dsn) as conn, psycopg.connect(dsn) as holder:
        queue = Queue(conn, "pinned")
        queue.fill(items + 10 * BATCH)
        queue.settle()
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM pinned")  # its snapshot keeps every version that is made from now on
        say(f"claiming {items:,} items under a pinned xmin")
        resumed: list[float] = []
        rewound: list[float] = []
        for _ in range(items // BATCH):
            before = queue.mark.rewinds
            took_ms, leased = queue.claim(BATCH)
            queue.resolve(leased)
            (rewound if queue.mark.rewinds > before else resumed).append(took_ms)
        start, end = ends(resumed)
        buffers = queue.claim_buffers(BATCH)
        holder.rollback()
    figures = [compare(f"claim of {BATCH} under a pinned xmin after {items:,} items, p50", start, end, 1.5)]
    figures.append(compare("the same, p95", [tail(start)], [tail(end)], None))
    figures.append(fact("the same, buffers of the search at the end", f"{buffers.search:,} buffers", "shown", ok=True))
    if len(rewound) > 1:
        _, last = ends(rewound)
        figures.append(compare("the same, right after the mark's rewind (at most once a second)", start, last, None))
    return figures


def lanes(dsn: str, say: Say) -> list[Figure]:
    """Strict lanes: many long ones beside one.

    Per claim: one claim of one item (n = 1), from one lane and from many. Per item: a claim of `BATCH` items from many lanes, one of
    each, divided by `BATCH`, beside the claim of one item from one lane.
    """
    strict = LeaseConfig(strict_lanes=True)
    with connect(dsn) as conn:
        one, many = Queue(conn, "one_lane", strict), Queue(conn, "many_lanes", strict)
        say(f"filling {LANES} lanes × {LANE_ROWS:,} rows")
        one.fill(LANE_ROWS, lanes=1)
        many.fill(LANES * LANE_ROWS, lanes=LANES)
        for queue in (one, many):
            queue.settle()
        samples = _alternate([one, many], CLAIMS, 1)
        per_item = []
        for _ in range(CLAIMS // 2):
            took_ms, items = many.claim(BATCH)
            if len({item.lane for item in items}) != BATCH:
                raise RuntimeError(f"{len(items)} items were not one each of {BATCH} lanes")
            many.resolve(items)
            per_item.append(took_ms / BATCH)
    name = f"{LANES} strict lanes × {LANE_ROWS:,} rows beside one lane"
    return [
        compare(f"{name}: a claim of one item, p50", samples["one_lane"], samples["many_lanes"], 2.0),
        compare(f"{name}: an item of a claim of {BATCH}, p50", samples["one_lane"], per_item, 2.0),
    ]


def renewal(dsn: str, say: Say) -> list[Figure]:
    """Renewal of `HELD` rows: statements, HOT share, and one row locked by somebody."""
    say(f"renewing {HELD} held rows")
    with connect(dsn) as conn, psycopg.connect(dsn) as locker:
        queue = Queue(conn, "renewed")
        queue.fill(HELD)
        queue.settle()
        leases = [item.lease for item in queue.claim(HELD)[1]]
        hot0, all0 = _updates(conn, queue.name)
        free_ms = [_renew(queue, leases)[0] for _ in range(RENEWALS)]
        hot1, all1 = _updates(conn, queue.name)
        statements = _statements(conn, renew_flow(queue.table, leases, config=queue.config))
        locker.execute("SELECT FROM renewed WHERE id = %s FOR UPDATE", [leases[7].id])
        locked_ms, outcomes = _renew(queue, leases)
        locker.rollback()
    share = (hot1 - hot0) / (all1 - all0)
    states = [str(outcomes[lease.id]) for lease in leases]
    told = {state: states.count(state) for state in sorted(set(states))}
    return [
        fact(f"renewal of {HELD} rows: statements", str(statements), "1", statements == 1),
        fact(f"renewal of {HELD} rows: HOT", f"{share:.1%} of {all1 - all0:,} updates", "≥ 90 %", share >= 0.9),
        fact(
            "one of them locked by somebody", str(told), f"{HELD - 1} RENEWED, 1 BUSY", told == {"RENEWED": HELD - 1, "BUSY": 1}
        ),
        compare("one of them locked: the whole renewal", free_ms, [locked_ms], None),
    ]


def _renew(queue: Queue, leases: list[leasequeue.Lease]) -> tuple[float, dict[Any, leasequeue.Outcome]]:
    began = time.perf_counter()
    outcomes = leasequeue.renew(queue.conn, queue.table, leases, config=queue.config)
    return (time.perf_counter() - began) * 1e3, outcomes


def _updates(conn: psycopg.Connection[Any], table: str) -> tuple[int, int]:
    conn.execute("SELECT pg_stat_force_next_flush()", prepare=False)
    conn.execute("SELECT 1", prepare=False)  # the flush happens when the session goes idle
    text = sql.SQL("SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = {}").format(sql.Literal(table))
    row = conn.execute(text, prepare=False).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _statements(conn: psycopg.Connection[Any], flow: Flow[Any]) -> int:
    """Statements about rows that a flow runs (those that open and close its transactions left out)."""
    seen: list[int] = []

    def counted(make: Callable[[], Steps[Any]]) -> Steps[Any]:
        steps = make()
        batch = next(steps)
        while True:
            seen.append(len(batch.queries))
            results = yield batch
            try:
                batch = steps.send(results)
            except StopIteration as stop:
                return stop.value

    def watched() -> Generator[Operation[Any], Any, Any]:
        operation = next(flow)
        while True:
            result = yield replace(operation, steps=partial(counted, operation.steps))
            try:
                operation = flow.send(result)
            except StopIteration as stop:
                return stop.value

    run(conn, watched())
    return sum(seen)
