"""A PostgreSQL on a cluster's node for tests without images: prints its password, makes the tables named, ends with its input.

python -m tests.operator.node_postgres PORT TABLE…
"""

from __future__ import annotations

import sys

import psycopg

from devtools.pgserver import PgServer
from leasequeue import schema

STRICT = "strict:"


def main() -> None:
    """Serve until the input ends."""
    port, tables = int(sys.argv[1]), sys.argv[2:]
    with PgServer(15, listen="127.0.0.1", port=port) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            for table in tables:
                schema.create(conn, table.removeprefix(STRICT), strict_lanes=table.startswith(STRICT))
        print(server.password, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
