"""pytest fixtures over real PostgreSQL servers; a conftest imports those it offers.

Each pytest process (so each xdist worker) starts servers of its own, once, on first use. A server that cannot be had
fails the test; nothing is skipped.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import psycopg
import pytest

from devtools.pgserver import PgServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_18() -> Iterator[PgServer]:
    """PostgreSQL 18 of the wheel; fsync off."""
    with PgServer(18) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_15() -> Iterator[PgServer]:
    """PostgreSQL 15 of Debian; fsync off."""
    with PgServer(15) as server:
        yield server


@pytest.fixture(scope="session")
def _durable_18() -> Iterator[PgServer]:
    with PgServer(18, durable=True) as server:
        yield server


@pytest.fixture
def durable_server(_durable_18: PgServer) -> PgServer:
    """PostgreSQL 18 with fsync on, for `kill9()` and `restart()`; running again at the start of each test."""
    _durable_18.start()
    return _durable_18


@pytest.fixture
def pg(request: pytest.FixtureRequest) -> PgServer:
    """The server of this test: 18, or 15 and then 18 under the mark `both_versions`."""
    version = getattr(request, "param", 18)
    server: PgServer = request.getfixturevalue(f"postgres_{version}")
    return server


@pytest.fixture
def db(pg: PgServer) -> Iterator[str]:
    """Name of an empty database of this test alone; dropped afterwards together with its connections."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    pg.create_database(name)
    yield name
    pg.drop_database(name)


@pytest.fixture
def dsn(pg: PgServer, db: str) -> str:
    """DSN of the test's database, as superuser over the unix socket."""
    return pg.dsn(db)


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection]:
    """Connection to the test's database, autocommit."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def parametrise_versions(metafunc: pytest.Metafunc) -> None:
    """Body of a conftest's `pytest_generate_tests`: the mark `both_versions` runs a test on 15 and on 18."""
    if "pg" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_versions"):
        metafunc.parametrize("pg", [15, 18], indirect=True, ids=["pg15", "pg18"])
