"""The content pipeline example: pages, links, plan, and the check that must notice everything."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples.content_pipeline import handler, tree
from examples.content_pipeline.check import Job, Outcome, judge, order_violations
from examples.content_pipeline.jobs import Plan, cut_off, plan
from examples.content_pipeline.page import Malformed, anchors, check_links, read, target_of
from examples.content_pipeline.run import open_jobs, stands_still
from examples.content_pipeline.tree import Page, TreeError, fetch, pages
from leasequeue.errors import BadInput
from leasequeue.verdict import Repair

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WINDOW = NOW + timedelta(seconds=8)
PAGE = b"""<!doctype html><html><head><title> The  title </title><style>h1 { color: red }</style></head>
<body><h1 id=top>One <b>bold</b> head</h1><p>three plain words</p><a href="b.html#x">to b</a> <a name="old"></a>
<h2>Two</h2><script>var h3 = "<h3>no</h3>";</script><a href="https://example.org/">out</a></body></html>"""


# --- pages -----------------------------------------------------------------------------------------------------------


def test_a_page_gives_title_sections_links_and_words() -> None:
    content = read(PAGE)
    assert content.title == "The title"
    assert [(s.level, s.text) for s in content.sections] == [(1, "One bold head"), (2, "Two")]
    assert content.links == ("b.html#x", "https://example.org/")
    assert content.words == 12  # title 2, headings 3 and 1, paragraph 3, links 2 and 1; neither style nor script


def test_a_page_without_a_title_takes_its_first_heading() -> None:
    assert read(b"<h2>Only &amp; heading</h2>").title == "Only & heading"
    assert read(b"<p>nothing</p>").title == ""


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"<p>caf\xe9</p>", "byte 6 is not UTF-8"),
        (b"<p>a\0b</p>", "NUL"),
        (b"<p>text</p><a hre", "ends inside a tag that begins at character 11"),
        (b"<p>text</p><!-- <b>", "ends inside a comment"),
    ],
)
def test_malformed_pages_are_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        read(raw)


@pytest.mark.parametrize("raw", [PAGE, b"<p>x</p>", b"<h1>a</h1>" * 50])
def test_a_page_cut_off_is_always_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed, match="ends inside a tag"):
        read(cut_off(raw))


@pytest.mark.parametrize(
    ("href", "target"),
    [
        ("b.html", ("c3ref/b.html", "")),
        ("../lang.html#x%20y", ("lang.html", "x y")),
        ("#top", ("c3ref/a.html", "top")),
        ("/root.html", ("root.html", "")),
        ("../../above.html", ("../above.html", "")),
        ("https://example.org/x", None),
        ("mailto:a@b", None),
        ("//example.org/x", None),
        ("b.html?q=1", ("c3ref/b.html", "")),
    ],
)
def test_where_a_link_leads(href: str, target: tuple[str, str] | None) -> None:
    assert target_of("c3ref/a.html", href) == target


def test_links_that_lead_nowhere_are_told_once_each() -> None:
    there = {"a.html": frozenset({"top"}), "b.html": frozenset({"x"}), "pic.gif": frozenset[str]()}
    links = [
        "b.html#x",
        "b.html#gone",
        "b.html#gone",
        "no.html",
        "no.html#x",
        "#top",
        "#bottom",
        "pic.gif",
        "../up.html",
        "http://x/",
    ]
    found = check_links("a.html", links, there.__contains__, there.__getitem__)
    assert (found.inside, found.outside) == (9, 1)
    assert found.missing_pages == ("no.html", "../up.html")
    assert found.missing_anchors == ("b.html#gone", "a.html#bottom")


def test_anchors_are_found_however_they_are_written() -> None:
    assert anchors(PAGE) == {"top", "old"}
    assert anchors(b"""<p class='a' ID='Single'><a  name = "spaced">""") == {"Single", "spaced"}


# --- tree ------------------------------------------------------------------------------------------------------------


def test_pages_are_listed_by_path_and_links_are_not_followed(tmp_path: Path) -> None:
    for name in ("z.html", "sub/a.html", "sub/deep/b.html", "style.css"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("<p>x</p>")
    (tmp_path / "alias.html").symlink_to("z.html")
    assert [(page.path, page.directory) for page in pages(tmp_path)] == [
        ("sub/a.html", "sub"), ("sub/deep/b.html", "sub/deep"), ("z.html", "."),
    ]  # fmt: skip
    assert pages(tmp_path)[0].source_hash == hashlib.sha256(b"<p>x</p>").hexdigest()
    with pytest.raises(TreeError, match=r"holds no \.html page"):
        pages(tmp_path / "nothing")


def fake_run(outcomes: dict[str, int], deb: bool = True) -> tuple[list[str], Any]:
    """`subprocess.run` whose commands end with the given codes; a successful download and unpacking leave their files."""
    seen: list[str] = []

    def run(command: list[str], cwd: Path, **_: Any) -> SimpleNamespace:
        word = command[1] if command[0] == "apt-get" else command[0]
        seen.append(word)
        code = outcomes.get(f"{word} {seen.count(word)}", 0)
        if word == "download" and code == 0 and deb:
            (cwd / "sqlite3-doc_1_all.deb").write_bytes(b"")
        if word == "dpkg-deb":
            (Path(command[3]) / tree.INSIDE).mkdir(parents=True)
        return SimpleNamespace(returncode=code, stderr="E: no such package\n")

    return seen, run


def patched(monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, int], *, root: bool = True, deb: bool = True) -> list[str]:
    seen, run = fake_run(outcomes, deb)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    return seen


def test_the_tree_is_fetched_once_and_then_taken_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = patched(monkeypatch, {})
    assert fetch(tmp_path) == tmp_path / "sqlite3-doc" / tree.INSIDE
    assert fetch(tmp_path).is_dir()
    assert seen == ["download", "dpkg-deb"]
    assert [path.name for path in tmp_path.iterdir()] == ["sqlite3-doc"]  # nothing half done is left


def test_old_package_lists_are_renewed_by_root_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert patched(monkeypatch, {"download 1": 100}) == []
    fetch(tmp_path)
    patched(monkeypatch, {"download 1": 100}, root=False)
    with pytest.raises(TreeError, match=r"apt-get download sqlite3-doc failed: E: no such package; .*--tree"):
        fetch(tmp_path / "other")


def test_without_apt_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(TreeError, match="--tree"):
        fetch(tmp_path)


# --- jobs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def planned() -> Plan:
    given = [
        Page(path)
        for path in ("index.html", "big/a.html", "big/b.html", "big/c.html", "small/x.html", "small/y.html", "z.html")
    ]
    return plan("site", given, now=NOW, window=WINDOW, long_job_s=20)


def test_a_lane_generates_and_validates_page_by_page_and_then_publishes(planned: Plan) -> None:
    big = [(row["kind"], row["topic"].removeprefix("big/")) for row in planned.rows if row["lane"] == "site/big"]
    assert big == [
        ("generate", "a.html"), ("validate", "a.html"), ("generate", "b.html"), ("validate", "b.html"), ("generate", "c.html"),
        ("validate", "c.html"), ("publish", "a.html"), ("publish", "b.html"), ("publish", "c.html"),
    ]  # fmt: skip
    assert {row["run_at"] for row in planned.rows if row["kind"] == "publish"} == {WINDOW}
    assert {row["run_at"] for row in planned.rows if row["kind"] != "publish"} == {NOW}


def test_the_malformed_page_joins_the_smallest_lane(planned: Plan) -> None:
    assert (planned.broken, planned.model, planned.broken_lane) == ("half-uploaded.html", "index.html", ".")
    assert planned.lanes == {".": 3, "big": 3, "small": 2}
    assert planned.pages == 8
    assert len(planned.rows) == 8 * 3 + 1


def test_keys_are_unique_and_lanes_have_one_priority(planned: Plan) -> None:
    assert len({row["idempotency_key"] for row in planned.rows}) == len(planned.rows)
    priorities = {(row["lane"], row["priority"]) for row in planned.rows}
    assert priorities == {(None, 100), ("site/.", 99), ("site/big", 98), ("site/small", 97)}


# --- handler ---------------------------------------------------------------------------------------------------------


def test_an_unknown_kind_goes_to_a_person() -> None:
    with pytest.raises(Repair) as raised:
        handler.handle({"kind": "translate"}, None)  # type: ignore[arg-type]
    assert "translate" in raised.value.error


def test_a_missing_directory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTENT_TREE", raising=False)
    with pytest.raises(BadInput, match="CONTENT_TREE"):
        handler.root()


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "sub" / "page.json"
    assert handler.write_whole(target, '{"é": 1}') == 9
    handler.write_whole(target, "{}")
    assert target.read_text() == "{}"
    assert [path.name for path in target.parent.iterdir()] == ["page.json"]


def test_pages_of_the_overlay_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tree", "over"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("CONTENT_TREE", str(tmp_path / "tree"))
    monkeypatch.setenv("CONTENT_OVERLAY", str(tmp_path / "over"))
    (tmp_path / "tree/a.html").write_text("tree")
    assert handler.source("a.html").read_text() == "tree"
    (tmp_path / "over/a.html").write_text("over")
    assert handler.source("a.html").read_text() == "over"


# --- check -----------------------------------------------------------------------------------------------------------


def job(number: int, row: Any, **parts: Any) -> Job:
    """A job done in its turn: each takes half a second, one after the other, all after the window."""
    begun = WINDOW + timedelta(seconds=number)
    took = 21.0 if row["kind"] == "enrich" else 0.5
    done = Job(
        number, row["kind"], row["topic"], row["lane"], "RESOLVED", 1, 0, NOW + timedelta(microseconds=number), row["run_at"],
        begun, begun + timedelta(seconds=took), True, None,
    )  # fmt: skip
    return replace(done, **parts)


@pytest.fixture
def outcome(planned: Plan) -> Outcome:
    published = [row["topic"] for row in planned.rows if row["kind"] == "publish"]
    return Outcome(
        jobs=tuple(job(n, row) for n, row in enumerate(planned.rows)),
        published=dict.fromkeys(published, 1),
        files=frozenset(published),
        links=(100, 2, 1),
        blocked={"REPAIR": 1, "PENDING": 4},
        released=(".",),
    )


def changed(outcome: Outcome, kind: str, topic: str, **parts: Any) -> Outcome:
    jobs = tuple(replace(j, **parts) if (j.kind, j.topic) == (kind, topic) else j for j in outcome.jobs)
    assert jobs != outcome.jobs
    return replace(outcome, jobs=jobs)


def problems(planned: Plan, outcome: Outcome, policy: Any = "Block") -> list[str]:
    return list(judge(planned, outcome, lease_s=4.0, policy=policy).problems)


def test_a_good_run_has_no_problem(planned: Plan, outcome: Outcome) -> None:
    report = judge(planned, outcome, lease_s=4.0, policy="Block")
    assert report.problems == ()
    assert (report.pages, report.lanes, report.longest, report.longest_s) == (8, 3, "enrich *", 21.0)


def test_a_good_run_under_pass_leaves_the_malformed_page_in_repair(planned: Plan, outcome: Outcome) -> None:
    assert len(problems(planned, outcome, "Pass")) == 5  # three jobs that should be in REPAIR, and a page too many, twice
    for kind in ("generate", "validate", "publish"):
        outcome = changed(outcome, kind, planned.broken, state="REPAIR", has_result=False, last_error="malformed")
    without = {path: 1 for path in outcome.published if path != planned.broken}
    outcome = replace(outcome, published=without, files=frozenset(without), blocked=None, released=())
    assert problems(planned, outcome, "Pass") == []
    assert judge(planned, outcome, lease_s=4.0, policy="Pass").repair[0] == (f"generate {planned.broken}", "malformed")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"state": "PENDING", "resolved_at": None}, "generate big/b.html is PENDING, not RESOLVED (no error)"),
        ({"state": "REPAIR", "last_error": "no"}, "generate big/b.html is REPAIR, not RESOLVED (no)"),
        ({"has_result": False}, "generate big/b.html has no result"),
        ({"crash_count": 1}, "generate big/b.html was reclaimed 1 times: its lease was not renewed"),
        ({"leased_at": NOW - timedelta(seconds=1)}, "1 jobs began before their time"),
    ],
)
def test_what_is_wrong_with_one_job_is_told(planned: Plan, outcome: Outcome, parts: dict[str, Any], expected: str) -> None:
    assert expected in problems(planned, changed(outcome, "generate", "big/b.html", **parts))


def test_a_job_that_began_before_its_predecessor_ended_is_told(planned: Plan, outcome: Outcome) -> None:
    late = changed(outcome, "generate", "big/b.html", resolved_at=WINDOW + timedelta(seconds=60))
    assert order_violations(late.jobs) == ("validate big/b.html began before generate big/b.html ended",)
    assert any("out of order" in problem for problem in problems(planned, late))
    other_lane = changed(outcome, "generate", "small/x.html", leased_at=WINDOW)
    assert order_violations(other_lane.jobs) == ()  # lanes are no order among each other


def test_whoever_follows_an_item_set_aside_is_judged_by_the_one_before_it(outcome: Outcome) -> None:
    aside = changed(outcome, "validate", "big/a.html", state="REPAIR", resolved_at=None)
    assert order_violations(aside.jobs) == ()
    early = changed(aside, "generate", "big/b.html", leased_at=WINDOW)
    assert order_violations(early.jobs) == ("generate big/b.html began before generate big/a.html ended",)


@pytest.mark.parametrize(("parts"), [{"attempt": 2}, {"resolved_at": WINDOW + timedelta(seconds=3)}])
def test_a_long_job_must_outlive_its_lease_at_its_first_attempt(planned: Plan, outcome: Outcome, parts: dict[str, Any]) -> None:
    assert "no job outlived its lease of 4 s at its first attempt" in problems(
        planned, changed(outcome, "enrich", "*", **parts)
    )


def test_publications_are_counted(planned: Plan, outcome: Outcome) -> None:
    assert problems(planned, replace(outcome, published={**outcome.published, "big/a.html": 2})) == [
        "1 pages were published more than once, for example big/a.html"
    ]
    assert problems(planned, replace(outcome, files=outcome.files - {"big/a.html"} | {"x", "y"})) == [
        "1 pages are not on disk, 2 should not be"
    ]
    missing = {path: 1 for path in outcome.published if path != "z.html"}
    assert problems(planned, replace(outcome, published=missing)) == ["1 pages are not published, 0 should not be"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"blocked": {"PENDING": 4}}, "the malformed page was not set aside as the one head of its lane: {'PENDING': 4}"),
        ({"blocked": {"REPAIR": 1}}, "nothing waited behind the malformed page: its lane was not blocked"),
        ({"released": ()}, "released lanes are [], not ['.']"),
    ],
)
def test_a_lane_that_did_not_block_is_told(planned: Plan, outcome: Outcome, parts: dict[str, Any], expected: str) -> None:
    assert problems(planned, replace(outcome, **parts)) == [expected]


def test_a_missing_job_is_told(planned: Plan, outcome: Outcome) -> None:
    assert "24 jobs in the table, 25 were enqueued" in problems(planned, replace(outcome, jobs=outcome.jobs[:-1]))


def test_when_a_run_stands_still() -> None:
    blocked = {("a", "RESOLVED"): 3, ("b", "REPAIR"): 1, ("b", "PENDING"): 5, ("b", "SCHEDULED"): 1}
    assert stands_still(blocked, "b")
    assert not stands_still({**blocked, ("a", "ASSIGNED"): 1}, "b")
    assert not stands_still({**blocked, ("b", "ASSIGNED"): 1}, "b")
    assert not stands_still({("b", "PENDING"): 5}, "b")
    assert open_jobs(blocked) == 6
