"""The conditions of a LeaseQueue with their reasons, from the operator's catalogue, checked against what its source gives."""

from __future__ import annotations

import ast

from devtools.reference.markdown import code, head, section, table
from devtools.reference.source import calls, same, text_of, words
from leasequeue_operator.observe.failures import _CONNECT
from leasequeue_operator.plan.conditions import _LIMITS, TYPES
from leasequeue_operator.plan.inflight import CRITICAL, EXCEEDED, WARNING, WITHIN
from leasequeue_operator.plan.podfaults import _STUCK
from leasequeue_operator.plan.reasons import CONDITIONS, REASONS

WHERE = "leasequeue_operator/plan/reasons.py"
# Which argument of which call is a reason.
GIVEN = {"Problem": 0, "SpecError": 0, "_Bad": 0, "Condition": 2}


def given() -> set[str]:
    """Every reason that the operator's source gives by name."""
    found = {reason for _, reason, _ in _CONNECT} | {reason for reason, _ in _LIMITS.values()}
    found |= {*_STUCK, WITHIN, WARNING, CRITICAL, EXCEEDED}
    for call in calls("leasequeue_operator"):
        place = GIVEN.get(call.func.id, 9) if isinstance(call.func, ast.Name) else 9
        if place < len(call.args):
            found |= set(_texts(call.args[place]))
    return found


def _texts(node: ast.expr) -> list[str]:
    """A string, or those of `x if y else z` and of `str(x or y)`."""
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        return _texts(node.args[0])
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in _texts(value)]
    text = text_of(node)
    return [] if text is None else [text]


def check() -> None:
    """Hold the catalogue against the source.

    Raises:
        ValueError: a reason without an explanation, one that nobody gives, or a condition that is not among the types.
    """
    told = {reason for reasons in REASONS.values() for reason in reasons}
    same(given() | told, told, "reasons", WHERE)
    same(words("leasequeue_operator", without="reasons") & told, told, "reasons", WHERE)
    same(set(TYPES), set(CONDITIONS), "conditions", WHERE)
    same(set(TYPES), set(REASONS), "conditions", WHERE)


def page() -> str:
    """The page."""
    check()
    first = (
        "`kubectl describe lq NAME` shows all of them; each is set on first sight, with a message that names the field or object and the "
        "way out. `lastTransitionTime` moves with the status alone. In metrics: `leasequeue_condition{type,status}`. Wait for one with "
        "`kubectl wait --for=condition=Ready lq/NAME`. `Ready` takes the reason of the part that is not well; faults of pods "
        "(`ImagePullBackOff`, `Unschedulable`, …) stand under `WorkersAvailable`, `ReclaimerHealthy` and, of the schema Job's, under "
        "`SchemaReady`."
    )
    parts = [
        section(
            kind,
            CONDITIONS[kind] + "\n\n" + table(("reason", "meaning"), ((code(r), text) for r, text in REASONS[kind].items())),
        )
        for kind in TYPES
    ]
    return head("Conditions", f"operator/{WHERE}", first) + "".join(parts)
