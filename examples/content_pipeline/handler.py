"""The pipeline's work: `--handler examples.content_pipeline.handler:handle`.

    generate  parse the page; keep title, sections, links in content_page
    validate  follow its links inside the tree; keep what leads nowhere
    publish   write the page's summary to a JSON file and to content_published
    enrich    index the words of the whole site; longer than a lease, it lives by renewal

Each effect in the database is written in `ctx.transaction()`, in the same commit as the job's completion. The file is written
under its final name in one step, before that commit: done twice it is the same file.

Environment:
    CONTENT_TREE: root of the tree.
    CONTENT_OVERLAY: directory whose pages replace or add to those of the tree.
    CONTENT_OUT: directory for the published files.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from examples.content_pipeline import page as html
from examples.content_pipeline import tree
from leasequeue.errors import BadInput
from leasequeue.item import Item
from leasequeue.verdict import Repair
from leasequeue_worker.context import Context

KEEP = """
    INSERT INTO content_page (path, title, sections, links, words) VALUES (%s, %s, %s, %s, %s)
    ON CONFLICT (path) DO UPDATE SET title = excluded.title, sections = excluded.sections, links = excluded.links,
                                     words = excluded.words, checked = NULL
"""
LINKS = "SELECT links FROM content_page WHERE path = %s"
CHECKED = "UPDATE content_page SET checked = %s WHERE path = %s"
SUMMARY = "SELECT title, sections, words, checked FROM content_page WHERE path = %s AND checked IS NOT NULL"
PUBLISH = "INSERT INTO content_published (path, summary, job_id, attempt) VALUES (%s, %s, %s, %s)"
TOP_WORDS = 20


def handle(item: Item, ctx: Context) -> Any:
    """Run one job.

    Raises:
        Repair: the page is malformed, or an earlier step left nothing for this one.
    """
    step = STEPS.get(item["kind"])
    if step is None:
        raise Repair(f"no such kind of job: {item['kind']!r}; known are {', '.join(STEPS)}")
    return step(item, ctx)


def generate(item: Item, ctx: Context) -> None:
    """Parse the page."""
    path = item["topic"]
    try:
        content = html.read(source(path).read_bytes())
    except html.Malformed as error:
        raise Repair(f"malformed page: {error}") from None
    except FileNotFoundError:
        raise Repair("the page is not in the tree") from None
    sections = [asdict(section) for section in content.sections]
    with ctx.transaction() as conn:
        conn.execute(KEEP, (path, content.title, json.dumps(sections), json.dumps(content.links), content.words))
        ctx.set_result({"title": content.title, "sections": len(sections), "links": len(content.links), "words": content.words})


def validate(item: Item, ctx: Context) -> None:
    """Follow the page's links inside the tree. Links that lead nowhere are a finding, not a fault of the job."""
    path = item["topic"]
    with ctx.transaction() as conn:
        row = conn.execute(LINKS, (path,)).fetchone()
        if row is None:
            raise Repair("nothing was generated for this page")
        found = html.check_links(path, row[0], exists, anchors)
        told = {
            "inside": found.inside,
            "outside": found.outside,
            "missing_pages": len(found.missing_pages),
            "missing_anchors": len(found.missing_anchors),
            "first": [*found.missing_pages, *found.missing_anchors][: html.MOST_NAMED],
        }
        conn.execute(CHECKED, (json.dumps(told), path))
        ctx.set_result(told)


def publish(item: Item, ctx: Context) -> None:
    """Write the page's summary: to a file, and to a table that nothing but the lease keeps from a second row."""
    path = item["topic"]
    with ctx.transaction() as conn:
        row = conn.execute(SUMMARY, (path,)).fetchone()
        if row is None:
            raise Repair("nothing was validated for this page")
        title, sections, words, checked = row
        summary = {"path": path, "title": title, "sections": sections, "words": words, "links": checked}
        written = write_whole(published(path), json.dumps(summary, indent=1, sort_keys=True))
        conn.execute(PUBLISH, (path, json.dumps(summary), item.id, item.attempt))
        ctx.set_result({"file": f"{path}.json", "bytes": written})


def enrich(item: Item, ctx: Context) -> dict[str, Any] | None:
    """Index the words of the site, a page at a time, and take at least `at_least_s` seconds over it."""
    until = time.monotonic() + float(item["input_json"]["at_least_s"])
    in_pages: Counter[str] = Counter()
    read = 0
    for one in tree.pages(root()):
        if ctx.cancelled:
            return None
        text = one_page(one.path)
        in_pages.update({word.lower() for word in html.WORD.findall(text)})
        read += 1
    if ctx.cancelled.wait(max(0.0, until - time.monotonic())):
        return None
    return {"pages": read, "words": len(in_pages), "most_common": [word for word, _ in in_pages.most_common(TOP_WORDS)]}


STEPS: dict[str, Callable[[Item, Context], Any]] = {
    "generate": generate, "validate": validate, "publish": publish, "enrich": enrich,
}  # fmt: skip


def one_page(path: str) -> str:
    """A page's text, whatever state it is in."""
    return source(path).read_text(encoding="utf-8", errors="replace")


def source(path: str) -> Path:
    """Where a page lies: in the overlay, else in the tree."""
    over = overlay() / path
    return over if over.exists() else root() / path


@cache
def exists(path: str) -> bool:
    """Whether a path is in the tree."""
    return source(path).exists()


@cache
def anchors(path: str) -> frozenset[str]:
    """Names that a fragment may point to in a page; read once a process."""
    return html.anchors(source(path).read_bytes())


def write_whole(path: Path, text: str) -> int:
    """Write a file under its final name in one step; returns its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    data = text.encode()
    part.write_bytes(data)
    part.replace(path)
    return len(data)


def published(path: str) -> Path:
    """The published file of a page."""
    return _folder("CONTENT_OUT") / f"{path}.json"


def root() -> Path:
    """CONTENT_TREE."""
    return _folder("CONTENT_TREE")


def overlay() -> Path:
    """CONTENT_OVERLAY."""
    return _folder("CONTENT_OVERLAY")


def _folder(name: str) -> Path:
    value = os.environ.get(name)
    if not value:
        raise BadInput(name, value, "is not set; it must name a directory")
    return Path(value)
