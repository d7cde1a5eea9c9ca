"""The server that everything is measured on: PostgreSQL 18, durable, over TCP, otherwise as it comes."""

from __future__ import annotations

from urllib.parse import quote

from devtools.pgserver import SUPERUSER, PgServer

# Of devtools' own settings nothing may stay that makes the server less than a production one; the rest is PostgreSQL's default.
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "autovacuum_naptime": "1min",
    "max_connections": "400",
}


def bench_server(**settings: str) -> PgServer:
    """A server that is not started yet.

    Args:
        settings: further lines of postgresql.conf; they win.
    """
    return PgServer(18, durable=True, settings={**SETTINGS, **settings})


def url(server: PgServer, dbname: str) -> str:
    """Connection URI over TCP, as every driver of every language reads it."""
    password = quote(server.password, safe="")
    return f"postgresql://{SUPERUSER}:{password}@127.0.0.1:{server.port}/{quote(dbname, safe='')}?sslmode=disable"
