"""`python -m benchmarks.flat`: measure, show, save."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.cache import cache_dir
from benchmarks.flat import measures
from benchmarks.flat.figures import Figure
from benchmarks.server import bench_server

PARTS = ("history", "pinned", "lanes", "renewal")
console = Console(width=180)


@click.command(context_settings={"max_content_width": 120})
@click.option("--history", "rows", default=1_000_000, show_default=True, help="RESOLVED rows beside which claims are timed.")
@click.option("--items", default=100_000, show_default=True, help="Items claimed under a pinned xmin.")
@click.option("--parts", default=",".join(PARTS), show_default=True, help="What to measure.")
@click.option("--strict", is_flag=True, help="Exit with 1 when a figure is over its limit.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory of the results; by default in the cache.")
def main(rows: int, items: int, parts: str, strict: bool, out: Path | None) -> None:
    """Ratios within one run: what must not grow with history, dead rows, lanes or held leases."""
    unknown = sorted(set(parts.split(",")) - set(PARTS))
    if unknown:
        raise click.UsageError(f"no part {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    began = time.monotonic()

    def say(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {line}", highlight=False)

    with bench_server() as server:
        figures = measured(server.dsn(), say, rows, items, parts.split(","))
    console.print(table(figures))
    directory = out or cache_dir("bench", "results")
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "flat.json"
    path.write_text(json.dumps([asdict(figure) for figure in figures], indent=1, ensure_ascii=False))
    console.print(f"saved {path}; {time.monotonic() - began:.0f} s")
    if strict and not all(figure.ok for figure in figures):
        raise SystemExit(1)


def measured(dsn: str, say: measures.Say, rows: int, items: int, parts: Sequence[str] = PARTS) -> list[Figure]:
    """All figures of the parts.

    Args:
        dsn: a database of its own.
        say: progress.
        rows: RESOLVED rows beside which claims are timed.
        items: items claimed under a pinned xmin.
        parts: what to measure.
    """
    made: dict[str, Callable[[], list[Figure]]] = {
        "history": partial(measures.history, dsn, say, rows),
        "pinned": partial(measures.pinned, dsn, say, items),
        "lanes": partial(measures.lanes, dsn, say),
        "renewal": partial(measures.renewal, dsn, say),
    }
    return [figure for part in parts for figure in made[part]()]


def table(figures: list[Figure]) -> Table:
    """One line a figure."""
    made = Table(title="What stays flat")
    for column in ("figure", "base or wanted", "found", "ratio", "limit", ""):
        made.add_column(column, justify="left" if column == "figure" else "right")
    for figure in figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        limit = "" if figure.limit is None else f"≤ {figure.limit:g}"
        judged = figure.limit is not None or figure.ratio is None
        word = ("[green]holds[/]" if figure.ok else "[red]fails[/]") if judged else "shown"
        made.add_row(figure.name, figure.base, figure.found, ratio, limit, word)
    return made
