"""LeaseQueue itself, through its public functions and its public worker.

`work` becomes `leasequeue-worker`: this process is replaced by the real entry point, whose handler module (ours_handler.py) speaks the
harness's protocol over a descriptor of its own. Standard output, where the worker writes its logs, goes to a file, whose audit
lines are counted at the end: one `item_leased` and one `item_resolved` an item.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import time
import uuid
from typing import Any

import psycopg
from _proto import DSN, enqueued, one_by_one, opts, out, pace, sent

import leasequeue
from leasequeue.dsn import connect
from leasequeue.schema import ColumnSpec, adopt, create
from leasequeue.table import Table

O = opts()  # noqa: E741
TABLE = "review_queue_item"
COLUMNS = ("ledger_entity:text NOT NULL", "variance_amount:numeric(18,2) NOT NULL", "match_decision:text NOT NULL")


def setup() -> None:
    """The review queue's table, made by us or adopted as published (with its index)."""
    review_queue(TABLE, adopted=bool(O.get("adopted")), strict_lanes="lanes" in O)


def review_queue(table: str, *, adopted: bool, strict_lanes: bool = False) -> None:
    """Make the review queue's table, or adopt it."""
    with connect(DSN) as conn:
        if adopted:
            from devtools.samples import REVIEW_QUEUE

            conn.execute(REVIEW_QUEUE, prepare=False)
            adopt(conn, table)
        else:
            create(conn, table, columns=[ColumnSpec.parse(text) for text in COLUMNS], strict_lanes=strict_lanes)


def row(number: int, decision: str = "UNMATCHED", source: str = "") -> dict[str, Any]:
    """One review item."""
    return {
        **({"lane": f"lane-{number % O['lanes']}"} if "lanes" in O else {}),
        "idempotency_key": f"{O.get('prefix', '')}key-{number:08d}",
        "ledger_entity": "ACME-EU",
        "variance_amount": number,
        "match_decision": decision,
        "trace_id": uuid.uuid4(),
        "source_hash": source or f"{number * 2654435761 % (1 << 64):064x}",
    }


def enqueue() -> None:
    """`enqueue` for single items, `enqueue_many` in bulk."""
    n, notify = O["n"], O.get("notify", True)
    with connect(DSN) as conn:
        table = Table.load(conn, TABLE)
        if O["how"] == "one":
            one_by_one(n, lambda number: leasequeue.enqueue(conn, table, [row(number)], notify=notify))
        elif O["how"] == "tx":
            one_by_one(n, lambda number: _with_effect(conn, table, number, notify))
        else:
            began = time.perf_counter()
            leasequeue.enqueue_many(conn, table, map(row, range(n)), chunk=O.get("chunk"))
            enqueued(time.perf_counter() - began)


def _with_effect(conn: psycopg.Connection[Any], table: Table, number: int, notify: bool) -> None:
    with conn.transaction():
        conn.execute("INSERT INTO effect VALUES (%s)", [number])
        leasequeue.enqueue(conn, table, [row(number)], notify=notify)


def work() -> None:
    """Become the worker."""
    here = os.path.dirname(os.path.abspath(__file__))
    control = os.dup(1)
    os.set_inheritable(control, True)
    log = tempfile.NamedTemporaryFile(prefix="lqbench-", suffix=".log", delete=False)  # noqa: SIM115  (removed by the handler)
    os.dup2(log.fileno(), 1)
    flags = [
        "--batch-size",
        str(O.get("batch", 100)),
        "--concurrency",
        str(O.get("concurrency", 1)),
        "--http-port",
        str(_free_port()),
    ]
    flags += ["--max-replicas", str(O.get("replicas", 1)), "--max-inflight", str(O.get("max_inflight", 1000))]
    flags += ["--strict-lanes"] if "lanes" in O else []
    flags += ["--audit" if O.get("audit", True) else "--no-audit", "--wakeup" if O.get("wakeup", True) else "--no-wakeup"]
    if "poll_ms" in O:
        flags += ["--poll-interval-ms", str(O["poll_ms"])]
    environment = {
        **os.environ, "LEASEQUEUE_DSN": DSN, "LEASEQUEUE_TABLE": TABLE, "LEASEQUEUE_HANDLER": "ours_handler:handle",
        "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]), "LQBENCH_CONTROL": str(control),
        "LQBENCH_LOG": log.name, "LQBENCH_AUDIT": "1" if O.get("audit", True) else "",
    }  # fmt: skip
    wrapper = O.get("wrapper", [])  # such as a profiler's command line
    words = [*wrapper, sys.executable, "-m", "leasequeue_worker.main", *flags]
    os.execvpe(words[0], words, environment)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def produce() -> None:
    """Single enqueues on schedule."""
    calls, late = [], []
    with connect(DSN) as conn:
        table = Table.load(conn, TABLE)
        for number, lateness in pace(O["rate"], O["seconds"]):
            t = time.time()
            leasequeue.enqueue(conn, table, [row(number, "LAT", repr(t))], notify=O.get("notify", True))
            calls.append(time.time() - t)
            late.append(lateness)
    sent(calls, late)


def wakecost() -> None:
    """Single enqueues with and without their notification, in turn, while a session listens: the medians and their ratio."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    with connect(DSN) as conn, connect(DSN) as listener:
        table = Table.load(conn, TABLE)
        listener.execute(f"LISTEN {table.channel}")
        for number in range(2 * O["n"]):
            notify = number % 4 in (0, 3)  # each comes first as often as the other
            began = time.perf_counter()
            if O["how"] == "tx":
                _with_effect(conn, table, number, notify)
            else:
                leasequeue.enqueue(conn, table, [row(number)], notify=notify)
            taken[notify].append(time.perf_counter() - began)
            if number % 100 == 0:
                listener.execute("SELECT 1")  # takes in what was notified
    with_ms, without_ms = (statistics.median(taken[notify]) * 1e3 for notify in (True, False))
    out({"with_ms": with_ms, "without_ms": without_ms, "ratio": with_ms / without_ms})


def version() -> None:
    """Our version."""
    from importlib.metadata import version as installed

    out({"version": installed("leasequeue")})


if __name__ == "__main__":
    {"setup": setup, "enqueue": enqueue, "work": work, "produce": produce, "wakecost": wakecost, "version": version}[
        sys.argv[1]
    ]()
