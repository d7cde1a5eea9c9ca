"""What a lease queue's table has: lease columns, indexes, checks, and the names of the latter.

One definition, from which `create` makes a table, `adopt` completes one and `verify` judges one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from leasequeue.states import State

SCHEMA_VERSION = 1
MAX_NAME_BYTES = 63
STATES = tuple(state.value for state in State)

TEXT = ("text", "character varying")
TIME = ("timestamp with time zone",)
ID_TYPES = ("uuid", "bigint", "integer", "smallint", "text")


@dataclass(frozen=True, slots=True)
class LeaseColumn:
    """One lease column.

    Args:
        name: its name.
        type: its type in a table of ours.
        accepts: types, as `format_type` names them without length, that an adopted table may have instead.
        not_null: whether rows must have a value.
        default: SQL of the default for rows to come.
        adopt_default: SQL of a constant or stable default for the rows of an adopted table (a volatile one would rewrite it);
            None where `default` is constant itself.
        min_length: shortest length that a `character varying` may be limited to; None refuses any limit.
    """

    name: str
    type: str
    accepts: tuple[str, ...]
    not_null: bool = False
    default: str | None = None
    adopt_default: str | None = None
    min_length: int | None = None


LEASE_COLUMNS = (
    LeaseColumn("idempotency_key", "text", TEXT, min_length=1),
    LeaseColumn("state", "text", TEXT, True, "'PENDING'", min_length=max(map(len, STATES))),
    LeaseColumn("priority", "integer", ("integer",), True, "0"),
    LeaseColumn("run_at", "timestamptz", TIME, True, "clock_timestamp()", "now()"),
    LeaseColumn("lane", "text", TEXT, min_length=1),
    LeaseColumn("created_at", "timestamptz", TIME, True, "clock_timestamp()", "now()"),
    LeaseColumn("leased_by", "text", TEXT, min_length=255),
    LeaseColumn("leased_at", "timestamptz", TIME),
    LeaseColumn("lease_expires_at", "timestamptz", TIME),
    LeaseColumn("lease_token", "uuid", ("uuid",)),
    LeaseColumn("attempt", "integer", ("integer", "bigint"), True, "0"),
    LeaseColumn("crash_count", "integer", ("integer", "bigint"), True, "0"),
    LeaseColumn("last_error", "text", TEXT),
    LeaseColumn("result", "jsonb", ("jsonb",)),
    LeaseColumn("resolved_at", "timestamptz", TIME),
    LeaseColumn("trace_id", "uuid", ("uuid",), False, "gen_random_uuid()"),
    LeaseColumn("source_hash", "text", TEXT, min_length=1),
)
LEASE_COLUMN_NAMES = frozenset({"id", *(column.name for column in LEASE_COLUMNS)})

# index → statement; the claim index has two forms
INDEXES = (
    "claim", "assigned", "scheduled", "attention", "lane_head", "lane_claim", "lane_assigned", "resolved",
)  # fmt: skip
CHECKS = ("state", "leased", "priority")
OPTIONS = {"fillfactor": "70", "autovacuum_vacuum_scale_factor": "0.01", "autovacuum_vacuum_threshold": "1000"}


def index_statement(what: str, *, strict_lanes: bool) -> str:
    """Name of the statement that makes the index `what`."""
    return "schema_index_claim_strict" if what == "claim" and strict_lanes else f"schema_index_{what}"


def object_name(table: str, what: str) -> str:
    """`<table>_lq_<what>`, cut to 63 bytes; a cut name carries a hash, since two long names may share their beginning."""
    suffix = f"_lq_{what}"
    room = MAX_NAME_BYTES - len(suffix)
    if len(table.encode()) <= room:
        return table + suffix
    digest = hashlib.sha256(table.encode()).hexdigest()[:8]
    cut = table.encode()[: room - 9].decode(errors="ignore")
    return f"{cut}_{digest}{suffix}"


_NOISE = re.compile(r"::(text|character varying|bpchar)(\[\])?|[()\s]|\bWITH\s*\([^)]*\)", re.IGNORECASE)


def normalised_index(statement: str) -> str:
    """Method, keys and predicate of a CREATE INDEX, without casts, brackets and spaces: as we write it and as
    `pg_get_indexdef` does."""
    unique = "unique " if statement.lstrip().upper().startswith("CREATE UNIQUE") else ""
    return unique + _NOISE.sub("", statement.partition(" USING ")[2])


_LITERAL = re.compile(r"'((?:[^']|'')*)'")


def states_of_check(expression: str) -> frozenset[str] | None:
    """States that a CHECK over `state` allows; None where its form is another than a list of literals.

    Args:
        expression: as `pg_get_expr` writes it: `(state = ANY (ARRAY['A'::text, …]))`, or `((state = 'A'::text) OR …)`.
    """
    text = re.sub(r"::(text|character varying)(\(\d+\))?(\[\])?", "", expression)
    literals = _LITERAL.findall(text)
    skeleton = _LITERAL.sub("?", text).replace(" ", "").replace("(", "").replace(")", "")
    listed = re.fullmatch(r"state=ANYARRAY\[\?(,\?)*\]", skeleton)
    either = re.fullmatch(r"state=\?(ORstate=\?)*", skeleton)
    if not literals or not (listed or either):
        return None
    return frozenset(value.replace("''", "'") for value in literals)
