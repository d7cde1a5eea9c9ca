"""What the operator remembers of each queue between two reconciliations. All of it can be lost: a restart finds its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leasequeue_operator.plan.conditions import Condition
from leasequeue_operator.plan.observation import Observation
from leasequeue_operator.plan.spec import Spec
from leasequeue_operator.scaling.decide import ScalingState
from leasequeue_operator.scaling.share import Share
from leasequeue_operator.scaling.shrink import Shrink


@dataclass(slots=True)
class Memory:
    """One queue.

    Args:
        uid: its uid; a queue made anew under the same name starts with an empty memory.
        written: the status written last.
        written_at: monotonic time of that write, seconds.
        scaling: memory of the scaling; None until the first decision.
        shrink: memory of a decrease under way.
        share: what its own workers did, where it serves some lanes of a table alone.
        busy_kills: leases that ended because their worker was removed at its drain limit, since ever.
        accepted: the last spec that was valid, which goes on while a newer one is refused.
        observation: what the newest reconciliation saw, for the metrics.
        conditions: and what it made of it.
        woken_at: monotonic time of the newest look that a notification brought about, seconds.
    """

    uid: str
    written: Mapping[str, Any] = field(default_factory=dict)
    written_at: float = float("-inf")
    scaling: ScalingState | None = None
    shrink: Shrink = field(default_factory=Shrink)
    share: Share = field(default_factory=Share)
    busy_kills: int = 0
    accepted: Spec | None = None
    observation: Observation | None = None
    conditions: Sequence[Condition] = ()
    woken_at: float = float("-inf")
