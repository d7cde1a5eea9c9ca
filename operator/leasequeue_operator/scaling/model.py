"""What a scaling decision looks at and what it gives: plain values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field

from leasequeue_operator.scaling.rates import Rates
from leasequeue_operator.scaling.schedule import Window as Schedule
from leasequeue_operator.scaling.window import Window

DEFAULT_START_S = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The queue at one moment.

    Args:
        at: when it was taken, seconds since 1970 UTC.
        due: items that could be taken at the same time now: due ones without a lane, and one per claimable lane.
        expired: ASSIGNED past their expiry.
        assigned: ASSIGNED and not expired.
        held_back: due items that wait behind another of their lane; they count as arrived, not as work for a slot.
        finished: items finished since ever, over all processes.
        busy_ms: time spent in handlers since ever, over all processes.
        oldest_age_s: age of the oldest due item; None when nothing waits.
        running: pods that the Deployment asks for; those above what was decided last are cordoned, and at once there again.
        start_s: how long pods take from their creation until they are ready; None when no pod tells.
    """

    at: float
    due: int
    expired: int
    assigned: int
    held_back: int = 0
    finished: int = 0
    busy_ms: int = 0
    oldest_age_s: float | None = None
    running: int = 0
    start_s: float | None = None

    @property
    def in_sight(self) -> int:
        """Items that slots could be busy with now."""
        return self.due + self.expired + self.assigned


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """What the decision needs of the spec; see the CRD for units and bounds. `slack` is β of docs/design/0008-scaling.md."""

    min_replicas: int = 0
    max_replicas: int = 10
    concurrency: int = 1
    max_inflight: int = 1000
    poll_s: float = 5
    drain_s: float = 120
    latency_s: float | None = None
    stabilization_s: float = 30
    slack: float = 0.75
    schedules: tuple[Schedule, ...] = ()
    manual_replicas: int | None = None
    suspend: bool = False


@dataclass(frozen=True, slots=True)
class ScalingState:
    """Memory between two decisions.

    It changes only when there is something to be saved (a minute with traffic, another number of pods, a higher maximum in
    a lull), and it is written at once when it does: so a restart at any tick finds exactly what the process knew.

    Args:
        desired: pods decided last.
        rates: arrivals and service time.
        window: the lull that may become a decrease.
        step_at: when the present step began, seconds since 1970 UTC; None before the first.
        step_base: pods when it began.
        blind_since: since when no sample came; None while they come.
        resting: the fleet is at its minimum and nothing moves, so that nothing is saved either.
    """

    desired: int = 0
    rates: Rates = field(default_factory=Rates)
    window: Window = field(default_factory=Window)
    step_at: float | None = None
    step_base: int = 0
    blind_since: float | None = None
    resting: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided.

    Args:
        desired: pods from now on.
        raw: pods the demand alone asks for; None when it is unknown.
        limiter: what decided, one word for status, metric and event.
        state: memory for the next decision.
    """

    desired: int
    raw: int | None
    limiter: str
    state: ScalingState
