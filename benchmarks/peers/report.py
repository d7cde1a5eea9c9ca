"""Tables of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.gates import Gate
from benchmarks.peers.spec import Contender
from benchmarks.peers.stats import Run, pick, spread


def show(console: Console, results: dict[str, Any], contenders: Sequence[Contender], gates: Sequence[Gate]) -> None:
    """Print everything that was measured."""
    versions = results["versions"]
    for table in (
        drains("Drain of no-op jobs", results["drain"], contenders, versions),
        drains("One at a time: one worker, one job a claim", results["single"], contenders, versions),
        enqueues(results["enqueue"], contenders),
        latencies(results["latency"], contenders),
        judged(gates),
    ):
        if table.row_count:
            console.print(table)
    for failure in results["failed"]:
        console.print(f"[red]failed[/] {failure['contender']}, {failure['what']}: {failure['error'][:300]}")


def drains(title: str, runs: Sequence[Run], contenders: Sequence[Contender], versions: dict[str, str]) -> Table:
    """One row a contender and configuration, fastest first."""
    columns = (
        "contender",
        "configuration",
        "jobs",
        "jobs/s (min–max)",
        "CPU µs/job server + worker",
        "WAL B/job",
        "idle %",
        "MB",
    )
    table = Table(title=title, caption="medians over interleaved rounds; finished rows: " + fates(contenders))
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:2] else "right")
    rows = []
    for name, variant in dict.fromkeys((run["contender"], run["variant"]) for run in runs):
        found = pick(runs, contender=name, variant=variant)
        rate = spread(found, "drain_rate")
        cells = {
            field: spread(found, field) for field in ("server_us", "worker_us", "wal_bytes", "idle_percent", "resident_mb")
        }
        text = {field: f"{cell.median:,.0f}" if cell else "–" for field, cell in cells.items()}
        label = f"{name} {versions.get(name, '')}".strip()
        row = (label, variant, f"{found[0]['n']:,}", rate.text() if rate else "–", f"{text['server_us']} + {text['worker_us']}")
        rows.append((rate.median if rate else 0.0, [*row, text["wal_bytes"], text["idle_percent"], text["resident_mb"]]))
    for _, line in sorted(rows, key=lambda entry: entry[0], reverse=True):
        table.add_row(*line)
    return table


def fates(contenders: Sequence[Contender]) -> str:
    """What becomes of finished rows, by contender."""
    groups: dict[str, list[str]] = {}
    for contender in contenders:
        groups.setdefault(contender.fate, []).append(contender.name)
    return "; ".join(f"{fate}: {', '.join(names)}" for fate, names in groups.items())


def enqueues(runs: Sequence[Run], contenders: Sequence[Contender]) -> Table:
    """Jobs a second by each way to enqueue."""
    table = Table(title="Enqueue, jobs/s (min–max); one process, one connection")
    for column, justify in (
        ("contender", "left"),
        ("one by one", "right"),
        ("in the caller's transaction", "right"),
        ("bulk", "right"),
    ):
        table.add_column(column, justify="left" if justify == "left" else "right")
    for contender in contenders:
        cells = [spread(pick(runs, contender=contender.name, variant=how), "rate") for how in ("one", "tx", "bulk")]
        if any(cells):
            table.add_row(contender.name, *(cell.text() if cell else "–" for cell in cells))
    return table


def latencies(runs: Sequence[Run], contenders: Sequence[Contender]) -> Table:
    """From the enqueue call to the start of the handler."""
    table = Table(title="Latency from just before the enqueue call to the start of the handler, ms")
    for column in ("contender", "how", "configuration", "p50", "p99", "max", "enqueue call p50", "CPU % server + worker"):
        table.add_column(column, justify="left" if column in ("contender", "how", "configuration") else "right")
    for contender in contenders:
        for how, shown in (("wake", "wake-up"), ("poll", "polling")):
            found = pick(runs, contender=contender.name, how=how)
            if not found:
                continue
            cells = [spread(found, field) for field in ("p50_ms", "p99_ms", "max_ms", "call_p50_ms")]
            cpu = " + ".join(f"{cell.median:.0f}" for f in ("server_percent", "worker_percent") if (cell := spread(found, f)))
            texts = [f"{cell.median:.2f}" if cell else "–" for cell in cells]
            table.add_row(contender.name, shown, found[0]["variant"], *texts, cpu)
    return table


def judged(gates: Sequence[Gate]) -> Table:
    """The comparisons, and whether they hold."""
    table = Table(title="Gates")
    for column in ("comparison", "found", "wanted", ""):
        table.add_column(column, justify="left" if column == "comparison" else "right")
    for gate in gates:
        table.add_row(gate.name, gate.found, gate.wanted, "[green]holds[/]" if gate.ok else "[red]fails[/]")
    return table
