"""Settings: flags, environment and bounds are one definition; nonsense is refused with field, value and range."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from leasequeue import SETTINGS
from leasequeue.process.options import apply
from leasequeue_reclaimer import settings as reclaimer_settings
from leasequeue_reclaimer.main import main as reclaimer_main
from leasequeue_worker.main import main
from leasequeue_worker.settings import OPTIONS, PROCESS_SETTINGS, Settings, build

NEEDED = {"LEASEQUEUE_DSN": "host=nowhere", "LEASEQUEUE_TABLE": "t", "LEASEQUEUE_HANDLER": "m:f"}


def parse(arguments: list[str], environment: dict[str, str]) -> Settings:
    """What the real options make of a command line and an environment."""
    found: list[Settings] = []

    @click.command()
    @apply(OPTIONS)
    def command(**given: Any) -> None:
        found.append(build(given))

    result = CliRunner().invoke(command, arguments, env=environment, catch_exceptions=True)
    if result.exit_code:
        raise AssertionError(result.output or repr(result.exception))
    return found[0]


def test_the_environment_of_a_pod_is_understood() -> None:
    settings = parse(
        [],
        {
            **NEEDED,
            "LEASEQUEUE_LANES": '["a b", "c"]',
            "LEASEQUEUE_BATCH_SIZE": "100",
            "LEASEQUEUE_STRICT_LANES": "true",
            "LEASEQUEUE_MAX_INFLIGHT_POLICY": "Enforce",
            "LEASEQUEUE_ON_BLOCKED_HEAD": "Pass",
            "LEASEQUEUE_CONCURRENCY": "4",
            "LEASEQUEUE_QUEUE": "shop/reviews",
            "LEASEQUEUE_MAX_REPLICAS": "10",
            "POD_NAME": "reviews-abc",
            "POD_UID": "u-1",
        },
    )
    assert settings.lanes == ["a b", "c"]
    assert settings.config.batch_size == 100
    assert settings.config.strict_lanes
    assert settings.config.max_inflight_policy == "Enforce"
    assert settings.config.on_blocked_head == "Pass"
    assert settings.queue_label == ("shop", "reviews")
    assert (settings.pod_name, settings.pod_uid) == ("reviews-abc", "u-1")
    assert settings.limits.share == 50


def test_a_flag_wins_over_the_environment() -> None:
    assert parse(["--batch-size", "7", "--lane", "x"], {**NEEDED, "LEASEQUEUE_BATCH_SIZE": "9"}).config.batch_size == 7


def test_the_booleans_of_a_kubernetes_manifest_are_understood() -> None:
    assert not parse([], {**NEEDED, "LEASEQUEUE_WAKEUP": "False", "LEASEQUEUE_STRICT_LANES": "False"}).wakeup
    assert parse([], {**NEEDED, "LEASEQUEUE_STRICT_LANES": "True"}).config.strict_lanes


@pytest.mark.parametrize("setting", [*SETTINGS.values(), *PROCESS_SETTINGS.values()], ids=lambda s: s.name)
@pytest.mark.parametrize("value", ["-1", "30s", "1e3", "٣٠", " 30", "99999999999", ""])
def test_nonsense_is_refused_with_field_and_range(setting: Any, value: str) -> None:
    if value == "":
        assert parse([], {**NEEDED, setting.env: value})  # an empty variable is an absent one
        return
    result = CliRunner().invoke(main, [], env={**NEEDED, setting.env: value})
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert setting.name in said
    assert str(setting.high) in said


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"LEASEQUEUE_DSN": ""}, "dsn"),
        ({"LEASEQUEUE_TABLE": ""}, "table"),
        ({"LEASEQUEUE_HANDLER": ""}, "exactly one of --handler, --exec and --http-url"),
        ({"LEASEQUEUE_EXEC": '["x"]'}, "exactly one of --handler, --exec and --http-url"),
        ({"LEASEQUEUE_LANES": "a,b"}, "must be a JSON array of strings"),
        ({"LEASEQUEUE_HANDLER": "", "LEASEQUEUE_EXEC": "rm -rf"}, "must be a JSON array of strings"),
        ({"LEASEQUEUE_HANDLER": "", "LEASEQUEUE_HTTP_URL": "ftp://x"}, "must begin with http"),
        ({"LEASEQUEUE_ISOLATION": "container"}, "isolation"),
        ({"LEASEQUEUE_HANDLER": "no_such_module:f"}, "no module 'no_such_module'"),
    ],
)
def test_what_is_missing_or_wrong_is_named(environment: dict[str, str], says: str) -> None:
    result = CliRunner().invoke(main, [], env={**NEEDED, **environment})
    assert result.exit_code == 2
    assert says in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("command", "settings"),
    [(main, PROCESS_SETTINGS), (reclaimer_main, reclaimer_settings.RUN_SETTINGS)],
    ids=["worker", "reclaimer"],
)
def test_help_explains_every_setting(command: Any, settings: dict[str, Any]) -> None:
    text = " ".join(CliRunner().invoke(command, ["--help"], terminal_width=200).output.split())
    for setting in [*SETTINGS.values(), *settings.values()]:
        for part in (setting.env, setting.unit, f"{setting.low} to {setting.high}", f"default {setting.default}"):
            assert part in text, f"{setting.name}: {part}"
