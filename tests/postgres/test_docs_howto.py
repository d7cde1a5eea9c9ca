"""Pages of the documentation, followed literally: every block runs in order against a real PostgreSQL, and prints what the page says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from devtools.pgserver import PgServer
from tests.support.snippets import Block, Reader, blocks

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (
    "quickstart", "howto/enqueue", "howto/adopt", "howto/handler", "howto/exec-http", "howto/plain-sql", "howto/repair", "howto/without-kubernetes",
    "howto/uninstall", "howto/outgrow", "howto/content-pipeline",
)  # fmt: skip


def environment(folder: Path, dsn: str, others: dict[str, str]) -> dict[str, str]:
    """What a reader's shell has: the commands on PATH, the database, nothing else of ours."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LEASEQUEUE_", "PG", "POD_", "PYTHONPATH"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, **others, "PATH": path, "HOME": str(folder), "LEASEQUEUE_DSN": dsn, "COLUMNS": "160"}


@pytest.fixture
def reader(tmp_path: Path, pg: PgServer, dsn: str, db: str) -> Iterator[Reader]:
    """A reader with an empty database, and a second one for what is split over two."""
    other = f"{db}_b"
    pg.create_database(other)
    yield Reader(tmp_path, dsn, environment(tmp_path, dsn, {"SHARD_A": dsn, "SHARD_B": pg.dsn(other)}))
    pg.drop_database(other)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, reader: Reader) -> None:
    reader.follow(DOCS / f"{page}.md")
    assert reader.ran


def test_a_block_that_fails_is_told_by_its_line(tmp_path: Path, reader: Reader) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```sh\nexport A=1\n```\n\n```sh\ntest $A = 2\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md, line 7: exit code 1, expected 0"):
        reader.follow(page)


def test_output_that_is_not_there_is_noticed(tmp_path: Path, reader: Reader) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sql\nSELECT 1, 'x'\n```\n\n<!-- prints -->\n```text\n1 | y\n```\n")
    with pytest.raises(AssertionError, match=r"the output has no '1 \| y'"):
        reader.follow(page)


def test_marks_titles_and_indents_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('<!-- not run: x -->\n```sh\na\n```\n\n1. One\n\n   ```python title="b.py"\n   if x:\n       y\n   ```\n')
    first, second = blocks(page)
    assert first == Block("sh", "a\n", "", "not run: x", 2)
    assert second == Block("python", "if x:\n    y\n", "b.py", "", 8)


def test_the_throwaway_server_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "devtools.throwaway"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            dsn = line.removeprefix("export LEASEQUEUE_DSN='").strip().rstrip("'")
            with psycopg.connect(dsn, connect_timeout=10) as conn:
                assert conn.execute("SELECT 1").fetchone() == (1,)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
