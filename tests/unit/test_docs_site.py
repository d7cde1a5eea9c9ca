"""The documentation as a whole: it builds strictly, fetches nothing, and what its pages show fits the schemas and the programs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from devtools import docs_hooks
from devtools.reference.commands import PROGRAMS
from leasequeue_operator.plan import podtemplate
from tests.support.crdschema import closed_schema
from tests.support.snippets import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
CHART = ROOT / "charts/leasequeue"
BUILD_LIMIT_S = 400
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


pytestmark = pytest.mark.timeout(900)  # the environment is made and the site built once, also on a busy machine


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly in the environment of requirements/docs.lock: a broken link or anchor fails it."""
    found = subprocess.run(
        [str(ROOT / "scripts/bootstrap.sh"), "docs"], capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=True
    )
    folder = tmp_path_factory.mktemp("site")
    command = [f"{found.stdout.strip()}/bin/mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    assert built.returncode == 0, built.stderr
    return folder


class Loads(HTMLParser):
    """Addresses that a browser loads by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in LOADING and given.get("rel") not in ("canonical", "next", "prev"):
            self.found.append(given.get(LOADING[tag]) or "")


def test_every_page_is_built_and_in_the_navigation(site: Path) -> None:
    built = {path.parent.relative_to(site).as_posix() for path in site.rglob("index.html")}
    for page in PAGES:
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        name = {"index": ".", "README": "."}.get(name, name.removesuffix("/README"))
        assert name in built, f"{page} is not in the site"
    front = (site / "index.html").read_text()
    missing = [name for name in built if name != "." and f'href="{name}/"' not in front]
    assert missing == []


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text())
        assert [address for address in loads.found if re.match(r"(https?:)?//", address)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


def test_the_navigation_is_filled_in(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.md").touch()
    (tmp_path / "in").mkdir()
    for name in ("x", "y"):
        (tmp_path / "in" / f"{name}.md").touch()
    nav: list[Any] = [{"Start": "a.md"}, {"More": ["in/y.md", "in/*"]}]
    assert docs_hooks.filled(nav, tmp_path) == [{"Start": "a.md"}, {"More": ["in/y.md", "in/x.md"]}]


def test_numbered_items_keep_what_belongs_to_them() -> None:
    text = "1. One\n\n   ```sh\n   a\n     b\n   ```\n\n2. Two\n   goes on\n\nAfter\n\n```text\n1. x\n   y\n```\n"
    wanted = "1. One\n\n    ```sh\n    a\n      b\n    ```\n\n2. Two\n    goes on\n\nAfter\n\n```text\n1. x\n   y\n```\n"
    assert docs_hooks.adapted(text) == wanted


def test_lists_and_tables_may_follow_a_paragraph() -> None:
    assert docs_hooks.adapted("Text:\n- a\n- b\n") == "Text:\n\n- a\n- b\n"
    assert docs_hooks.adapted("Text\n| a |\n|---|\n| b |") == "Text\n\n| a |\n|---|\n| b |"
    assert docs_hooks.adapted("- a\n  goes on\n- b\n\n| c |\n|---|") == "- a\n  goes on\n- b\n\n| c |\n|---|"


def test_numbered_lists_are_not_torn(site: Path) -> None:
    page = (site / "howto/content-pipeline/index.html").read_text()
    assert page.count("<ol>") == 1, "a list of the page; the theme's own has attributes"


# --- what pages show -----------------------------------------------------------------------------------------------------


def everything(*languages: str) -> list[tuple[Path, Block]]:
    return [(page, block) for page in (*PAGES, ROOT / "README.md") for block in blocks(page) if block.language in languages]


def test_every_queue_shown_fits_the_crd() -> None:
    schema = closed_schema()
    seen = 0
    for page, block in everything("yaml"):
        for document in yaml.safe_load_all(block.text):
            if isinstance(document, dict) and document.get("kind") == "LeaseQueue":
                seen += 1
                try:
                    jsonschema.validate(document, schema)
                    podtemplate.check(document["spec"]["worker"].get("podTemplate", {}))
                except Exception as ex:
                    raise AssertionError(f"{page.name}, line {block.line}: {ex}") from ex
    assert seen >= 10


def test_every_value_shown_is_one_of_the_charts() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    seen = 0
    for page, block in everything("yaml"):
        if block.text.startswith("# values.yaml"):
            seen += 1
            try:
                jsonschema.validate(yaml.safe_load(block.text), schema)
            except jsonschema.ValidationError as ex:
                raise AssertionError(f"{page.name}, line {block.line}: {ex.message}") from ex
    assert seen
    for page in (*PAGES, ROOT / "README.md", CHART / "README.md"):
        for path in re.findall(r"--set[= ]'?([a-zA-Z][\w.]*)=", page.read_text()):
            assert known(schema, path.split(".")), f"{page.name}: the chart has no value {path}"


def known(schema: Any, path: list[str]) -> bool:
    """Whether a schema of values has that path."""
    while path and "$ref" not in schema:
        if path[0] not in schema.get("properties", {}):
            return schema.get("additionalProperties", True) is not False and "properties" not in schema
        schema, path = schema["properties"][path[0]], path[1:]
    return True


def test_a_value_that_the_chart_lacks_is_noticed() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert known(schema, ["image", "repository"])
    assert not known(schema, ["image", "repo"])
    assert not known(schema, ["replicaCount"])


def commands_shown() -> list[tuple[str, list[str]]]:
    """Every call of one of our programs in a shell block, with where it stands."""
    found = []
    for page, block in everything("sh", "bash", "console"):
        text = re.sub(r"<<'(\w+)'(.*?)^\1$", "", block.text, flags=re.MULTILINE | re.DOTALL).replace("\\\n", " ")
        for line in text.splitlines():
            for part in re.split(r"\||&&|;|(?<!\S)&(?!\S)", re.sub(r"(^|\s)#.*$", "", line.removeprefix("$ "))):
                try:
                    words = shlex.split(part)
                except ValueError:
                    continue  # a quote that goes on in the next line
                while words and (words[0] in ("exec", "do", "$") or re.match(r"\w+=", words[0])):
                    words = words[1:]
                if words and words[0] in PROGRAMS:
                    found.append((f"{page.relative_to(ROOT)}, line {block.line}: {part.strip()}", words))
    return found


def test_every_command_shown_exists_with_its_options() -> None:
    shown = commands_shown()
    assert len(shown) >= 40
    for where, words in shown:
        command: click.Command = PROGRAMS[words[0]]
        rest = words[1:]
        while isinstance(command, click.Group) and rest and rest[0] in command.commands:
            command, rest = command.commands[rest[0]], rest[1:]
        assert not isinstance(command, click.Group) or not rest, f"{where}: no command {rest[0]}"
        options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help", "--version"}
        given = [word.partition("=")[0] for word in rest if word.startswith("--") and len(word) > 2]
        assert [name for name in given if name not in options] == [], where


def test_a_queue_with_a_field_that_is_none_is_noticed() -> None:
    queue = {"apiVersion": "v1", "kind": "LeaseQueue", "metadata": {}, "spec": {"worker": {}, "database": {"tabel": "x"}}}
    with pytest.raises(jsonschema.ValidationError, match="tabel"):
        jsonschema.validate(queue, closed_schema())


def test_the_readme_leads_to_pages_that_are_there() -> None:
    links = re.findall(r"\]\((docs/[^)#]+|[a-z_]+/[^)#]+)", (ROOT / "README.md").read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_no_page_names_a_file_that_is_not_there() -> None:
    pattern = re.compile(r"`((?:docs|tests|examples|deploy|charts|images|scripts|benchmarks|demo)/[\w./-]+\w)/?`")
    gone = [
        (p.name, f) for p in (*PAGES, ROOT / "README.md") for f in pattern.findall(p.read_text()) if not (ROOT / f).exists()
    ]
    assert gone == []


def test_the_lock_names_no_address() -> None:
    lock = (ROOT / "requirements/docs.lock").read_text()
    assert "://" not in lock
    assert "mkdocs-material==" in lock
    assert os.access(ROOT / "scripts/bootstrap.sh", os.X_OK)
