"""One run of the harness: measures part by part, notes failures, says what it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import psycopg
from rich.console import Console

import benchmarks.flat.cli as own
from benchmarks.flat.figures import Figure
from benchmarks.peers import flat, stats
from benchmarks.peers.adapter import Failed
from benchmarks.peers.measure import Bench
from benchmarks.peers.spec import Contender, Variant

PARTS = ("drain", "single", "enqueue", "latency", "flat", "memory")
ENQUEUE_SHARE = {"one": 0.1, "tx": 0.1, "bulk": 1.0}
SHOWN = ("drain_rate", "server_us", "worker_us", "wal_bytes", "rate", "p50_ms", "p99_ms", "call_p50_ms", "ratio")
console = Console(width=200, stderr=False)


class Session:
    """One run of the harness: measures, notes failures, says what it does.

    Args:
        bench: on a started server.
        contenders: who takes part.
        n: jobs of a calibration, and the measure of all other parts.
    """

    def __init__(self, bench: Bench, contenders: list[Contender], n: int) -> None:
        self.bench, self.contenders, self.n = bench, contenders, n
        self.began = time.monotonic()
        self.results: dict[str, Any] = {part: [] for part in (*PARTS, "wake", "calibration", "failed")}
        self.figures: list[Figure] = []
        self.results |= {"n": n, "started": time.strftime("%F %T"), "versions": {}, "durations": {}, "server": self._server()}
        for who in contenders:
            found = bench.call(who, "version", {}, "postgres")
            self.results["versions"][who.name] = found.get("version", "?")

    def _server(self) -> str:
        with self.bench.connect("postgres") as conn:
            return str(conn.execute("SELECT version()").fetchone())

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Note how long a part takes."""
        began = time.monotonic()
        yield
        self.results["durations"][part] = round(time.monotonic() - began)

    def note(self, part: str, who: Contender, what: str, measure: Callable[[], dict[str, Any]], **fields: Any) -> None:
        """Measure once; a failure is noted and the run goes on."""
        self.note_all(part, who, what, lambda: [{**measure(), **fields}])

    def note_all(self, part: str, who: Contender, what: str, measure: Callable[[], list[dict[str, Any]]]) -> None:
        """Measure what gives several results at once; likewise."""
        try:
            runs = measure()
        except (Failed, psycopg.Error) as error:
            self.results["failed"].append({"contender": who.name, "what": f"{part} {what}", "error": str(error)})
            self.say(f"[red]failed[/] {who.name} {what}: {str(error)[:400]}")
            return
        self.results[part] += runs
        for found in runs:
            figures = " ".join(f"{key}={found[key]:,.1f}" for key in SHOWN if isinstance(found.get(key), float))
            self.say(f"{part:11} {who.name:26} {what + ' ' + found.get('case', ''):28} {figures}")

    def say(self, line: str) -> None:
        """One line of progress."""
        console.print(f"[dim]{time.monotonic() - self.began:6.0f} s[/] {line}", highlight=False)

    def drains(self, calibrate: int, rounds: int, jobs: int) -> None:
        """Choose each contender's best configuration, then measure it, and those always shown, in interleaved rounds of `jobs` each."""
        for number, (who, variant) in stats.interleaved(calibrate, self._pairs(lambda _: True)):
            n = who.jobs(self.n, variant)
            self.note("calibration", who, variant.name, partial(self.bench.drain, who, variant, n), round=number)
        best = {who.name: stats.best(stats.pick(self.results["calibration"], contender=who.name)) for who in self.contenders}
        fastest100 = {who.name: self._best_limited(who) for who in self.contenders}
        self.results["best"] = best

        def shown(pair: tuple[Contender, Variant]) -> bool:
            who, variant = pair
            return variant.always or variant.name in (best[who.name], fastest100[who.name])

        for number, (who, variant) in stats.interleaved(rounds, self._pairs(shown)):
            n = who.jobs(jobs, variant)
            self.note("drain", who, variant.name, partial(self.bench.drain, who, variant, n), round=number)

    def _best_limited(self, who: Contender) -> str | None:
        names = {variant.name for variant in who.variant if variant.claim100}
        runs = stats.pick(self.results["calibration"], contender=who.name)
        return stats.best([run for run in runs if run["variant"] in names])

    def _pairs(self, wanted: Callable[[tuple[Contender, Variant]], bool]) -> list[tuple[Contender, Variant]]:
        """Configurations, the contenders' first ones together, then their second ones, and so on."""
        most = max(len(who.variant) for who in self.contenders)
        pairs = [(who, who.variant[i]) for i in range(most) for who in self.contenders if i < len(who.variant)]
        return [pair for pair in pairs if wanted(pair)]

    def singles(self, rounds: int) -> None:
        """One worker, one job at a time."""
        for number, who in stats.interleaved(rounds, [who for who in self.contenders if who.single]):
            variant = who.single
            assert variant is not None
            n = who.jobs(self.n, variant)
            self.note("single", who, variant.name, partial(self.bench.drain, who, variant, n), round=number)

    def enqueues(self, rounds: int) -> None:
        """Each way to enqueue."""
        pairs = [(who, how) for how in ENQUEUE_SHARE for who in self.contenders if how in who.enqueue]
        for number, (who, how) in stats.interleaved(rounds, pairs):
            n = max(100, int(self.n * ENQUEUE_SHARE[how] * min(1.0, 2 * who.scale)))
            self.note("enqueue", who, how, partial(self.bench.enqueue, who, how, n), round=number)

    def latencies(self, rounds: int, rate: int, seconds: int) -> None:
        """With wake-up, and once by polling."""
        for how, repeats in (("wake", rounds), ("poll", 1)):
            found = [(who, who.wake if how == "wake" else who.poll) for who in self.contenders]
            entries = [(who, variant) for who, variant in found if variant is not None]
            for number, (who, variant) in stats.interleaved(repeats, entries):
                measure = partial(self.bench.latency, who, variant, rate, seconds)
                self.note("latency", who, f"{how} {variant.name}", measure, how=how, round=number)

    def wakes(self, rounds: int) -> None:
        """What the notification costs our own enqueue calls."""
        pairs = [(who, how) for how in ("one", "tx") for who in self.contenders if who.kind == "ours" and who.enqueue]
        for number, (who, how) in stats.interleaved(rounds, pairs):
            n = max(100, self.n // 20)
            self.note("wake", who, how, partial(self.bench.wake_cost, who, how, n), round=number)

    def flats(self, rows: int, own_rows: int) -> None:
        """What stays flat: our claims singly, then everybody's drain.

        Args:
            rows: finished jobs beside which everybody drains.
            own_rows: RESOLVED rows beside which our claims are timed.
        """
        takers = [who for who in self.contenders if who.crowd is not None or who.history is not None]
        for who in takers:
            few = self._usual(who)
            n = who.jobs(self.n // 2)
            self.note_all("flat", who, "history", partial(flat.history, self.bench, who, few, n, rows))
            self.note_all("flat", who, "pinned", partial(flat.pinned, self.bench, who, few, who.jobs(self.n * 3 // 2)))
            self.note_all("flat", who, "lanes", partial(flat.lanes, self.bench, who, few, n))
            self.note_all("flat", who, "crowd", partial(flat.crowd, self.bench, who, few, n))
        if any(who.kind == "ours" for who in takers):
            self.bench.server.create_database("flat")
            self.figures = own.measured(self.bench.server.dsn("flat"), self.say, own_rows, 100_000)
            self.bench.server.drop_database("flat")
        self.results["own_flat"] = [asdict(figure) for figure in self.figures]

    def _usual(self, who: Contender) -> Variant:
        """The contender's best configuration, as far as it is known: the one of calibration, or the first that is always shown."""
        chosen = self.results.get("best", {}).get(who.name)
        always = [variant for variant in who.variant if variant.always]
        return next((variant for variant in who.variant if variant.name == chosen), (always or who.variant)[0])

    def memory(self, items: int) -> None:
        """A worker of ours over many items."""
        for who in self.contenders:
            if who.kind == "ours" and who.wake is not None:
                self.note_all("memory", who, f"{items:,} items", partial(flat.memory, self.bench, who, who.wake, items))
