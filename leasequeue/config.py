"""The settings of a queue, their defaults and bounds: one definition for CR, environment and command line.

`SETTINGS` is the source. The CRD's minimum, maximum and default, the environment variables `LEASEQUEUE_<NAME>` and the
command-line options are all checked against it by `tests/unit/test_config.py` and `tests/chart/test_crd.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from leasequeue.errors import BadInput

InflightPolicy = Literal["Alert", "Enforce"]
BlockedHead = Literal["Block", "Pass"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One numeric setting.

    Args:
        name: snake_case name; `LEASEQUEUE_` + upper case is its environment variable.
        cr: its path below `spec` of the LeaseQueue resource.
        unit: unit of the value, for help texts.
        default: value where none is given.
        low: smallest value allowed.
        high: largest value allowed.
        help: one sentence.
    """

    name: str
    cr: str
    unit: str
    default: int
    low: int
    high: int
    help: str

    @property
    def env(self) -> str:
        """Name of the environment variable."""
        return f"LEASEQUEUE_{self.name.upper()}"

    def check(self, value: Any) -> int:
        """Return `value` as an int within bounds.

        Raises:
            BadInput: not a whole number in plain digits, or out of range; names field, value and range.
        """
        problem = f"must be a whole number of {self.unit} from {self.low} to {self.high}"
        if isinstance(value, str):
            # isdecimal() alone would accept other scripts' digits; leading spaces and signs are refused as well.
            if not (value.isascii() and value.isdecimal()):
                raise BadInput(self.name, value, problem)
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise BadInput(self.name, value, problem)
        return value


SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting("batch_size", "lease.batchSize", "items", 20, 1, 200, "Most items one claim takes."),
        Setting(
            "lock_timeout_ms", "lease.lockTimeoutMs", "milliseconds", 30_000, 1_000, 120_000,
            "Lease duration: how long an item stays with a worker that does not renew.",
        ),
        Setting(
            "reclaim_after_s", "lease.reclaimAfterSeconds", "seconds", 45, 10, 600,
            "How long past its expiry a lease is left before the reclaimer takes it back.",
        ),
        Setting(
            "max_inflight", "lease.maxInflight", "items", 1_000, 100, 10_000,
            "Most items that may be ASSIGNED at a time.",
        ),
        Setting(
            "poll_interval_ms", "lease.pollIntervalMs", "milliseconds", 500, 50, 5_000,
            "How long an idle worker waits between two claims (jittered).",
        ),
        Setting(
            "max_attempts", "lease.maxAttempts", "attempts", 5, 1, 1_000,
            "Attempts before an item that keeps asking for a retry becomes FAILED.",
        ),
        Setting(
            "max_crashes", "lease.maxCrashes", "crashes", 3, 1, 1_000,
            "Reclaims of one item (its worker died or lost it) before it goes to REPAIR.",
        ),
        Setting(
            "reclaim_batch", "reclaimer.batch", "items", 100, 1, 10_000,
            "Items the reclaimer takes back in one transaction.",
        ),
    )
}  # fmt: skip


class LeaseConfig(BaseModel):
    """Validated settings of one queue. See `SETTINGS` for units and bounds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int = SETTINGS["batch_size"].default
    lock_timeout_ms: int = SETTINGS["lock_timeout_ms"].default
    reclaim_after_s: int = SETTINGS["reclaim_after_s"].default
    max_inflight: int = SETTINGS["max_inflight"].default
    poll_interval_ms: int = SETTINGS["poll_interval_ms"].default
    max_attempts: int = SETTINGS["max_attempts"].default
    max_crashes: int = SETTINGS["max_crashes"].default
    reclaim_batch: int = SETTINGS["reclaim_batch"].default
    max_inflight_policy: InflightPolicy = "Alert"
    strict_lanes: bool = False
    on_blocked_head: BlockedHead = "Block"

    def __init__(self, **values: Any) -> None:
        """Build from keyword arguments.

        Raises:
            BadInput: a value is out of range or of the wrong kind; the error names field, value and range.
        """
        checked = {k: SETTINGS[k].check(v) if k in SETTINGS else v for k, v in values.items()}
        choices = {"max_inflight_policy": ("Alert", "Enforce"), "on_blocked_head": ("Block", "Pass")}
        for field, allowed in choices.items():
            if field in checked and checked[field] not in allowed:
                raise BadInput(field, checked[field], f"must be one of {', '.join(allowed)}")
        super().__init__(**checked)

    @property
    def lease_s(self) -> float:
        """Lease duration in seconds."""
        return self.lock_timeout_ms / 1000
