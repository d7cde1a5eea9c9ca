"""Fixtures of the operator's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from kmock import Server
from kubernetes.aio.client import ApiClient, Configuration

from devtools.fixtures import conn, db, dsn, parametrise_versions, pg, postgres_15, postgres_18
from leasequeue_operator.kube import Kube
from tests.operator.apiserver import ApiServer

__all__ = ["conn", "db", "dsn", "pg", "postgres_15", "postgres_18"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrise_versions(metafunc)


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """An imitated API server."""
    async with ApiServer() as made, Server(made):
        yield made


@pytest.fixture
async def configuration(api: ApiServer) -> Configuration:
    """The login to it."""
    return Configuration(host=str(api.url).rstrip("/"))


@pytest.fixture
async def kube(configuration: Configuration) -> AsyncIterator[Kube]:
    """Calls to it, which are given up soon."""
    made = Kube(ApiClient(configuration), timeout_s=1.0)
    yield made
    await made.close()
