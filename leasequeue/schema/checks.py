"""Judges the CHECK constraints that touch `state`: which would refuse rows of ours, and which can be replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from leasequeue.schema.columns import quote
from leasequeue.schema.facts import Check, Facts
from leasequeue.schema.report import Finding
from leasequeue.schema.spec import CHECKS, STATES, object_name, states_of_check

# What a row of ours looks like in each state. Columns not named are NULL, which a CHECK lets pass.
_LEASE = {
    "leased_by": "'worker'",
    "leased_at": "now()",
    "lease_expires_at": "now() + interval '30 seconds'",
    "lease_token": "gen_random_uuid()",
}
_COMMON = {"priority": "0", "attempt": "1", "crash_count": "0", "run_at": "now()", "created_at": "now()"}
PROBES: dict[str, dict[str, str]] = {
    "PENDING": {},
    "ASSIGNED": _LEASE,
    "RESOLVED": {**_LEASE, "resolved_at": "now()"},
    "SCHEDULED": {},
    "FAILED": {},
    "REPAIR": {},
}


@dataclass(frozen=True, slots=True)
class Probe:
    """One question to one CHECK: would it accept a row in `state`?"""

    check: Check
    state: str
    columns: dict[str, str]


def probes(facts: Facts) -> list[Probe]:
    """Questions for every foreign CHECK that mentions `state`."""
    ours = {object_name(facts.table, what) for what in CHECKS}
    return [
        Probe(check, state, _probe_columns(facts, check, state))
        for check in facts.checks
        if "state" in check.columns and check.name not in ours
        for state in STATES
    ]


def _probe_columns(facts: Facts, check: Check, state: str) -> dict[str, str]:
    values = {**_COMMON, **PROBES[state], "state": f"'{state}'"}
    return {
        name: f"CAST({values.get(name, 'NULL')} AS {facts.columns[name].type})"
        for name in check.columns
        if name in facts.columns
    }


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the CHECKs over `state`.

    Args:
        drop: names of the CHECKs to replace.
        extra: states beyond ours that the users' own CHECKs allow: they stay allowed.
        refused: CHECKs that only a person can change, each with the SQL.
    """

    drop: tuple[str, ...]
    extra: tuple[str, ...]
    refused: tuple[Finding, ...]


def judge_checks(facts: Facts, refusals: dict[str, list[str]]) -> Verdict:
    """Decide about each CHECK that mentions `state`.

    Args:
        facts: the catalog's.
        refusals: per name of a CHECK, the states whose probe it refused.
    """
    drop, refused = [], []
    extra: set[str] = set()
    own = object_name(facts.table, "state")
    for check in facts.checks:
        if "state" not in check.columns:
            continue
        states = states_of_check(check.expression) if check.columns == ("state",) else None
        extra |= (states or frozenset()) - set(STATES)
        if check.name == own:
            drop += [own] if states is None or not states >= set(STATES) else []
        elif refusals.get(check.name):
            if states is not None and "PENDING" in states:
                drop.append(check.name)
            else:
                refused.append(_refusal(facts, check, refusals[check.name]))
    return Verdict(tuple(drop), tuple(sorted(extra)), tuple(refused))


def _refusal(facts: Facts, check: Check, states: list[str]) -> Finding:
    return Finding(
        "STATE_CHECK",
        f"constraint {check.name} CHECK ({check.expression}) refuses rows in state {', '.join(states)} and is not a plain "
        "list of states that could be replaced",
        f"ALTER TABLE {facts.sql_name} DROP CONSTRAINT {quote(check.name)} -- then adopt; add it again in a form that "
        f"allows {', '.join(STATES)}",
    )


def check_gaps(facts: Facts, verdict: Verdict) -> Iterator[Finding]:
    """What adoption mends about CHECKs."""
    for name in verdict.drop:
        yield Finding("STATE_CHECK", f"constraint {name} refuses states of ours", adoptable=True)
    present = {check.name: check for check in facts.checks}
    for what in CHECKS:
        name = object_name(facts.table, what)
        if name in verdict.drop:
            continue
        if name not in present:
            yield Finding("CHECK_MISSING", f"constraint {name} is missing", adoptable=True)
        elif not present[name].validated:
            yield Finding("CHECK_NOT_VALID", f"constraint {name} is not validated", adoptable=True)


def extra_states(verdict: Verdict) -> Iterator[Finding]:
    """Warns of states that LeaseQueue does not know."""
    if verdict.extra:
        yield Finding(
            "UNKNOWN_STATE", f"rows may be in state {', '.join(verdict.extra)}, which LeaseQueue never claims or changes"
        )
