"""States of an item and outcomes of a fenced write."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """State of an item, as stored in the column `state`.

    PENDING → ASSIGNED → RESOLVED is the main way; SCHEDULED is not due yet, FAILED is terminal, REPAIR waits for a person.
    """

    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    RESOLVED = "RESOLVED"
    SCHEDULED = "SCHEDULED"
    FAILED = "FAILED"
    REPAIR = "REPAIR"


class Outcome(StrEnum):
    """What a fenced write (renew, resolve, retry, fail, repair, release) did to one item.

    The first group says that the write happened; ALREADY_RESOLVED is the repeat of one's own completion; LOST changed
    nothing because the lease is not ours any more; BUSY (renewal only) met a row that could not be extended now, mostly locked by somebody;
    REFUSED (completion only) met a row that the database lets nobody change, which stays leased until its lease ends.
    """

    RENEWED = "RENEWED"
    RESOLVED = "RESOLVED"
    RETRIED = "RETRIED"
    FAILED = "FAILED"
    REPAIR = "REPAIR"
    RELEASED = "RELEASED"
    ALREADY_RESOLVED = "ALREADY_RESOLVED"
    LOST = "LOST"
    BUSY = "BUSY"
    REFUSED = "REFUSED"
