"""The settings: bounds, messages, and one definition that the command line shares."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from leasequeue import SETTINGS, BadInput, LeaseConfig
from leasequeue.cli.app import cli
from leasequeue.cli.options import setting_flag, setting_help
from leasequeue.config import Setting

# The contract's table (docs and CRD say the same); a change here is a change for users.
CONTRACT = {
    "batch_size": (20, 1, 200, "items"),
    "lock_timeout_ms": (30_000, 1_000, 120_000, "milliseconds"),
    "reclaim_after_s": (45, 10, 600, "seconds"),
    "max_inflight": (1_000, 100, 10_000, "items"),
    "poll_interval_ms": (500, 50, 5_000, "milliseconds"),
}
ALL = pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))


@pytest.mark.parametrize(("name", "wanted"), CONTRACT.items())
def test_defaults_and_bounds_of_the_contract(name: str, wanted: tuple[int, int, int, str]) -> None:
    setting = SETTINGS[name]
    assert (setting.default, setting.low, setting.high, setting.unit) == wanted


@ALL
def test_bounds_are_inside_and_their_neighbours_outside(setting: Setting) -> None:
    for value in (setting.low, setting.high, setting.default, str(setting.high)):
        assert setting.check(value) == int(value)
        assert getattr(LeaseConfig(**{setting.name: value}), setting.name) == int(value)
    for value in (setting.low - 1, setting.high + 1):
        told = re.escape(
            f"{setting.name}={value}: must be a whole number of {setting.unit} from {setting.low} to {setting.high}"
        )
        with pytest.raises(BadInput, match=told):
            LeaseConfig(**{setting.name: value})


# B04: what looks like a number to some parser and must not be taken for one
@pytest.mark.parametrize(
    "value", ["30s", "1e3", "٣٠", " 30", "30 ", "+30", "-30", "", "0x1e", "30.0", "1_000", 30.0, True, None, [30], "30\n", "³"]
)
def test_what_is_no_whole_number(value: Any) -> None:
    with pytest.raises(BadInput, match=r"batch_size.*from 1 to 200"):
        LeaseConfig(batch_size=value)


@pytest.mark.parametrize(
    ("field", "value"), [("max_inflight_policy", "enforce"), ("max_inflight_policy", ""), ("on_blocked_head", "block")]
)
def test_choices(field: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"{field}='{value}': must be one of"):
        LeaseConfig(**{field: value})


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="batchsize"):
        LeaseConfig(batchsize=5)


def test_a_config_cannot_be_changed() -> None:
    config = LeaseConfig()
    with pytest.raises(ValueError, match="frozen"):
        config.batch_size = 5  # type: ignore[misc]


def options_by_flag() -> dict[str, list[click.Option]]:
    """Every option of every command, by its flag."""
    found: dict[str, list[click.Option]] = {}
    waiting: list[click.Command] = [cli]
    while waiting:
        command = waiting.pop()
        waiting += command.commands.values() if isinstance(command, click.Group) else []
        for option in command.params:
            if isinstance(option, click.Option):
                for flag in option.opts:
                    found.setdefault(flag, []).append(option)
    return found


@ALL
def test_options_are_made_from_the_same_definition(setting: Setting) -> None:
    for option in options_by_flag().get(setting_flag(setting), []):
        assert (option.name, option.envvar) == (setting.name, setting.env)
        if option.callback is None:  # doctor's ceiling: by default that of the reclaimer's last run
            assert "last run" in (option.help or "")
            continue
        assert option.default == str(setting.default)
        assert option.help == setting_help(setting)
        for part in (setting.unit, str(setting.default), str(setting.low), str(setting.high), setting.env):
            assert part in (option.help or "")


def test_the_commands_offer_the_settings_they_use() -> None:
    offered = options_by_flag()
    for name in (
        "batch_size",
        "lock_timeout_ms",
        "reclaim_after_s",
        "max_inflight",
        "max_attempts",
        "max_crashes",
        "reclaim_batch",
    ):
        assert offered.get(setting_flag(SETTINGS[name])), f"no command offers {name}"


def test_every_command_offers_json_and_help() -> None:
    waiting: list[click.Command] = [cli]
    seen = 0
    while waiting:
        command = waiting.pop()
        if isinstance(command, click.Group):
            waiting += command.commands.values()
            continue
        seen += 1
        assert command.help, command.name
        assert any("--json" in option.opts for option in command.params), command.name
        assert all(option.help for option in command.params if isinstance(option, click.Option)), command.name
    assert seen >= 13
