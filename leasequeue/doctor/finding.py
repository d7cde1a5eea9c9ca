"""What the doctor says: findings, each with its evidence, its cause and the way to mend it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MAX_IDS = 10


class Code(StrEnum):
    """Stable names of what can be found; docs/howto/doctor.md explains each."""

    DOUBLE_LEASE = "DOUBLE_LEASE"
    LEASE_LEAK = "LEASE_LEAK"
    STUCK = "STUCK"
    INFLIGHT_EXCEEDED = "INFLIGHT_EXCEEDED"
    STARVATION = "STARVATION"
    POISON = "POISON"
    BYPASS = "BYPASS"
    LOCK_CONTENTION = "LOCK_CONTENTION"
    CONNECTIONS = "CONNECTIONS"
    PINNED_XMIN = "PINNED_XMIN"
    BLOAT = "BLOAT"
    PRECISION_FAULT = "PRECISION_FAULT"
    MISSING_INDEX = "MISSING_INDEX"
    INVALID_INDEX = "INVALID_INDEX"
    UNUSED_INDEX = "UNUSED_INDEX"
    CHECK_NOT_VALID = "CHECK_NOT_VALID"
    CLOCK_TYPE = "CLOCK_TYPE"
    NOT_ADOPTED = "NOT_ADOPTED"
    COULD_NOT_LOOK = "COULD_NOT_LOOK"


MEANINGS = {
    Code.DOUBLE_LEASE: "Two hold one item, or may: a lease was set over another, work goes on without a lease, a key exists twice.",
    Code.LEASE_LEAK: "Leases ended and nobody takes them back.",
    Code.STUCK: "ASSIGNED without a live worker's heartbeat.",
    Code.INFLIGHT_EXCEEDED: "More items are ASSIGNED than max_inflight allows.",
    Code.STARVATION: "Due items wait too long, and why.",
    Code.POISON: "Items that fail or crash again and again, or that the database lets nobody change.",
    Code.BYPASS: "Writers that go past the lease.",
    Code.LOCK_CONTENTION: "Sessions that wait for locks of the table, or hold them for long.",
    Code.CONNECTIONS: "The server has, or will have, too few connections for the workers.",
    Code.PINNED_XMIN: "Something keeps vacuum from removing dead rows.",
    Code.BLOAT: "Dead rows pile up.",
    Code.PRECISION_FAULT: "A column of money whose type is not exact, or values in it that are no numbers.",
    Code.MISSING_INDEX: "An index that the engine needs is missing or has another form.",
    Code.INVALID_INDEX: "An interrupted CREATE INDEX CONCURRENTLY left an index that only costs.",
    Code.UNUSED_INDEX: "An index is not read, or makes renewals dear.",
    Code.CHECK_NOT_VALID: "A CHECK of ours is missing, not proved, or another one is in the way.",
    Code.CLOCK_TYPE: "Lease times without a time zone.",
    Code.NOT_ADOPTED: "The table is not ready as a lease queue.",
    Code.COULD_NOT_LOOK: "Something could not be seen: a right, a lock, the time limit.",
}


class Severity(StrEnum):
    """`critical`: work is done twice, lost or standing still. `warning`: it costs or will. `unknown`: could not be seen."""

    CRITICAL = "critical"
    WARNING = "warning"
    UNKNOWN = "unknown"


RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.UNKNOWN: 2}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found.

    Args:
        code: what kind of thing.
        sign: which mark of it was seen; stable, for programs.
        severity: how bad.
        summary: one sentence with the figures.
        cause: what brings this about.
        fix: what to do: a command or SQL that can be run as it stands, or a sentence where a person must decide.
        evidence: figures and names, never payload.
        ids: items concerned, at most `MAX_IDS`.
    """

    code: Code
    sign: str
    severity: Severity
    summary: str
    cause: str
    fix: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "code": str(self.code),
            "sign": self.sign,
            "severity": str(self.severity),
            "summary": self.summary,
            "cause": self.cause,
            "fix": self.fix,
            "evidence": dict(self.evidence),
            "ids": list(self.ids),
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything found about one queue, worst first.

    Args:
        table: `schema.table`.
        findings: what was found; empty where all is well.
        watched_s: seconds between the two looks; 0: it was looked once.
    """

    table: str
    findings: tuple[Finding, ...]
    watched_s: float

    @property
    def healthy(self) -> bool:
        """Nothing was found, and everything could be seen."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table": self.table,
            "healthy": self.healthy,
            "watched_s": self.watched_s,
            "findings": [finding.as_dict() for finding in self.findings],
        }


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Worst first, then in the order of `Code`."""
    place = {code: n for n, code in enumerate(Code)}
    return tuple(sorted(findings, key=lambda f: (RANK[f.severity], place[f.code], f.sign)))


def some(ids: Iterable[Any]) -> tuple[str, ...]:
    """The first ids, as text."""
    return tuple(sorted({str(item) for item in ids})[:MAX_IDS])


def so_many(n: int, one: str, many: str, more: str = "") -> str:
    """A count with its noun, and its verb where that has to agree: `1 item was`, `2,000 items were`."""
    return f"{n:,}{more} {one if n == 1 and not more else many}"


def seconds(value: float) -> str:
    """A duration for people: `42 s`, `7 min`, `3.5 h`."""
    if value < 120:
        return f"{value:.0f} s"
    if value < 7200:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.1f} h"
