"""Settings and the command line."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from leasequeue_operator.main import main
from leasequeue_operator.settings import Settings


def test_every_setting_is_explained_with_variable_default_and_range() -> None:
    text = " ".join(CliRunner().invoke(main, ["--help"]).output.split())
    for name, field in Settings.model_fields.items():
        assert f"[LEASEQUEUE_{name.upper()}]" in text
        assert field.description
        assert " ".join(field.description.split()) in text
    assert "Range: 1.0 to 60.0" in text or "Range: 1 to 60" in text


def test_namespaces_by_commas_and_by_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEQUEUE_WATCH_NAMESPACES", "a, b,,a")
    assert Settings().watch_namespaces == ("a", "b")
    assert Settings(watch_namespaces=("c", "d")).watch_namespaces == ("c", "d")


def test_labels_of_the_workers_monitors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEQUEUE_MONITOR_LABELS", "release=prometheus, a.b/c=1.0,empty=")
    assert Settings().monitor_label_map == {"release": "prometheus", "a.b/c": "1.0", "empty": ""}
    for wrong in ("release", "=x", "a b=c", "a=b c", "a/b/c=d", "a=" + "x" * 64):
        result = CliRunner().invoke(main, ["--monitor-label", wrong])
        assert result.exit_code == 2
        assert "--monitor-label (LEASEQUEUE_MONITOR_LABELS)" in result.output


def test_no_default_is_told_that_is_none() -> None:
    assert "Undefined" not in CliRunner().invoke(main, ["--help"]).output


@pytest.mark.parametrize(
    ("variable", "value"), [("LEASEQUEUE_RESYNC_S", "1"), ("LEASEQUEUE_WORKERS", "many"), ("LEASEQUEUE_LOG_LEVEL", "loud")]
)
def test_a_wrong_variable_is_named_with_its_value(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert variable in result.output
    assert value.lower() in result.output.lower()


def test_a_wrong_flag_is_named() -> None:
    result = CliRunner().invoke(main, ["--http-port", "99999"])
    assert result.exit_code == 2
    assert "--http-port" in result.output
