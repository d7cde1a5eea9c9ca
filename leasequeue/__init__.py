"""LeaseQueue's engine: rows of a PostgreSQL table, leased safely to many workers.

Functions over a psycopg connection; `leasequeue.aio` has the same for async connections. What each guarantees is written at the head
of its statement in `leasequeue/sql/`.
"""

from leasequeue.bulk import Loaded, enqueue_many
from leasequeue.claim import Claimed
from leasequeue.config import SETTINGS, LeaseConfig
from leasequeue.dsn import DsnSource, aconnect, connect, is_pooled, redact
from leasequeue.enqueue import DuplicateKey, Enqueued, enqueue
from leasequeue.errors import (
    BadInput,
    LeaseNotHeld,
    LeaseQueueError,
    NotAdopted,
    NotAQueue,
    OutcomeUnknown,
    TableMissing,
)
from leasequeue.fence import Completion, Settlement
from leasequeue.item import Item, Lease
from leasequeue.maintain import Reclaimed, ReclaimedItem
from leasequeue.mark import ClaimMark
from leasequeue.owner import OwnedBy
from leasequeue.runs import Run, RunRecord
from leasequeue.sample import LaneFacts, Stats
from leasequeue.spare import Refused, Skips
from leasequeue.states import Outcome, State
from leasequeue.sync import (
    claim,
    cordon,
    defer,
    deregister,
    disown,
    fail,
    heartbeat,
    held_by_pods,
    lease_outcome,
    own_table,
    promote,
    prune,
    reclaim,
    record_run,
    register,
    release,
    release_unheld,
    renew,
    repair,
    resolve,
    retry,
    runs,
    sample,
    set_result,
    settle,
    start_run,
    stats,
    swept,
    workers,
)
from leasequeue.table import Table
from leasequeue.verdict import Fail, Release, Repair, Resolve, Retry, Verdict, backoff_s
from leasequeue.workers import Heartbeat, WorkerCounters, WorkerRow

__all__ = [
    "SETTINGS",
    "BadInput",
    "ClaimMark",
    "Claimed",
    "Completion",
    "DsnSource",
    "DuplicateKey",
    "Enqueued",
    "Fail",
    "Heartbeat",
    "Item",
    "LaneFacts",
    "Lease",
    "LeaseConfig",
    "LeaseNotHeld",
    "LeaseQueueError",
    "Loaded",
    "NotAQueue",
    "NotAdopted",
    "Outcome",
    "OutcomeUnknown",
    "OwnedBy",
    "Reclaimed",
    "ReclaimedItem",
    "Refused",
    "Release",
    "Repair",
    "Resolve",
    "Retry",
    "Run",
    "RunRecord",
    "Settlement",
    "Skips",
    "State",
    "Stats",
    "Table",
    "TableMissing",
    "Verdict",
    "WorkerCounters",
    "WorkerRow",
    "aconnect",
    "backoff_s",
    "claim",
    "connect",
    "cordon",
    "defer",
    "deregister",
    "disown",
    "enqueue",
    "enqueue_many",
    "fail",
    "heartbeat",
    "held_by_pods",
    "is_pooled",
    "lease_outcome",
    "own_table",
    "promote",
    "prune",
    "reclaim",
    "record_run",
    "redact",
    "register",
    "release",
    "release_unheld",
    "renew",
    "repair",
    "resolve",
    "retry",
    "runs",
    "sample",
    "set_result",
    "settle",
    "start_run",
    "stats",
    "swept",
    "workers",
]
