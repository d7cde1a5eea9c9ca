"""The queue's table as this process knows it: resolved at the first connection, again after it went missing."""

from __future__ import annotations

from leasequeue.errors import TableMissing
from leasequeue.table import Table
from leasequeue_worker.link import Connection


class QueueTable:
    """Holder of the resolved table, shared by the threads. Only the claim loop resolves it.

    Args:
        schema: schema name, as stored.
        name: table name, as stored.
    """

    def __init__(self, schema: str, name: str) -> None:
        self.schema, self.name = schema, name
        self._table: Table | None = None

    @property
    def known(self) -> bool:
        """True once resolved, and not forgotten since."""
        return self._table is not None and not self._stale

    _stale = True

    def resolve(self, conn: Connection) -> Table:
        """The table; asks the catalog when it is not known.

        Raises:
            TableMissing, NotAdopted, BadInput: as `Table.load`.
        """
        if self._table is None or self._stale:
            self._table = Table.load(conn, self.name, self.schema)
            self._stale = False
        return self._table

    def get(self) -> Table:
        """The table as last resolved; completions of items that were claimed from it need no more.

        Raises:
            TableMissing: never resolved.
        """
        if self._table is None:
            raise TableMissing(f"{self.schema}.{self.name}", "was not resolved yet")
        return self._table

    def forget(self) -> None:
        """Look again before the next claim: it was dropped, renamed or altered."""
        self._stale = True
