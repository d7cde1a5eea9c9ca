"""What the doctor saw, as plain values. `look.py` fills them, the judges read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from leasequeue.config import SETTINGS
from leasequeue.doctor.limits import Limits
from leasequeue.schema.facts import Facts as Catalog
from leasequeue.schema.report import Report
from leasequeue.workers import WorkerRow


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One ASSIGNED row; see doctor_leases.sql. `left_s` is negative once the lease has ended, None without an end."""

    id: str
    leased_by: str | None
    token: str | None
    lane: str | None
    priority: int
    attempt: int
    crash_count: int
    resolved: bool
    leased_at: str | None
    leased_s: float | None
    no_end: bool
    endless: bool
    left_s: float | None
    ended_at_birth: bool
    since_adoption: bool

    @property
    def lasts(self) -> bool:
        """Not ended yet."""
        return self.endless or (self.left_s is not None and self.left_s > 0)

    @property
    def key(self) -> tuple[str | None, str | None]:
        """What makes this lease this one."""
        return (self.leased_by, self.token)


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody who waits for a lock, and one who holds it; see doctor_waits.sql."""

    pid: int
    who: str | None
    lock: str
    mode: str
    waits_s: float
    blocker: int
    blocker_who: str | None
    blocker_state: str | None
    blocker_s: float | None


@dataclass(frozen=True, slots=True)
class Counters:
    """PostgreSQL's statistics of the table; see doctor_counters.sql."""

    seq_scan: int
    updates: int
    live: int
    dead: int
    last_autovacuum: datetime | None
    autovacuum: bool
    bytes: int
    scans: Mapping[str, int]
    building: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at what moves. An empty part was not seen or is empty."""

    leases: tuple[LeaseRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    waits: tuple[Wait, ...] = ()
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What the control schema remembers; see doctor_upkeep.sql. Seconds are ages."""

    adopted_at: datetime | None = None
    swept_at: datetime | None = None
    swept_s: float | None = None
    run_started_at: datetime | None = None
    run_finished_at: datetime | None = None
    run_max_inflight: int | None = None
    run_failed: bool = False
    server_up_s: float | None = None


@dataclass(frozen=True, slots=True)
class DueRow:
    """The first due item of one priority."""

    priority: int
    id: str
    due_s: float


@dataclass(frozen=True, slots=True)
class LaneRow:
    """A lane whose head cannot run while `waiting` due items stand behind it."""

    lane: str
    id: str
    state: str
    waiting: int
    due_s: float


@dataclass(frozen=True, slots=True)
class Suspect:
    """An unfinished item with a past; see doctor_suspects.sql."""

    id: str
    state: str
    attempt: int
    crash_count: int
    age_s: float | None
    has_token: bool
    lease_lasts: bool
    resolved: bool


@dataclass(frozen=True, slots=True)
class Holder:
    """A transaction with locks on the table; `held_s` None: not to be seen by this role."""

    pid: int | None
    who: str | None
    state: str | None
    held_s: float | None
    modes: tuple[str, ...]
    prepared: bool


@dataclass(frozen=True, slots=True)
class Pin:
    """Something that keeps dead rows from being removed; see doctor_xmin.sql."""

    kind: str
    name: str | None
    pid: int | None
    state: str | None
    age_s: float | None
    age_xids: int


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Idempotency keys that several items have."""

    keys: int
    items: int
    open: int
    leased_keys: int
    example: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """A number of items and some of their ids; `late_s` where lateness is what was looked for."""

    items: int = 0
    ids: tuple[str, ...] = ()
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections that the server allows to all but superusers, those that there are, and ours among them."""

    allowed: int
    used: int
    ours: int


@dataclass(frozen=True, slots=True)
class Blind:
    """A look that failed: what was to be seen, why not, and what would let us look."""

    look: str
    reason: str
    fix: str


@dataclass(frozen=True)
class Facts:
    """Everything that was seen of one queue.

    Args:
        catalog: columns, indexes, CHECKs of the table.
        report: what `schema verify` says of them.
        strict: lanes run strictly in order.
        limits: thresholds.
        first: the first look at what moves.
        second: the second look; the same as `first` where it was looked once.
        watched_s: seconds between the two.
        catalog_seen: False where the table was locked so hard that not even its definition could be read.
    """

    catalog: Catalog
    report: Report
    strict: bool
    limits: Limits = field(default_factory=Limits)
    first: Snapshot = field(default_factory=Snapshot)
    second: Snapshot = field(default_factory=Snapshot)
    watched_s: float = 0.0
    upkeep: Upkeep = field(default_factory=Upkeep)
    due: tuple[DueRow, ...] = ()
    unpromoted: Counted = field(default_factory=Counted)
    lanes: tuple[LaneRow, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    duplicates: Duplicates | None = None
    unstamped: Counted = field(default_factory=Counted)
    unknown_states: Mapping[str, int] = field(default_factory=dict)
    not_numbers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    not_numbers_sampled: bool = False
    holders: tuple[Holder, ...] = ()
    pins: tuple[Pin, ...] = ()
    refusing: Mapping[str, Counted] = field(default_factory=dict)
    connections: Connections | None = None
    blind: tuple[Blind, ...] = ()
    catalog_seen: bool = True

    @property
    def table(self) -> str:
        """Quoted, qualified name, for SQL in fixes."""
        return self.catalog.sql_name

    @property
    def max_inflight(self) -> int:
        """The ceiling: as given, as the reclaimer last had it, or the default."""
        given = self.limits.max_inflight
        return given or self.upkeep.run_max_inflight or SETTINGS["max_inflight"].default
