"""What stays flat, for everybody alike and through their own workers: a drain beside a long history, while an old snapshot is held, in
lanes, and by many processes; and the memory of a worker over many jobs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks.peers.adapter import Failed
from benchmarks.peers.spec import Contender, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.peers.measure import Bench

CROWD = 50
LANES = 200
FILLERS = 2
PAGE = 100_000
# A job's keys, where a contender has any, must be new in each drain of one database.
PREFIXES = ("a-", "b-")
Runs = list[dict[str, Any]]


def history(bench: Bench, who: Contender, variant: Variant, n: int, rows: int) -> Runs:
    """Drains beside `rows` finished jobs and beside none, in turn.

    Raises:
        Failed: counts are wrong, or the history could not be made.
    """
    if who.history is None:
        return []
    with bench.fresh(who, who.options(variant)) as plain, bench.fresh(who, who.options(variant)) as full:
        fill(bench, full, who.history, rows)
        found: Runs = []
        for number, order in enumerate(((plain, full), (full, plain))):
            for db in order:
                run = bench.drain_in(db, who, variant, n, prefix=PREFIXES[number])
                found.append({**run, "figure": "history", "case": "hard" if db == full else "base", "rows": rows})
    return found


def fill(bench: Bench, db: str, statement: str, rows: int) -> None:
    """Add finished rows, by a few sessions at once."""
    failures: list[Exception] = []

    def part(first: int) -> None:
        try:
            with bench.connect(db) as conn:
                for low in range(first * PAGE + 1, rows + 1, PAGE * FILLERS):
                    text = statement.replace("{low}", str(low)).replace("{high}", str(min(rows, low + PAGE - 1)))
                    conn.execute(text.encode(), prepare=False)
        except psycopg.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=part, args=(first,)) for first in range(FILLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Failed(f"history: {failures[0]}")


@contextmanager
def old_snapshot(bench: Bench, db: str) -> Iterator[None]:
    """Hold a snapshot: no version of a row that is made meanwhile can be cleaned away."""
    with psycopg.connect(bench.server.dsn(db)) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM pg_class")
        yield
        holder.rollback()


def pinned(bench: Bench, who: Contender, variant: Variant, n: int) -> Runs:
    """A drain while an old snapshot is held: its end beside its beginning."""
    with bench.fresh(who, who.options(variant)) as db, old_snapshot(bench, db):
        run = bench.drain_in(db, who, variant, n)
    if "late_rate" not in run:
        raise Failed("the drain was over before its pace could be seen; more jobs are needed")
    return [
        {**run, "figure": "pinned", "case": "base", "drain_rate": run["early_rate"]},
        {**run, "figure": "pinned", "case": "hard", "drain_rate": run["late_rate"]},
    ]


def lanes(bench: Bench, who: Contender, variant: Variant, n: int) -> Runs:
    """Drains of jobs spread over lanes, and of jobs without any."""
    if who.lanes is None:
        return []
    found: Runs = []
    for case, options in (("base", {}), ("hard", who.lanes)):
        made = variant.model_copy(update={"opts": {**variant.opts, **options}})
        found.append({**bench.drain(who, made, n), "figure": "lanes", "case": case, "rows": options.get("lanes")})
    return found


def crowd(bench: Bench, who: Contender, few: Variant, n: int) -> Runs:
    """Jobs that come to many waiting processes, and to the few of the contender's usual configuration."""
    if who.crowd is None:
        return []
    many = who.crowd.model_copy(update={"procs": CROWD})
    pairs = (("base", few), ("hard", many))
    return [{**bench.rush(who, variant, n), "figure": "crowd", "case": case, "rows": CROWD} for case, variant in pairs]


def memory(bench: Bench, who: Contender, variant: Variant, n: int) -> Runs:
    """One worker over many jobs: its resident memory after a tenth, a half and all of them."""
    return [bench.drain(who, variant.model_copy(update={"procs": 1}), n)]
