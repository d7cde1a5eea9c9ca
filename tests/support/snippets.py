"""Code blocks of documentation pages, and running them in order as a reader would.

A block does what its language says: `sh` is run by bash (exported variables and functions last for the page), `sql` by the page's
database, `python` by Python; one with a title is a file of that name. A comment before a block changes that:

    <!-- not run: why -->        left out
    <!-- until: SELECT … -->     started in the background, and ended by SIGTERM once the query gives true
    <!-- exits: 1 -->            the exit code that is expected
    <!-- prints -->              a `text` block: each of its lines is in the output of the block before; … stands for anything
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psycopg

_BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- (?P<mark>[^\n]*?) -->\n *)?```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n"
    r"(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
LIMIT_S = 120.0


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Args:
        language: its language.
        text: what it holds.
        title: name of the file it is.
        mark: the comment before it.
        line: where it begins.
    """

    language: str
    text: str
    title: str
    mark: str
    line: int


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    source = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(source):
        indent = len(match["indent"])
        text = "".join(line[indent:] if line.startswith(" " * indent) else line for line in match["text"].splitlines(True))
        line = source.count("\n", 0, match.start("language")) + 1
        found.append(Block(match["language"], text, match["title"] or "", match["mark"] or "", line))
    return found


@dataclass
class Reader:
    """Somebody who follows a page literally.

    Args:
        folder: working directory, empty at first.
        dsn: the database.
        environment: variables that are set before the first block.
    """

    folder: Path
    dsn: str
    environment: dict[str, str]
    output: str = ""
    ran: list[str] = field(default_factory=list)

    def follow(self, page: Path) -> None:
        """Run every block of the page; an AssertionError names the line of the one that fails."""
        for block in blocks(page):
            try:
                self._do(block)
            except (AssertionError, psycopg.Error, subprocess.TimeoutExpired) as ex:
                raise AssertionError(f"{page.name}, line {block.line}: {ex}\n{block.text}\noutput: {self.output}") from ex

    def _do(self, block: Block) -> None:
        word, _, detail = block.mark.partition(":")
        if word == "not run":
            assert detail.strip(), "say why it is not run"
        elif block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "text":
            assert word == "prints", "a text block wants <!-- prints --> or <!-- not run: why -->"
            self._check_output(block.text)
        elif block.language == "sql":
            self._sql(block.text)
        elif block.language in ("sh", "python"):
            self._program(block, word, detail.strip())
        else:
            assert block.language in ("yaml", "json", "toml", "ini"), f"nobody knows how to run {block.language}"

    def _check_output(self, text: str) -> None:
        squeezed = " ".join(self.output.split())
        for line in text.splitlines():
            wanted = ".*?".join(re.escape(part) for part in " ".join(line.split()).split("…"))
            assert re.search(wanted, squeezed), f"the output has no {line!r}"

    def _sql(self, text: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            cursor = conn.execute(text, prepare=False)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            self.output = "\n".join(" | ".join("" if value is None else str(value) for value in row) for row in rows)
        self.ran.append("sql")

    def _program(self, block: Block, word: str, detail: str) -> None:
        self.ran.append(block.language)
        if block.language == "python":
            command = [sys.executable, "-c", block.text]
        else:
            state = self.folder / ".state"
            saved = (
                f"set -euo pipefail\ntouch {state}\nsource {state}\n{block.text}\nexport -p > {state}\ndeclare -f >> {state}\n"
            )
            command = ["bash", "-c", saved]
        if word == "until":
            self._background(command, detail)
            return
        code = self._foreground(command)
        wanted = int(detail) if word == "exits" else 0
        assert code == wanted, f"exit code {code}, expected {wanted}"

    def _foreground(self, command: list[str]) -> int:
        process = self._start(command, subprocess.PIPE)
        try:
            self.output = process.communicate(timeout=LIMIT_S)[0].decode()
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.output = process.communicate(timeout=LIMIT_S)[0].decode()
            raise
        return process.returncode

    def _background(self, command: list[str], query: str) -> None:
        log = self.folder / ".background"
        with log.open("w") as out:
            process = self._start(command, out)
        try:
            self._wait(query, process)
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(LIMIT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(LIMIT_S)
            self.output = log.read_text()

    def _start(self, command: list[str], output: int | IO[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def _wait(self, query: str, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + LIMIT_S
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            while time.monotonic() < end:
                row = conn.execute(query).fetchone()  # type: ignore[arg-type]  # the page's own text
                if row is not None and row[0]:
                    return
                assert process.poll() is None, f"it ended with {process.returncode}"
                time.sleep(0.1)
        raise AssertionError(f"not within {LIMIT_S} s: {query}")
