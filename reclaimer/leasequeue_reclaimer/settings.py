"""All settings of the reclaimer: one definition for flags, environment, bounds and `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leasequeue.config import LeaseConfig, Setting
from leasequeue.dsn import DsnSource
from leasequeue.process import options

# A run with no time of its own (run_for_s = 0) still ends.
DEFAULT_BUDGET_S = 50.0

RUN_SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting(
            "sweep_interval_s", "reclaimer.sweepIntervalSeconds", "seconds", 0, 0, 3_600,
            "From one sweep to the next inside a run. 0: one sweep, then exit.",
        ),
        Setting(
            "run_for_s", "", "seconds", 0, 0, 86_400,
            "How long a run goes on sweeping. 0: as long as one sweep needs, at most 50.",
        ),
        Setting(
            "start_jitter_s", "", "seconds", 5, 0, 50,
            "With --queue: longest wait before the first sweep, fixed by the queue's name, so that many queues do not start as one.",
        ),
        Setting(
            "retention_resolved_after_s", "reclaimer.retention.resolvedAfterSeconds", "seconds", 0, 0, 315_360_000,
            "RESOLVED items older than this are deleted, with their idempotency keys. 0: kept.",
        ),
    )
}  # fmt: skip
OPTIONS = (
    *options.DATABASE,
    *(options.number(setting) for setting in RUN_SETTINGS.values()),
    *options.QUEUE,
    options.text("--runner", "runner", "POD_NAME", "Who runs, for the run record; by default the host's name."),
)


@dataclass(frozen=True)
class Settings:
    """Validated settings of one run; see `OPTIONS` for each one's meaning."""

    source: DsnSource
    schema: str
    table: str
    config: LeaseConfig
    sweep_interval_s: int = 0
    run_for_s: int = 0
    start_jitter_s: int = 5
    retention_resolved_after_s: int = 0
    queue: str = ""
    runner: str = ""
    log_level: str = "INFO"

    @property
    def budget_s(self) -> float:
        """Seconds after which no further page is begun."""
        return float(self.run_for_s or DEFAULT_BUDGET_S)


def build(given: dict[str, Any]) -> Settings:
    """Validated settings from option values.

    Raises:
        BadInput: names the option, its value and the way out.
    """
    return Settings(
        source=options.dsn_source(given),
        schema=given["schema"],
        table=options.table_name(given["table"]),
        config=options.lease_config(given),
        queue=given["queue"] or "",
        runner=given["runner"] or "",
        log_level=given["log_level"],
        **{name: given[name] for name in RUN_SETTINGS},
    )
