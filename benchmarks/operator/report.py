"""Figures, each with what it is held to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.operator.readings import WRITES, Reading

POLLS_AN_HOUR = 720  # at the default period of 5 s
# The least that Python's allocator and the resident pages of libraries move by over an hour, MiB.
FLAT_MIB = 16.0
FLAT_SHARE = 0.05


@dataclass(frozen=True)
class Figure:
    """One line. `holds`: None where nothing is promised."""

    name: str
    found: str
    promised: str = ""
    holds: bool | None = None


def quiet(before: Reading, after: Reading, queues: int, poll_s: float, ages: Sequence[float], groups: int) -> list[Figure]:
    """A time in which nothing happened."""
    seconds = after.at - before.at
    rounds = (after.reconciled - before.reconciled) / queues
    cycle_s = seconds / rounds if rounds else float("inf")
    calls, questions = _minus(after.calls, before.calls), _minus(after.questions, before.questions)
    writes = {k: n for k, n in calls.items() if k.split()[0] in WRITES and "selfsubject" not in k}
    reads = sum(n for k, n in calls.items() if k.startswith("GET "))
    polls = seconds / poll_s
    samples = questions["sample"] / polls / groups
    statements = _minus(after.statements, before.statements)
    cpu = (after.cpu_s - before.cpu_s) / seconds
    return [
        Figure("queues that are sampled", str(after.samples), str(queues), after.samples == queues),
        Figure("quiet time, s", f"{seconds:.0f}"),
        Figure("rounds over all queues", f"{rounds:.1f}"),
        Figure("one round, s", f"{cycle_s:.2f}", f"≤ {poll_s * 1.1:.1f}", cycle_s <= poll_s * 1.1),
        Figure("oldest sample of any queue at any look, s", f"{max(ages):.1f}", f"≤ {2 * poll_s:g}", max(ages) <= 2 * poll_s),
        Figure("operator: writes", _told(writes) or "0", "0", not writes),
        Figure("API server: writes of these kinds by anybody", _told(_minus(after.server_writes, before.server_writes)) or "0"),
        Figure("operator: reads a second", f"{reads / seconds:.1f}"),
        Figure("database: sample messages a poll a DSN", f"{samples:.2f}", "≤ 1", samples <= 1.0),
        Figure("database: statements, by pg_stat_statements", _told(statements)),
        Figure("database: statements that read queues, a poll a DSN", f"{statements['sample'] / polls / groups:.1f}"),
        Figure("operator: share of a core", f"{cpu:.2f}"),
        Figure("operator: CPU a queue and poll, ms", f"{(after.cpu_s - before.cpu_s) / rounds / queues * 1000:.2f}"),
        Figure("database: share of a core", f"{(after.database_cpu_s - before.database_cpu_s) / seconds:.2f}"),
        Figure("one scrape of the metrics, s", f"{after.scrape_s:.2f}"),
        Figure("operator: memory, MiB", f"{after.rss_mib:.0f}"),
    ]


def memory(readings: Sequence[tuple[float, float]], wanted_rounds: float) -> list[Figure]:
    """Memory over many rounds: (rounds done, MiB) in order. The first quarter is warming up."""
    rounds = readings[-1][0]
    settled = [mib for done, mib in readings if done >= rounds / 4] or [readings[-1][1]]
    half = len(settled) // 2 or 1
    early, late = sum(settled[:half]) / half, sum(settled[-half:]) / half
    limit = max(FLAT_MIB, early * FLAT_SHARE)
    return [
        Figure("rounds", f"{rounds:.0f}", f"≥ {wanted_rounds:.0f}", rounds >= wanted_rounds),
        Figure("memory at the start, MiB", f"{readings[0][1]:.0f}"),
        Figure("memory at the end, MiB", f"{readings[-1][1]:.0f}"),
        Figure("growth after the first quarter, MiB", f"{late - early:+.1f}", f"≤ {limit:.0f}", late - early <= limit),
        Figure("highest, MiB", f"{max(mib for _, mib in readings):.0f}"),
    ]


def table(title: str, figures: Sequence[Figure]) -> Table:
    """One line a figure."""
    made = Table(title=title, title_justify="left")
    for column in ("figure", "found", "promised", ""):
        made.add_column(column, overflow="fold")
    for f in figures:
        made.add_row(f.name, f.found, f.promised, "" if f.holds is None else "[green]holds[/]" if f.holds else "[red]fails[/]")
    return made


def _minus(after: Counter[str], before: Counter[str]) -> Counter[str]:
    return Counter({k: n - before[k] for k, n in after.items() if n != before[k]})


def _told(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{k} {n}" for k, n in sorted(counts.items()))
