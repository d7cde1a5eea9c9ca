"""The demo's summary must say what happened, and notice every promise that was not kept."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from decimal import Decimal

import pytest
from rich.console import Console

from demo.show import Screen
from demo.summary import Alert, Evidence, Kill, ReclaimRun, lines, problems
from examples.review_queue.check import EntityTotal, Report

REPORT = Report(
    source_items=2000,
    items_in=2000,
    altered=(),
    resolved=2000,
    postings=2000,
    lost=0,
    doubled=0,
    strays=0,
    executions_started=2018,
    totals=(
        EntityTotal("A", Decimal("1234.50"), Decimal("1234.50")),
        EntityTotal("B", Decimal("-0.25"), Decimal("-0.25")),
    ),
)
GOOD = Evidence(
    report=REPORT,
    wanted_items=2000,
    workers_before=0,
    workers_most=5,
    workers_after=0,
    kill=Kill("review-worker-1", "review-worker-1-x", 137, 18),
    back=18,
    runs=(ReclaimRun("review-reclaimer-123", 18, 18),),
    alert=Alert("AboveWarning", "AboveWarning", 97, 80),
    max_inflight=100,
    most_inflight=100,
    seconds=150.4,
)


def test_a_good_run_is_told_line_by_line() -> None:
    assert lines(GOOD) == [
        ("items in", "2000"),
        ("resolved", "2000"),
        ("postings", "2000"),
        ("lost", "0"),
        ("doubled", "0"),
        ("totals exact", "yes: 2 ledger entities, 1,234.25 dollars posted"),
        ("executions started", "2018 (sum of attempts)"),
        ("workers 0→N→0", "N = 5"),
        ("worker killed", "review-worker-1 by SIGKILL, exit code 137; it left 18 leases behind"),
        ("items reclaimed by CronJob run review-reclaimer-123", "18 by its record, 18 by its log"),
        ("in-flight alert shown at 80 %", "yes: condition AboveWarning, event AboveWarning, metric 97 of threshold 80"),
        ("in flight at most", "100 of 100"),
        ("seconds", "150"),
    ]
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"report": replace(REPORT, lost=1)}, "1 items have no posting"),
        ({"report": replace(REPORT, doubled=2)}, "2 postings are over one an item"),
        ({"report": replace(REPORT, resolved=1999)}, "1 of 2000 items are not resolved"),
        ({"report": replace(REPORT, totals=(EntityTotal("A", Decimal("1.00"), Decimal("1.01")),))}, "A: posted 1.01"),
        ({"wanted_items": 2357}, "2000 items went in, 2357 were to"),
        ({"workers_before": 1}, "workers went 1→5→0"),
        ({"workers_most": 1}, "workers went 0→1→0"),
        ({"workers_after": 2}, "workers went 0→5→2"),
        ({"kill": None}, "no worker was killed"),
        ({"kill": Kill("w", "w-x", 0, 18)}, "w ended with exit code 0, SIGKILL gives 137"),
        ({"kill": Kill("w", "w-x", None, 18)}, "w ended with exit code None"),
        ({"kill": Kill("w", "w-x", 137, 0)}, "w held no lease"),
        ({"back": 17}, "1 of 18 leases of review-worker-1 were not reclaimed"),
        ({"runs": ()}, "runs of the CronJob reclaimed 0 items, fewer than the 18"),
        ({"runs": (ReclaimRun("a", 9, 9), ReclaimRun("b", 8, 8))}, "reclaimed 17 items"),
        ({"runs": (ReclaimRun("a", 18, 17),)}, "the log of a has 17 reclaimed items, its record 18"),
        ({"alert": Alert("AboveWarning", "AboveWarning", 79, 80)}, "the in-flight alert was not shown"),
        ({"alert": Alert(None, "AboveWarning", 97, 80)}, "condition none"),
        ({"alert": Alert("AboveWarning", None, 97, 80)}, "event none"),
        ({"most_inflight": 101}, "101 items were in flight, the ceiling is 100"),
    ],
)
def test_a_promise_that_was_not_kept_is_named(change: dict[str, object], expected: str) -> None:
    found = problems(replace(GOOD, **change))  # type: ignore[arg-type]
    assert len(found) == 1, found
    assert expected in found[0]


def test_reclaims_spread_over_runs_are_added() -> None:
    runs = (ReclaimRun("a", 10, 10), ReclaimRun("b", 8, 8))
    seen = replace(GOOD, runs=runs)
    assert problems(seen) == []
    assert ("items reclaimed by CronJob run b", "8 by its record, 8 by its log") in lines(seen)


def printed(terminal: bool, found: list[str]) -> str:
    out = io.StringIO()
    Screen(Console(file=out, force_terminal=terminal, width=120, soft_wrap=True)).summary(lines(GOOD), found)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


@pytest.mark.parametrize("terminal", [True, False])
def test_the_screen_says_whether_all_was_as_promised(terminal: bool) -> None:
    assert "All as promised." in printed(terminal, [])
    assert "postings: 2000" in printed(False, [])
    bad = printed(terminal, ["1 items have no posting"])
    assert "not as promised: 1 items have no posting" in bad
    assert "All as promised." not in bad


def test_progress_without_a_terminal_is_plain_lines() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, force_terminal=False, width=120))
    with screen.progress(2000) as bar:
        bar.update(10, "workers 1 of 5")
        bar.update(20, "too soon for another line")
    assert "resolved 10 of 2000; workers 1 of 5" in out.getvalue()
    assert "too soon" not in out.getvalue()
    assert "\x1b" not in out.getvalue()
