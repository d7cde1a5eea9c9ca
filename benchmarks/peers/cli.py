"""`python -m benchmarks.peers`: install, measure, show, save."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import psycopg
from rich.console import Console

from benchmarks.cache import cache_dir
from benchmarks.peers import gates, report, stats
from benchmarks.peers.adapter import Failed
from benchmarks.peers.install import CannotInstallError, install
from benchmarks.peers.measure import Bench
from benchmarks.peers.spec import HERE, Contender, Variant, chosen, load
from benchmarks.server import bench_server

PARTS = ("drain", "single", "enqueue", "latency")
ENQUEUE_SHARE = {"one": 0.1, "tx": 0.1, "bulk": 1.0}
console = Console(width=200, stderr=False)


class Session:
    """One run of the harness: measures, notes failures, says what it does.

    Args:
        bench: on a started server.
        contenders: who takes part.
        n: jobs of a drain.
    """

    def __init__(self, bench: Bench, contenders: list[Contender], n: int) -> None:
        self.bench, self.contenders, self.n = bench, contenders, n
        self.began = time.monotonic()
        self.results: dict[str, Any] = {part: [] for part in (*PARTS, "calibration", "failed")}
        self.results |= {"n": n, "started": time.strftime("%F %T"), "versions": {}, "server": self._server()}
        for who in contenders:
            found = bench.call(who, "version", {}, "postgres")
            self.results["versions"][who.name] = found.get("version", "?")

    def _server(self) -> str:
        with self.bench.connect("postgres") as conn:
            return str(conn.execute("SELECT version()").fetchone())

    def note(self, part: str, who: Contender, what: str, measure: Callable[[], dict[str, Any]], **fields: Any) -> None:
        """Measure once; a failure is noted and the run goes on."""
        try:
            found = {**measure(), **fields}
        except (Failed, psycopg.Error) as error:
            self.results["failed"].append({"contender": who.name, "what": f"{part} {what}", "error": str(error)})
            self.say(f"[red]failed[/] {who.name} {what}: {str(error)[:400]}")
            return
        self.results[part].append(found)
        figures = " ".join(f"{key}={found[key]:,.1f}" for key in SHOWN if isinstance(found.get(key), float))
        self.say(f"{part:11} {who.name:26} {what:28} {figures}")

    def say(self, line: str) -> None:
        """One line of progress."""
        console.print(f"[dim]{time.monotonic() - self.began:6.0f} s[/] {line}", highlight=False)

    def drains(self, calibrate: int, rounds: int) -> None:
        """Choose each contender's best configuration, then measure it, and those always shown, in interleaved rounds."""
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
            n = who.jobs(self.n, variant)
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
        """With wake-up and by polling."""
        found = [(who, how, who.wake if how == "wake" else who.poll) for how in ("wake", "poll") for who in self.contenders]
        entries = [(who, how, variant) for who, how, variant in found if variant is not None]
        for number, (who, how, variant) in stats.interleaved(rounds, entries):
            measure = partial(self.bench.latency, who, variant, rate, seconds)
            self.note("latency", who, f"{how} {variant.name}", measure, how=how, round=number)


SHOWN = ("drain_rate", "server_us", "worker_us", "wal_bytes", "rate", "p50_ms", "p99_ms", "call_p50_ms")


@click.command(context_settings={"max_content_width": 120})
@click.option("--n", default=20_000, show_default=True, help="Jobs of a drain.")
@click.option("--rounds", default=5, show_default=True, help="Interleaved repeats of the best configurations.")
@click.option("--calibrate", default=1, show_default=True, help="Passes over all configurations that choose the best.")
@click.option("--only", help="Contenders, as a comma list; all by default.")
@click.option("--parts", default=",".join(PARTS), show_default=True, help="What to measure.")
@click.option(
    "--add", "added", multiple=True, type=click.Path(path_type=Path, exists=True), help="A TOML file with further contenders."
)
@click.option("--rate", default=200, show_default=True, help="Latency: jobs a second.")
@click.option("--seconds", default=10, show_default=True, help="Latency: seconds a run.")
@click.option("--of-raw", default=0.8, show_default=True, help="Least share of raw's drain rate, shape by shape.")
@click.option("--strict", is_flag=True, help="Exit with 1 when a gate fails.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory of results and plots; by default in the cache.")
def main(
    n: int, rounds: int, calibrate: int, only: str | None, parts: str, added: tuple[Path, ...], rate: int, seconds: int,
    of_raw: float, strict: bool, out: Path | None,
) -> None:  # fmt: skip
    """Measure LeaseQueue beside its peers on one PostgreSQL, interleaved, and say which gates hold."""
    try:
        contenders = chosen(load(HERE / "contenders.toml", *added), only)
        if any("{ours}" not in who.cmd for who in contenders):
            console.print("installing the peers, where they are not there yet …")
            install(cache_dir("bench"))
    except (ValueError, CannotInstallError) as error:
        raise click.UsageError(str(error)) from None
    wanted = parts.split(",")
    with bench_server() as server:
        session = Session(Bench(server, cache_dir("bench")), contenders, n)
        if "drain" in wanted:
            session.drains(calibrate, rounds)
        if "single" in wanted:
            session.singles(max(1, rounds // 2))
        if "enqueue" in wanted:
            session.enqueues(max(1, rounds // 2))
        if "latency" in wanted:
            session.latencies(max(1, rounds // 3), rate, seconds)
    found = judge(session, of_raw)
    report.show(console, session.results, contenders, found)
    session.results["seconds"] = round(time.monotonic() - session.began)
    _save(session.results, found, out or cache_dir("bench", "results"))
    told = gates.verdict(found)
    failures = len(session.results["failed"])
    console.print(
        f"{told['passed']} gates hold, {told['failed']} fail, {failures} measurements failed; {session.results['seconds']} s"
    )
    if strict and (told["failed"] or failures or not found):
        raise SystemExit(1)


def judge(session: Session, of_raw: float) -> list[gates.Gate]:
    """All gates that what was measured allows."""
    results, contenders = session.results, session.contenders
    found = gates.drain_gates(results["drain"], contenders, of_raw)
    found += gates.single_gates(results["single"], contenders, "drain_rate", "one at a time")
    for how in ENQUEUE_SHARE:
        found += gates.single_gates(stats.pick(results["enqueue"], variant=how), contenders, "rate", f"enqueue, {how}")
    return found + gates.latency_gates(results["latency"], contenders)


def _save(results: dict[str, Any], found: list[gates.Gate], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    results["gates"] = [{"name": g.name, "found": g.found, "wanted": g.wanted, "ok": g.ok} for g in found]
    path = directory / "peers.json"
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False))
    console.print(f"saved {path}")
    python = cache_dir("bench") / "venv/bin/python"
    if python.exists():
        drawn = subprocess.run(
            [str(python), str(HERE / "plots.py"), str(path)], capture_output=True, text=True, timeout=300, check=False
        )
        console.print(drawn.stdout.strip() or drawn.stderr.strip()[-400:])
