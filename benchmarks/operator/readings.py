"""What is counted: calls by the API server and by the operator, statements by the database, memory, CPU, age of the samples."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.operator.subject import Series, Subject, series, tree_cpu_s

WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
# What the operator may write; other clients of the cluster write these too, so the server's figure is an upper bound.
OURS = {
    ("leasequeue.dev", "leasequeues"), ("apps", "deployments"), ("batch", "cronjobs"), ("batch", "jobs"), ("", "pods"),
    ("", "serviceaccounts"), ("", "events"), ("coordination.k8s.io", "leases"), ("monitoring.coreos.com", "podmonitors"),
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """All counters at one moment."""

    at: float
    cpu_s: float
    database_cpu_s: float
    rss_mib: float
    reconciled: float
    calls: Counter[str]
    server_writes: Counter[str]
    questions: Counter[str]
    statements: Counter[str]
    oldest_sample_s: float
    samples: int
    scrape_s: float


def read(subject: Subject, conn: psycopg.Connection[Any], postmaster: int) -> Reading:
    """Read everything."""
    began = time.monotonic()
    own = subject.scrape()
    scrape_s, wall = time.monotonic() - began, time.time()
    ages = [wall - value for (name, _), value in own.items() if name == "leasequeue_sample_timestamp_seconds"]
    return Reading(
        at=time.monotonic(), cpu_s=subject.cpu_s(), database_cpu_s=tree_cpu_s(postmaster), rss_mib=subject.rss_mib(),
        reconciled=_total(own, "leasequeue_reconcile_total"), calls=_calls(own), server_writes=_server_writes(),
        questions=_by(own, "leasequeue_database_questions_total", "kind"), statements=_statements(conn),
        oldest_sample_s=max(ages, default=0.0), samples=len(ages), scrape_s=scrape_s,
    )  # fmt: skip


def _total(found: Series, name: str) -> float:
    return sum(value for (n, _), value in found.items() if n == name)


def _by(found: Series, name: str, label: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (n, labels), value in found.items():
        if n == name:
            counts[dict(labels)[label]] += int(value)
    return counts


def _calls(found: Series) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (name, labels), value in found.items():
        if name == "leasequeue_kube_requests_total":
            told = dict(labels)
            counts[f"{told['method']} {told['resource']}"] += int(value)
    return counts


def _server_writes() -> Counter[str]:
    """apiserver_request_total of the verbs that write, for what the operator may write."""
    command = ["kubectl", "get", "--raw", "/metrics"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    counts: Counter[str] = Counter()
    for (name, labels), value in series(text).items():
        told = dict(labels)
        mine = (told.get("group", ""), told.get("resource", "")) in OURS
        if name == "apiserver_request_total" and told.get("verb") in WRITES and mine:
            part = told["resource"] + (f"/{told['subresource']}" if told.get("subresource") else "")
            counts[f"{told['verb']} {part}"] += int(value)
    return counts


def _statements(conn: psycopg.Connection[Any]) -> Counter[str]:
    """Calls of the statements of this database, by their kind: those that read or write rows, and the rest."""
    rows = conn.execute(
        "SELECT query, calls FROM pg_stat_statements JOIN pg_database d ON d.oid = dbid WHERE datname = current_database()"
    ).fetchall()
    counts: Counter[str] = Counter()
    for query, calls in rows:
        counts[_kind(str(query))] += int(calls)
    return counts


def _kind(query: str) -> str:
    words = query.split()
    first = words[0].upper() if words else ""
    if "set_config" in query or first in ("BEGIN", "COMMIT", "ROLLBACK", "SET", "LISTEN", "UNLISTEN", "DEALLOCATE"):
        return "transaction control"
    if "pg_stat_statements" in query:
        return "this benchmark"
    if "oldest_pending_at" in query:
        return "sample"
    return "catalog and control schema"
