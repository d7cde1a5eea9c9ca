"""docs/reference: every page is made from the source, and what has no explanation there is refused."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

import leasequeue
from devtools import reference
from devtools.reference import api, commands, conditions, crd, diagnosis, logs, metrics, source
from leasequeue.config import SETTINGS
from leasequeue_operator.plan.reasons import REASONS

PAGES = sorted(path.stem for path in reference.FOLDER.glob("*.md"))


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_a_page_is_what_the_source_says(name: str) -> None:
    assert (reference.FOLDER / f"{name}.md").read_text() == reference.PAGES[name](), "run `make generate`"


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_no_page_shows_what_python_calls_nothing(name: str) -> None:
    text = reference.PAGES[name]()
    assert [word for word in ("Undefined", "Sentinel", "`None`", "<object", "<class") if word in text] == []


def test_no_page_is_left_over() -> None:
    assert sorted([*reference.PAGES, "README"]) == PAGES
    index = (reference.FOLDER / "README.md").read_text()
    assert [name for name in reference.PAGES if f"({name}.md)" not in index] == []


def test_every_option_of_every_program_is_listed() -> None:
    page = commands.page()
    for name, program in commands.PROGRAMS.items():
        for _, command in commands._walk(name, program):
            for parameter in command.params:
                if isinstance(parameter, click.Option) and parameter.name != "version":
                    assert f"`{parameter.opts[0]}" in page


def test_an_option_of_a_setting_has_its_unit_range_default_and_variable() -> None:
    row = next(line for line in commands.page().splitlines() if line.startswith("| `--lock-timeout-ms N` |"))
    assert "| milliseconds, 1000 to 120000 | `30000` | `LEASEQUEUE_LOCK_TIMEOUT_MS` |" in row


def test_an_option_without_help_is_refused() -> None:
    with pytest.raises(ValueError, match="--mute has no help text"):
        commands.option(click.Option(["--mute"]))


def test_every_setting_stands_in_the_crd_with_the_same_default() -> None:
    page = crd.page()
    for setting in SETTINGS.values():
        row = next(line for line in page.splitlines() if line.startswith(f"| `spec.{setting.cr}` "))
        assert f"| `{setting.default}` | {setting.low} to {setting.high} |" in row


def test_a_field_without_a_description_is_refused() -> None:
    with pytest.raises(ValueError, match=r"spec\.a has no description"):
        list(crd.fields({"properties": {"a": {"type": "string"}}}, "spec"))


def test_rules_between_fields_are_listed_with_their_messages() -> None:
    page = crd.page()
    assert "| `spec.scaling.minReplicas` |" in page
    assert "scaling.minReplicas must not be above scaling.maxReplicas" in page


def test_a_reason_that_nobody_explains_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    without = {kind: {r: t for r, t in reasons.items() if r != "TableLocked"} for kind, reasons in REASONS.items()}
    monkeypatch.setattr(conditions, "REASONS", without)
    with pytest.raises(ValueError, match=r"without an explanation: .*TableLocked"):
        conditions.check()


def test_a_reason_that_nobody_gives_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "given", set)
    monkeypatch.setattr(conditions, "REASONS", {**REASONS, "Ready": {**REASONS["Ready"], "NeverGiven": "No."}})
    with pytest.raises(ValueError, match="does not have: NeverGiven"):
        conditions.check()


def test_a_log_event_that_nobody_explains_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {name: text for name, text in logs.RECLAIMER.items() if name != "run_hung"}
    monkeypatch.setitem(logs.CATALOGUES, "leasequeue_reclaimer", told)
    with pytest.raises(ValueError, match="without an explanation: run_hung"):
        logs.explained("leasequeue_reclaimer")


def test_a_log_line_shows_its_fields_and_level() -> None:
    line = logs.found("leasequeue_reclaimer")["max_inflight_exceeded"]
    assert (line.levels, line.fields) == ({"error"}, {"assigned", "max_inflight"})


def test_metrics_of_all_kinds_are_listed() -> None:
    names = metrics.names()
    assert {"leasequeue_items", "leasequeue_reclaimed_total", "leasequeue_claim_duration_seconds"} <= names
    assert {"leasequeue_worker_slots", "leasequeue_finished_total", "leasequeue_scaling_decisions_total"} <= names


def test_a_collector_that_nobody_lists_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(metrics.OPERATOR, "Usage")
    with pytest.raises(ValueError, match="collectors without an explanation: Usage"):
        metrics.of_operator()


def test_every_public_name_is_in_the_api() -> None:
    page = api.page()
    missing = [n for n in leasequeue.__all__ if n != "SETTINGS" and f"heading: leasequeue.{n}\n" not in page]
    assert missing == []


def test_every_code_of_the_doctor_has_signs() -> None:
    signs = diagnosis.signs()
    without = [code for code in diagnosis.MEANINGS if not signs.get(code) and code not in ("NOT_ADOPTED", "COULD_NOT_LOOK")]
    assert without == []


def test_names_are_found_in_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text('log.info("seen", one=1)\nprint("not a log line")\n')
    monkeypatch.setitem(source.PACKAGES, "made_up", tmp_path)
    assert {name: line.fields for name, line in logs.found("made_up").items()} == {"seen": {"one"}}


def test_a_docstring_that_tells_of_an_argument_which_is_not_there_is_refused() -> None:
    def stray(one: int) -> None:
        """Do.

        Args:
            one: first.
            two: gone.
        """

    with pytest.raises(ValueError, match="its docstring tells of two"):
        api._check_arguments(stray)
