"""Judges a finished run: what the table shows against what the tree and the plan ask for. `judge` is pure."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from rich.table import Table as Grid

from examples.content_pipeline.jobs import Plan
from leasequeue.config import BlockedHead

JOBS = """
    SELECT id, kind, topic, lane, state, attempt, crash_count, created_at, run_at, leased_at, resolved_at, result IS NOT NULL,
           last_error
    FROM content_jobs ORDER BY lane, created_at, id
"""
PUBLISHED = "SELECT path, count(*) FROM content_published GROUP BY path"
BROKEN_LINKS = """
    SELECT coalesce(sum((checked->>'missing_pages')::int), 0), coalesce(sum((checked->>'missing_anchors')::int), 0),
           coalesce(sum((checked->>'inside')::int), 0)
    FROM content_page
"""
AFTER_REPAIR = ("generate", "validate", "publish")


@dataclass(frozen=True, slots=True)
class Job:
    """One row of content_jobs at the end; see JOBS."""

    id: int
    kind: str
    topic: str
    lane: str | None
    state: str
    attempt: int
    crash_count: int
    created_at: datetime
    run_at: datetime
    leased_at: datetime | None
    resolved_at: datetime | None
    has_result: bool
    last_error: str | None

    @property
    def took_s(self) -> float:
        """From its last lease to its completion, seconds; 0 where it was not completed."""
        return (self.resolved_at - self.leased_at).total_seconds() if self.resolved_at and self.leased_at else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left behind, as read from the database and the output directory.

    Args:
        jobs: by lane, in the order of each lane.
        published: page → rows in content_published.
        files: published pages found as files.
        links: links inside the tree that were followed, and how many led to no page or to no anchor.
        blocked: jobs by state in the lane of the malformed page at the moment when nothing else was left to do; None under Pass.
        released: lanes that a person released (requeued their head).
    """

    jobs: tuple[Job, ...]
    published: Mapping[str, int]
    files: frozenset[str]
    links: tuple[int, int, int]
    blocked: Mapping[str, int] | None
    released: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict. `problems` is empty where everything is as it should be."""

    pages: int
    lanes: int
    states: Mapping[str, int]
    order_violations: tuple[str, ...]
    longest_s: float
    longest: str
    lease_s: float
    early: int
    published: int
    repair: tuple[tuple[str, str], ...]
    links: tuple[int, int, int]
    blocked: Mapping[str, int] | None
    released: tuple[str, ...]
    problems: tuple[str, ...]


def read(conn: psycopg.Connection[Any], out: Path, *, blocked: Mapping[str, int] | None, released: Sequence[str]) -> Outcome:
    """Read a run's outcome in one snapshot; `conn` must be autocommit."""
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        jobs = tuple(Job(*row) for row in conn.execute(JOBS))
        published = dict(conn.execute(PUBLISHED))
        pages, anchors, inside = conn.execute(BROKEN_LINKS).fetchone() or (0, 0, 0)
    files = frozenset(path.relative_to(out).as_posix().removesuffix(".json") for path in out.rglob("*.json"))
    return Outcome(jobs, published, files, (int(inside), int(pages), int(anchors)), blocked, tuple(released))


def order_violations(jobs: Iterable[Job]) -> tuple[str, ...]:
    """Jobs that were leased before an earlier job of their lane was completed. Jobs set aside are passed by whoever follows."""
    lanes: dict[str, list[Job]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: (job.created_at, job.id)):
        if job.lane is not None and job.state == "RESOLVED":
            lanes[job.lane].append(job)
    return tuple(
        f"{after.kind} {after.topic} began before {before.kind} {before.topic} ended"
        for lane in lanes.values()
        for before, after in itertools.pairwise(lane)
        if after.leased_at is None or before.resolved_at is None or after.leased_at < before.resolved_at
    )


def judge(plan: Plan, outcome: Outcome, *, lease_s: float, policy: BlockedHead) -> Report:
    """Compare the outcome with the plan. Pure.

    Args:
        plan: what was enqueued.
        outcome: what is there now.
        lease_s: lease duration, seconds.
        policy: what lanes do with a head that cannot run.
    """
    done = [job for job in outcome.jobs if job.state == "RESOLVED"]
    longest = max(done, key=lambda job: job.took_s, default=None)
    repair = tuple((f"{job.kind} {job.topic}", job.last_error or "") for job in outcome.jobs if job.state == "REPAIR")
    early = sum(job.leased_at is not None and job.leased_at < job.run_at for job in done)
    violations = order_violations(outcome.jobs)
    return Report(
        pages=plan.pages,
        lanes=len(plan.lanes),
        states=Counter(job.state for job in outcome.jobs),
        order_violations=violations,
        longest_s=longest.took_s if longest else 0.0,
        longest=f"{longest.kind} {longest.topic}" if longest else "",
        lease_s=lease_s,
        early=early,
        published=sum(outcome.published.values()),
        repair=repair,
        links=outcome.links,
        blocked=outcome.blocked,
        released=outcome.released,
        problems=tuple(_problems(plan, outcome, longest, violations, early, lease_s, policy)),
    )


