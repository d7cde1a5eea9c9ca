"""Which LeaseQueue resource owns a table: the first that asked, known by its uid."""

from __future__ import annotations

from dataclasses import dataclass

from leasequeue.errors import LeaseQueueError
from leasequeue.rows import Result
from leasequeue.run import Flow, Operation, Query, one
from leasequeue.table import Table

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class OwnedBy:
    """The owner of a table. `mine`: it is the one that asked."""

    cr_uid: str
    cr_namespace: str
    cr_name: str
    mine: bool


def own_table_flow(table: Table, *, cr_uid: str, cr_namespace: str, cr_name: str) -> Flow[OwnedBy]:
    """Flow behind `own_table`."""
    params = {"queue": table.oid, "cr_uid": cr_uid, "cr_namespace": cr_namespace, "cr_name": cr_name}
    for _ in range(ATTEMPTS):
        yield Operation(lambda: one(Query(table.sql("owner_claim"), params)))
        found: Result = yield Operation(lambda: one(Query(table.sql("owner_read"), {"queue": table.oid})))
        if found.rows:  # else: released between the two statements; ask again
            uid, namespace, name = found.rows[0]
            return OwnedBy(uid, namespace, name, uid == cr_uid)
    raise LeaseQueueError(f"the owner of {table.label} keeps changing; try again")


def disown_flow(table: Table, *, cr_uid: str) -> Flow[bool]:
    """Flow behind `disown`: True when the table was owned by that resource and is free now."""
    query = Query(table.sql("owner_release"), {"queue": table.oid, "cr_uid": cr_uid})
    result: Result = yield Operation(lambda: one(query))
    return bool(result.rows)
