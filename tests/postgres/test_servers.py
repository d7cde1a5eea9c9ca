"""The servers the other tests rely on are what they say they are."""

from __future__ import annotations

import psycopg
import pytest

from devtools.pgserver import PgServer


@pytest.mark.both_versions
def test_version_asked_is_version_served(pg: PgServer, conn: psycopg.Connection) -> None:
    assert conn.info.server_version // 10000 == pg.version


def test_tcp_demands_the_password(pg: PgServer, db: str) -> None:
    with psycopg.connect(pg.dsn(db, tcp=True)) as conn:
        assert conn.execute("SHOW fsync").fetchone() == ("off",)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(pg.dsn(db, password="wrong"))


def test_acknowledged_commit_survives_kill9(durable_server: PgServer) -> None:
    with psycopg.connect(durable_server.dsn(), autocommit=True) as conn:
        assert conn.execute("SHOW fsync").fetchone() == ("on",)
        conn.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        durable_server.kill9()
        with pytest.raises(psycopg.OperationalError):
            conn.execute("SELECT 1")
    durable_server.start()
    with psycopg.connect(durable_server.dsn(), autocommit=True) as conn:
        assert conn.execute("SELECT answer FROM kept").fetchone() == (42,)
        conn.execute("DROP TABLE kept")
