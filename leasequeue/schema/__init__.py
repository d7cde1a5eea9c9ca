"""The table of a queue: `create` a new one, `adopt` a live one, `verify` either. All three are idempotent."""

from __future__ import annotations

from leasequeue.schema.adopt import CannotAdopt, adopt
from leasequeue.schema.create import ColumnSpec, create
from leasequeue.schema.ddl import SchemaBusy
from leasequeue.schema.report import Finding, Report
from leasequeue.schema.spec import SCHEMA_VERSION
from leasequeue.schema.verify import averify, verify

__all__ = [
    "SCHEMA_VERSION",
    "CannotAdopt",
    "ColumnSpec",
    "Finding",
    "Report",
    "SchemaBusy",
    "adopt",
    "averify",
    "create",
    "verify",
]