def _problems(
    plan: Plan,
    outcome: Outcome,
    longest: Job | None,
    violations: Sequence[str],
    early: int,
    lease_s: float,
    policy: BlockedHead,
) -> Iterable[str]:
    aside = {(kind, plan.broken) for kind in AFTER_REPAIR} if policy == "Pass" else set()
    if len(outcome.jobs) != len(plan.rows):
        yield f"{len(outcome.jobs)} jobs in the table, {len(plan.rows)} were enqueued"
    for job in outcome.jobs:
        wanted = "REPAIR" if (job.kind, job.topic) in aside else "RESOLVED"
        if job.state != wanted:
            yield f"{job.kind} {job.topic} is {job.state}, not {wanted} ({job.last_error or 'no error'})"
        elif job.state == "RESOLVED" and not job.has_result:
            yield f"{job.kind} {job.topic} has no result"
        if job.crash_count:
            yield f"{job.kind} {job.topic} was reclaimed {job.crash_count} times: its lease was not renewed"
    if violations:
        yield f"{len(violations)} jobs out of order in their lane, for example: {violations[0]}"
    if early:
        yield f"{early} jobs began before their time"
    if longest is None or longest.took_s <= lease_s or longest.attempt != 1:
        yield f"no job outlived its lease of {lease_s:g} s at its first attempt"
    yield from _publications(plan, outcome, policy)
    if policy == "Block":
        yield from _blocking(plan, outcome)


def _publications(plan: Plan, outcome: Outcome, policy: BlockedHead) -> Iterable[str]:
    wanted = {row["topic"] for row in plan.rows if row["kind"] == "publish"} - ({plan.broken} if policy == "Pass" else set())
    doubled = sorted(path for path, count in outcome.published.items() if count > 1)
    if doubled:
        yield f"{len(doubled)} pages were published more than once, for example {doubled[0]}"
    for what, found in (("published", set(outcome.published)), ("on disk", set(outcome.files))):
        if found != wanted:
            yield f"{len(wanted - found)} pages are not {what}, {len(found - wanted)} should not be"


def _blocking(plan: Plan, outcome: Outcome) -> Iterable[str]:
    blocked = outcome.blocked or {}
    if blocked.get("REPAIR") != 1:
        yield f"the malformed page was not set aside as the one head of its lane: {dict(blocked)}"
    if not blocked.get("PENDING", 0) + blocked.get("SCHEDULED", 0):
        yield "nothing waited behind the malformed page: its lane was not blocked"
    if outcome.released != (plan.broken_lane,):
        yield f"released lanes are {list(outcome.released)}, not {[plan.broken_lane]}"


def render(report: Report) -> Grid:
    """The report as a table for people."""
    grid = Grid("what", "found", title="Content pipeline")
    inside, missing, anchors = report.links
    rows = [
        ("pages", f"{report.pages:,} in {report.lanes} lanes"),
        ("jobs", ", ".join(f"{state} {count:,}" for state, count in sorted(report.states.items()))),
        ("order violations inside lanes", f"{len(report.order_violations)}"),
        ("begun before their time", f"{report.early}"),
        ("longest job", f"{report.longest_s:.1f} s ({report.longest}), lease {report.lease_s:g} s"),
        ("published", f"{report.published:,} rows, one a page" if not report.problems else f"{report.published:,} rows"),
        ("links inside the tree", f"{inside:,} followed; {missing:,} pages and {anchors:,} anchors are not there"),
        ("REPAIR at the end", "; ".join(f"{job}: {error}" for job, error in report.repair) or "none"),
    ]
    if report.blocked is not None:
        blocked = ", ".join(f"{state} {count}" for state, count in sorted(report.blocked.items()))
        rows.append(("lane of the malformed page, blocked", blocked))
    rows.append(("released lanes", ", ".join(report.released) or "none"))
    for row in rows:
        grid.add_row(*row)
    return grid
