"""The doctor: looks at a queue, its table and its server, and explains what is wrong. Reads only.

    diagnosis = diagnose(conn, "review_queue_item")
    for finding in diagnosis.findings: print(finding.code, finding.summary, finding.fix)

Looking (`look.py`) and judging are apart: the judges are pure functions from what was seen to findings.

    leases.py     DOUBLE_LEASE, LEASE_LEAK, STUCK, INFLIGHT_EXCEEDED
    order.py      STARVATION, POISON
    writers.py    BYPASS
    structure.py  indexes, CHECKs, column types, PRECISION_FAULT
    server.py     LOCK_CONTENTION, PINNED_XMIN, BLOAT

Where it is weak: what happened before it looked and left no mark in the table it cannot see. A lease that changed hands and was
finished since looks like any other; only the two looks, some seconds apart, show such a change itself.
"""

from __future__ import annotations

from leasequeue.doctor.examine import diagnose
from leasequeue.doctor.finding import Code, Diagnosis, Finding, Severity
from leasequeue.doctor.limits import Limits

__all__ = ["Code", "Diagnosis", "Finding", "Limits", "Severity", "diagnose"]
