"""The Kubernetes events of a LeaseQueue: which transitions are told, and how."""

from __future__ import annotations

from devtools.reference.markdown import code, codes, head, section, table
from devtools.reference.source import same, words
from leasequeue_operator.plan.conditions import _LIMITS
from leasequeue_operator.plan.events import _TOLD, UNDER_WAY, scaled
from leasequeue_operator.plan.reasons import REASONS
from leasequeue_operator.scaling.limiters import LIMITERS

WHERE = "leasequeue_operator/scaling/limiters.py"


def page() -> str:
    """The page."""
    example = scaled(2, 5, "drain")
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
        f"For example: {code(example.message)}. What can decide, as the event, `status.scaling.limiter` and the label `limiter` name it:"
        f"\n\n{table(('limiter', 'what decides'), ((code(name), text) for name, text in _limiters().items()))}"
    )
    quiet = sorted(set(REASONS) - set(_TOLD))
    rest = f"{codes(quiet)}: `Ready` repeats another condition's; the others are conditions and metrics alone."
    return (
        head("Events", "operator/leasequeue_operator/plan/events.py", first)
        + section("Conditions", f"{conditions}\n\nOf type `Normal` as well, since no fault: {codes(sorted(UNDER_WAY))}.")
        + section("Scaling", scaling)
        + section("Without events", rest)
    )


def _type(kind: str) -> str:
    return code("Normal" if kind == "Suspended" else "Warning")


def _limiters() -> dict[str, str]:
    """The catalogue, held against the source: every name is used, and none is left out.

    Raises:
        ValueError: a name without an explanation, or an explanation without a name.
    """
    source = words("leasequeue_operator", without="limiters")
    same({name for name in LIMITERS if name in source or f"{name}:" in source}, set(LIMITERS), "limiters", WHERE)
    same(set(_LIMITS) | set(LIMITERS), set(LIMITERS), "limiters", WHERE)
    return LIMITERS
