"""The content pipeline on a real PostgreSQL with real worker processes: a small tree of the test's own, and the real one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from examples.content_pipeline.fleet import Fleet, FleetError, Program
from examples.content_pipeline.run import Options, run
from leasequeue.config import BlockedHead

ROOT = Path(__file__).parents[2]
PAGES = {
    "index.html": '<title>Start</title><h1>Start</h1><a href="guide/one.html#part">one</a><a href="gone.html">gone</a>',
    "guide/one.html": '<title>One</title><h1 id="part">Part</h1><a href="../index.html#nowhere">start</a>',
    "guide/two.html": '<title>Two</title><h2>Section</h2><a href="https://example.org/">out</a>',
    "guide/three.html": "<h1>Three has no title</h1><p>some words</p>",
}
BROKEN = "half-uploaded.html"  # joins the smallest lane, which is the top directory


@pytest.fixture
def small(tmp_path: Path) -> Path:
    for path, text in PAGES.items():
        target = tmp_path / "tree" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"<html><body>{text}</body></html>")
    return tmp_path / "tree"


def options(dsn: str, tree: Path, work: Path, policy: BlockedHead, long_job_s: float) -> Options:
    return Options(
        dsn, tree, work, concurrency=2, lease_ms=1_000, long_job_s=long_job_s, window_s=3.0, policy=policy, deadline_s=120
    )


def test_a_blocked_lane_waits_for_a_person_and_then_goes_on(
    dsn: str, conn: psycopg.Connection, small: Path, tmp_path: Path
) -> None:
    """12 s of one job under a lease of 1 s: without renewal the reclaimer would have it after 11."""
    told: list[str] = []
    report, findings = run(options(dsn, small, tmp_path / "work", "Block", 12.0), told.append)
    assert report.problems == ()
    assert findings == ()
    assert report.states == {"RESOLVED": 16}
    assert report.released == (".",)
    assert report.blocked == {"REPAIR": 1, "PENDING": 5}
    assert report.longest_s >= 12.0
    assert report.links == (5, 2, 1)  # the malformed page is a copy of index.html: gone.html is missing from both
    audit = conn.execute("SELECT action, reason FROM leasequeue.audit").fetchall()
    assert len(audit) == 1
    published = json.loads((tmp_path / "work/published/guide/one.html.json").read_text())
    assert published["title"] == "One"
    assert published["links"] == {
        "inside": 1, "outside": 0, "missing_pages": 0, "missing_anchors": 1, "first": ["index.html#nowhere"],
    }  # fmt: skip
    stored: dict[str, object] = dict(conn.execute("SELECT topic, result FROM content_jobs WHERE kind = 'generate'"))
    assert stored["guide/three.html"] == {"title": "Three has no title", "sections": 1, "links": 0, "words": 6}


def test_a_lane_that_passes_its_head_leaves_it_in_repair(
    dsn: str, conn: psycopg.Connection, small: Path, tmp_path: Path
) -> None:
    report, findings = run(options(dsn, small, tmp_path / "work", "Pass", 2.5), lambda _: None)
    assert report.problems == ()
    assert findings == ()
    assert report.states == {"RESOLVED": 13, "REPAIR": 3}
    assert [job for job, _ in report.repair] == [f"{kind} {BROKEN}" for kind in ("generate", "validate", "publish")]
    assert "ends inside a tag" in report.repair[0][1]
    assert report.published == 4
    assert not (tmp_path / f"work/published/{BROKEN}.json").exists()


def test_a_program_that_ends_by_itself_is_told_with_its_log(tmp_path: Path) -> None:
    bad = Program("bad", (sys.executable, "-c", "import sys; sys.exit('no such table')"), tmp_path / "bad.log")
    fleet = Fleet([bad]).__enter__()
    fleet._running["bad"].wait(30)
    with pytest.raises(FleetError, match="bad ended by itself with code 1: no such table"):
        fleet.check()
    with pytest.raises(FleetError, match=r"exit codes \{'bad': 1\}"):
        fleet.__exit__(None, None, None)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.content_pipeline", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_a_table_that_is_there_already_is_left_alone(dsn: str, conn: psycopg.Connection, small: Path) -> None:
    conn.execute("CREATE TABLE content_jobs (id int)")
    done = command("--dsn", dsn, "--tree", str(small))
    assert done.returncode == 3
    assert 'relation "content_jobs" already exists' in done.stderr
    assert conn.execute(
        "SELECT count(*) FROM pg_attribute WHERE attrelid = 'content_jobs'::regclass AND attnum > 0"
    ).fetchone() == (1,)


@pytest.mark.slow
def test_the_real_tree_from_beginning_to_end(dsn: str, conn: psycopg.Connection, tmp_path: Path) -> None:
    """SQLite's documentation as Debian packages it, by the command that a person would type."""
    done = command("--dsn", dsn, "--out", str(tmp_path / "work"))
    assert done.returncode == 0, done.stdout + done.stderr
    jobs, pages, lanes = conn.execute(
        "SELECT count(*), count(DISTINCT topic), count(DISTINCT lane) FROM content_jobs"
    ).fetchone()  # type: ignore[misc]
    assert pages > 500
    assert lanes >= 4
    assert jobs == (pages - 1) * 3 + 1  # the topic * is the job that has no page
    assert "order violations inside lanes │ 0" in " ".join(done.stdout.split())
    assert conn.execute("SELECT count(*), count(DISTINCT path) FROM content_published").fetchone() == (pages - 1, pages - 1)
    assert len(list((tmp_path / "work/published").rglob("*.json"))) == pages - 1
