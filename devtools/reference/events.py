"""The Kubernetes events of a LeaseQueue: which transitions are told, and how."""

from __future__ import annotations

from devtools.reference.markdown import code, codes, head, section, table
from leasequeue_operator.plan.events import _TOLD, scaled
from leasequeue_operator.plan.reasons import REASONS


def page() -> str:
    """The page."""
    example = scaled(2, 5, "depth")
    first = (
        "One event a transition, none for what stays as it is; on first sight faults alone. The reason is the condition's, the message "
        "too; [Conditions](conditions.md) explains each. An event that the API server does not take is in the operator's log "
        "(`event_lost`)."
    )
    rows = (
        (
            code(kind),
            f"turns {code(good)}",
            f"is {code({'True': 'False', 'False': 'True'}[good])}, or its reason changes",
            _type(kind),
        )
        for kind, good in _TOLD.items()
    )
    conditions = table(("condition", "Normal event when it", "told when it", "then of type"), rows)
    scaling = (
        f"Type {code(example.type)}, reason {code(example.reason)}, for each change of the number of workers, with what decided it. "
        f"For example: {code(example.message)}"
    )
    quiet = sorted(set(REASONS) - set(_TOLD))
    rest = f"{codes(quiet)}: `Ready` repeats another condition's; the others change too often, and are conditions and metrics."
    return (
        head("Events", "operator/leasequeue_operator/plan/events.py", first)
        + section("Conditions", conditions)
        + section("Scaling", scaling)
        + section("Without events", rest)
    )


def _type(kind: str) -> str:
    return code("Normal" if kind == "Suspended" else "Warning")
