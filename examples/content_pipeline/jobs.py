"""Which jobs a tree makes, in which lanes, in which order. Pure.

A lane is a directory: its jobs run one at a time, in the order below, whatever their priority.

    generate a, validate a, generate b, validate b, …, publish a, publish b, …

Publishing begins when the publish window opens; until then it holds its lane up, on purpose. One job, `enrich`, has no lane.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from examples.content_pipeline.tree import Page

BROKEN = "half-uploaded.html"
# Large directories first: they take longest, and lanes are served by the priority of their heads.
TOP_PRIORITY = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """What is enqueued.

    Args:
        rows: in the order of enqueueing.
        lanes: directory → number of pages.
        broken: path of the page that is malformed on purpose.
        model: the real page that the malformed one is a cut-off copy of.
    """

    rows: tuple[Mapping[str, Any], ...]
    lanes: Mapping[str, int]
    broken: str
    model: str

    @property
    def pages(self) -> int:
        """Pages, the malformed one included."""
        return sum(self.lanes.values())

    @property
    def broken_lane(self) -> str:
        """Directory of the malformed page."""
        return Page(self.broken).directory


def plan(site: str, pages: Sequence[Page], *, now: datetime, window: datetime, long_job_s: float) -> Plan:
    """The jobs of a site.

    Args:
        site: its name.
        pages: its pages; not empty.
        now: database clock: when generating may begin.
        window: when publishing may begin.
        long_job_s: seconds that the job `enrich` takes at least.
    """
    lanes: dict[str, list[Page]] = {}
    for page in pages:
        lanes.setdefault(page.directory, []).append(page)
    smallest = min(lanes, key=lambda lane: (len(lanes[lane]), lane))
    model = lanes[smallest][0]
    broken = BROKEN if smallest == "." else f"{smallest}/{BROKEN}"
    lanes[smallest] = sorted([*lanes[smallest], Page(broken, model.source_hash)], key=lambda page: page.path)
    by_size = sorted(lanes, key=lambda lane: (-len(lanes[lane]), lane))
    rows = [_job(site, "enrich", Page("*", tree_hash(pages)), None, TOP_PRIORITY, now, {"at_least_s": long_job_s})]
    for place, lane in enumerate(by_size):
        rows += _lane(site, lane, lanes[lane], TOP_PRIORITY - 1 - place, now, window)
    return Plan(tuple(rows), {lane: len(lanes[lane]) for lane in by_size}, broken, model.path)


def _lane(
    site: str, lane: str, pages: Sequence[Page], priority: int, now: datetime, window: datetime
) -> Iterable[Mapping[str, Any]]:
    name = f"{site}/{lane}"
    for page in pages:
        yield _job(site, "generate", page, name, priority, now, {})
        yield _job(site, "validate", page, name, priority, now, {})
    for page in pages:
        yield _job(site, "publish", page, name, priority, window, {})


def tree_hash(pages: Iterable[Page]) -> str:
    """Hash of a whole tree: of its pages' hashes, in order."""
    return hashlib.sha256("\n".join(page.source_hash for page in pages).encode()).hexdigest()


def _job(
    site: str, kind: str, page: Page, lane: str | None, priority: int, run_at: datetime, input_json: Mapping[str, Any]
) -> Mapping[str, Any]:
    return {
        "idempotency_key": f"{site}:{kind}:{page.path}",
        "source_hash": page.source_hash,
        "site": site,
        "kind": kind,
        "topic": page.path,
        "input_json": dict(input_json),
        "lane": lane,
        "priority": priority,
        "run_at": run_at,
    }


def cut_off(raw: bytes) -> bytes:
    """A page as a broken upload leaves it: it ends inside a tag, in its second half where there is one."""
    cut = raw.find(b"<", len(raw) // 2)
    cut = raw.rfind(b"<") if cut < 0 else cut
    return raw[: cut + 2]
