"""Reads one HTML page: title, sections, links, anchors; and checks its links against the tree. Pure, standard library only."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

HEADINGS = ("h1", "h2", "h3")
UNSEEN = ("script", "style")
# An attribute that a link's fragment can point to. A scan, not a parse: it only has to find names.
ANCHOR = re.compile(r"""<[^>]*?\s(?:id|name)\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE)
WORD = re.compile(r"[a-z][a-z_0-9]{2,}", re.IGNORECASE)
MOST_NAMED = 20


class Malformed(ValueError):
    """The bytes are no whole HTML page: cut off, or no text."""


@dataclass(frozen=True, slots=True)
class Section:
    """One heading: its level, 1 to 3, and its text."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Content:
    """What a page holds. `links` are the href values as written."""

    title: str
    sections: tuple[Section, ...]
    links: tuple[str, ...]
    words: int


@dataclass(frozen=True, slots=True)
class LinkCheck:
    """Links of one page: into the tree, out of it, and those that lead nowhere."""

    inside: int
    outside: int
    missing_pages: tuple[str, ...]
    missing_anchors: tuple[str, ...]


@dataclass
class _Reader(HTMLParser):
    """Collects while the parser walks."""

    titles: list[str] = field(default_factory=list)
    headings: list[tuple[int, list[str]]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    words: int = 0
    inside: str = ""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
        elif tag in HEADINGS:
            self.headings.append((int(tag[1]), []))
            self.inside = tag
        elif tag == "title" or tag in UNSEEN:
            self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in UNSEEN:
            return
        self.words += len(data.split())
        if self.inside == "title":
            self.titles.append(data)
        elif self.inside:
            self.headings[-1][1].append(data)


def text_of(raw: bytes) -> str:
    """The page as text.

    Raises:
        Malformed: not UTF-8, a NUL byte, empty, or cut off inside a tag or a comment.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"byte {error.start} is not UTF-8") from None
    if "\0" in text:
        raise Malformed(f"a NUL byte at {text.index(chr(0))}")
    if not text.strip():
        raise Malformed("the page is empty")
    for start, end, what in (("<!--", "-->", "a comment"), ("<", ">", "a tag")):
        opened = text.rfind(start)
        if opened >= 0 and text.find(end, opened) < 0:
            raise Malformed(f"the page ends inside {what} that begins at character {opened}")
    return text


def read(raw: bytes) -> Content:
    """Title, sections, links and number of words of a page. Without a title its first heading is taken.

    Raises:
        Malformed: see `text_of`.
    """
    reader = _Reader()
    reader.feed(text_of(raw))
    reader.close()
    sections = tuple(Section(level, " ".join("".join(parts).split())) for level, parts in reader.headings)
    title = " ".join("".join(reader.titles).split()) or (sections[0].text if sections else "")
    return Content(title, sections, tuple(reader.links), reader.words)


def anchors(raw: bytes) -> frozenset[str]:
    """Names that a fragment may point to in a page."""
    return frozenset(ANCHOR.findall(raw.decode("utf-8", "replace")))


def target_of(page: str, href: str) -> tuple[str, str] | None:
    """Path and fragment inside the tree that `href` on `page` leads to; None where it leads out of the tree."""
    parts = urlsplit(href)
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    if not path:
        return page, unquote(parts.fragment)
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if not path.startswith("/") else path.lstrip("/")
    return joined, unquote(parts.fragment)


def check_links(
    page: str, links: Iterable[str], exists: Callable[[str], bool], anchors_of: Callable[[str], frozenset[str]]
) -> LinkCheck:
    """Follow every link of a page inside the tree.

    Args:
        page: path of the page.
        links: href values as written.
        exists: whether a path is in the tree.
        anchors_of: names that a fragment may point to in a page of the tree.
    """
    inside = outside = 0
    pages: dict[str, None] = {}
    names: dict[str, None] = {}
    for href in links:
        target = target_of(page, href)
        if target is None:
            outside += 1
            continue
        inside += 1
        path, fragment = target
        if path.startswith("../") or not exists(path):
            pages[path] = None
        elif fragment and path.endswith(".html") and fragment not in anchors_of(path):
            names[f"{path}#{fragment}"] = None
    return LinkCheck(inside, outside, tuple(pages), tuple(names))
