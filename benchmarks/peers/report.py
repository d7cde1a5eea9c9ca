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
        wakes(results["wake"]),
        flats(results["flat"], contenders),
        memories(results["memory"]),
        durations(results["durations"]),
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


def wakes(runs: Sequence[Run]) -> Table:
    """What the notification costs an enqueue call."""
    table = Table(title="Enqueue call with and without its wake-up, while a session listens; medians, ms")
    for column in ("contender", "how", "with", "without", "ratio"):
        table.add_column(column, justify="left" if column in ("contender", "how") else "right")
    for name, how in dict.fromkeys((run["contender"], run["variant"]) for run in runs):
        found = pick(runs, contender=name, variant=how)
        cells = [spread(found, field) for field in ("with_ms", "without_ms", "ratio")]
        table.add_row(
            name, "one by one" if how == "one" else "in a transaction", *(cell.text(3) if cell else "–" for cell in cells)
        )
    return table


FIGURES = {
    "history": "beside {rows:,} finished jobs ÷ beside none",
    "pinned": "under a pinned xmin: last third ÷ first third",
    "lanes": "{rows} lanes ÷ none",
    "crowd": "enqueue to end with {rows} waiting processes ÷ with few",
}


def flats(runs: Sequence[Run], contenders: Sequence[Contender]) -> Table:
    """Jobs a second of the plain case and of the hard one, for everybody."""
    table = Table(title="What stays of the drain, through each one's own worker; medians, jobs/s", caption="1.00: flat")
    for column in ("figure", "contender", "jobs", "plain", "hard", "hard ÷ plain", "CPU µs/job plain", "hard"):
        table.add_column(column, justify="left" if column in ("figure", "contender") else "right")
    for figure, text in FIGURES.items():
        for contender in contenders:
            sides = [pick(runs, figure=figure, contender=contender.name, case=case) for case in ("base", "hard")]
            rates = [spread(side, "drain_rate") for side in sides]
            base, hard = rates
            if base is None or hard is None:
                continue
            cpus = [f"{cell.median:,.0f}" if (cell := spread(side, "cpu_us")) and figure != "pinned" else "" for side in sides]
            label = text.format(rows=sides[1][0].get("rows") or 0)
            row = (
                label,
                contender.name,
                f"{sides[1][0]['n']:,}",
                base.text(),
                hard.text(),
                f"{hard.median / base.median:.2f}",
                *cpus,
            )
            table.add_row(*row)
    return table


def memories(runs: Sequence[Run]) -> Table:
    """Resident memory of a worker on the way."""
    table = Table(title="Memory of one worker process, MB")
    for column in ("contender", "items", "after a tenth", "after a half", "at the end", "items/s"):
        table.add_column(column, justify="left" if column == "contender" else "right")
    for run in runs:
        sizes = [f"{size:,.1f}" for size in run["resident_on_the_way"]]
        table.add_row(run["contender"], f"{run['n']:,}", *sizes, f"{run['drain_rate']:,.0f}")
    return table


def durations(taken: dict[str, float]) -> Table:
    """How long each part took."""
    table = Table(title="Duration, s")
    if taken:
        for part in (*taken, "in all"):
            table.add_column(part, justify="right")
        table.add_row(*(f"{seconds:,.0f}" for seconds in (*taken.values(), sum(taken.values()))))
    return table


def judged(gates: Sequence[Gate]) -> Table:
    """The comparisons, and whether they hold."""
    table = Table(title="Gates")
    for column in ("comparison", "found", "wanted", ""):
        table.add_column(column, justify="left" if column == "comparison" else "right")
    for gate in gates:
        wanted = f"{gate.wanted} (aim)" if gate.aim else gate.wanted
        table.add_row(
            gate.name, gate.found, wanted, "[green]met[/]" if gate.ok else "[yellow]missed[/]" if gate.aim else "[red]missed[/]"
        )
    return table
