"""How near the items in flight are to max_inflight."""

from __future__ import annotations

from leasequeue_operator.plan.spec import Spec

WITHIN, WARNING, CRITICAL, EXCEEDED = "WithinLimit", "AboveWarning", "AboveCritical", "Exceeded"
_ORDER = (WITHIN, WARNING, CRITICAL, EXCEEDED)
# Percentage points below a threshold at which it counts as left, so that a queue at the threshold does not flap.
MARGIN_PERCENT = 2


def level(assigned: int, spec: Spec, before: str | None) -> str:
    """Which threshold is passed.

    Args:
        assigned: items in flight.
        spec: max_inflight, its policy and the thresholds.
        before: the level told last, None for none.
    """
    now = _level(assigned, spec, 0)
    held = _level(assigned, spec, MARGIN_PERCENT)
    if before in _ORDER and _ORDER.index(held) >= _ORDER.index(before) > _ORDER.index(now):
        return before
    return now


def _level(assigned: int, spec: Spec, margin: int) -> str:
    ceiling, alerts = spec.lease.max_inflight, spec.alerts
    if assigned > ceiling:
        return EXCEEDED
    # Whole numbers throughout: 80 % of 1000 is 800, not 800.0000000000001.
    if assigned * 100 >= (alerts.inflight_critical_percent - margin) * ceiling:
        return CRITICAL
    if assigned * 100 >= (alerts.inflight_warning_percent - margin) * ceiling:
        return WARNING
    return WITHIN
