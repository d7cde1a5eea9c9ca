"""Fixtures of the tests against real PostgreSQL: `pg`, `db`, `dsn`, `conn`, `durable_server` (devtools/fixtures.py).

Every test below this folder carries the mark `postgres`; the mark `both_versions` runs a test on 15 and on 18.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.fixtures import (
    _durable_18,
    conn,
    db,
    dsn,
    durable_server,
    parametrise_versions,
    pg,
    postgres_15,
    postgres_18,
)

__all__ = ["_durable_18", "conn", "db", "dsn", "durable_server", "pg", "postgres_15", "postgres_18"]

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "both_versions: runs on PostgreSQL 15 and on 18")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrise_versions(metafunc)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.postgres)
