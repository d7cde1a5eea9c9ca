"""The operator and TLS: Secret and authority become a connection, and a condition says whom it believes (B17, B104)."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from devtools.pgserver import PgServer
from leasequeue.schema import create
from leasequeue.tls import Trust
from leasequeue_operator.kube import Kube
from leasequeue_operator.observe.database import Hub
from leasequeue_operator.observe.group import Wanted
from leasequeue_operator.observe.reach import Reach
from leasequeue_operator.observe.secret import Connection
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import Queue
from tests.operator import samples
from tests.support.tls import Authority, TlsServer

VERIFY = {"sslMode": "verify-full", "caSecretRef": {"name": "ca"}}


class Secrets(Kube):
    """The API server, as far as Secrets go."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], dict[str, Any]] = {}

    def put(self, name: str, data: dict[str, str], version: int = 1) -> None:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        self.held["team", name] = {"metadata": {"name": name, "resourceVersion": str(version)}, "data": encoded}

    async def find(self, _kind: Any, namespace: str, name: str) -> dict[str, Any] | None:
        return self.held.get((namespace, name))


@pytest.fixture(scope="module")
def pg15() -> Iterator[PgServer]:
    with PgServer(15) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            create(conn, "jobs")
        yield server


@pytest.fixture
def good(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "good", "good authority")


@pytest.fixture
def server(pg15: PgServer, good: Authority) -> TlsServer:
    made = TlsServer(pg15)
    made.show(good.issue("IP:127.0.0.1"))
    return made


@pytest.fixture
def secrets(server: TlsServer, good: Authority) -> Secrets:
    made = Secrets()
    made.put("db", server.parts())
    made.put("ca", {"ca.crt": good.ca.read_text()})
    return made


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    made = Hub()
    yield made
    await made.close()


def queue(**database: Any) -> Queue:
    return samples.queue(database=database)


async def read(secrets: Secrets, **database: Any) -> Connection | Problem:
    made = queue(**database)
    return await Reach(secrets).read(made, made.spec.database.secret_ref)


async def look(hub: Hub, connection: Connection | Problem) -> Problem | None:
    assert isinstance(connection, Connection), connection
    view = await hub.look(connection, Wanted("u", "team", "orders", "public", "jobs", None), 0)
    return view.unreachable or view.unready


async def seen(hub: Hub, secrets: Secrets, reason: str | None, **database: Any) -> Problem | None:
    """Look until the server shows the certificate it was told to (its reload takes a moment)."""
    problem = None
    for _ in range(100):
        fresh = Hub()
        problem = await look(fresh, await read(secrets, **database))
        await fresh.close()
        if (problem.reason if problem else None) == reason:
            break
    assert (problem.reason if problem else None) == reason, problem
    return problem


async def test_the_named_authority_is_believed_and_another_is_not(secrets: Secrets, hub: Hub, tmp_path: Path) -> None:
    await seen(hub, secrets, None, **VERIFY)
    found = await read(secrets, **VERIFY)
    assert isinstance(found, Connection)
    assert (found.trust, found.mode, found.version) == (Trust.VERIFIED, "verify-full", "1+1")
    secrets.put("ca", {"ca.crt": Authority(tmp_path / "other", "other").ca.read_text()})
    problem = await seen(hub, secrets, "TlsNotTrusted", **VERIFY)
    assert problem is not None
    assert "spec.database.caSecretRef" in problem.message


async def test_a_certificate_for_another_host_is_named_as_such(
    secrets: Secrets, server: TlsServer, good: Authority, hub: Hub
) -> None:
    server.show(good.issue("DNS:db.example"))
    problem = await seen(hub, secrets, "TlsHostMismatch", **VERIFY)
    assert problem is not None
    assert 'does not match host name "127.0.0.1"' in problem.message


async def test_a_new_authority_is_used_at_the_next_poll(
    secrets: Secrets, server: TlsServer, good: Authority, hub: Hub, tmp_path: Path
) -> None:
    await seen(hub, secrets, None, **VERIFY)
    reach, made = Reach(secrets), queue(**VERIFY)
    assert await look(hub, await reach.read(made, made.spec.database.secret_ref)) is None
    new = Authority(tmp_path / "new", "new authority")
    server.show(new.issue("IP:127.0.0.1"))
    await seen(hub, secrets, "TlsNotTrusted", **VERIFY)
    secrets.put("ca", {"ca.crt": new.ca.read_text()}, version=2)
    found = await reach.read(made, made.spec.database.secret_ref)
    assert await look(hub, found) is None
    assert isinstance(found, Connection)
    files = list(Path(conninfo_to_dict(found.dsn)["sslrootcert"]).parent.iterdir())
    assert [f.read_text() for f in files] == [new.ca.read_text()], "the old authority's file is gone"
    reach.forget(made.uid)
    assert not files[0].exists()


async def test_the_secrets_own_mode_counts_where_the_spec_says_nothing(secrets: Secrets, server: TlsServer) -> None:
    parts = server.parts()
    for query, trust in (("", Trust.OPEN), ("?sslmode=require", Trust.ENCRYPTED), ("?sslrootcert=system", Trust.VERIFIED)):
        secrets.put("db", {"uri": f"postgresql://u:p@{parts['host']}:{parts['port']}/d{query}"})
        found = await read(secrets)
        assert isinstance(found, Connection)
        assert found.trust is trust
    secrets.put("db", {"uri": "host=h.example user=u dbname=d sslmode=disable"})
    found = await read(secrets, sslMode="require")
    assert isinstance(found, Connection)
    assert (found.mode, found.trust) == ("require", Trust.ENCRYPTED)
    secrets.put("db", {"uri": "host=h.example user=u dbname=d sslmode=verify-full"})
    problem = await read(secrets)
    assert isinstance(problem, Problem)
    assert (problem.reason, "spec.database.caSecretRef" in problem.message) == ("NoAuthority", True)


async def test_values_cannot_smuggle_weaker_settings(secrets: Secrets, server: TlsServer) -> None:
    secrets.put("db", server.parts(dbname="d\tsslmode=disable", user="x' host=evil sslmode='disable"))
    found = await read(secrets, **VERIFY)
    assert isinstance(found, Connection)
    given = conninfo_to_dict(found.dsn)
    assert (given["sslmode"], given["host"], given["dbname"]) == ("verify-full", "127.0.0.1", "d\tsslmode=disable")


@pytest.mark.parametrize(
    ("data", "reason"),
    [(None, "SecretNotFound"), ({"x": "y"}, "SecretKeyNotFound"), ({"ca.crt": ""}, "SecretInvalid"),
     ({"ca.crt": "-----BEGIN PRIVATE KEY-----\nHunter22\n-----END PRIVATE KEY-----\n"}, "SecretInvalid")],
)  # fmt: skip
async def test_an_authority_that_is_none(secrets: Secrets, data: dict[str, str] | None, reason: str) -> None:
    del secrets.held["team", "ca"]
    if data is not None:
        secrets.put("ca", data)
    problem = await read(secrets, **VERIFY)
    assert isinstance(problem, Problem)
    assert problem.reason == reason
    assert "spec.database.caSecretRef" in problem.message
    assert "Hunter22" not in problem.message


async def test_without_tls_at_the_server_nothing_is_sent(hub: Hub) -> None:
    with PgServer(15) as plain:
        secrets = Secrets()
        secrets.put("db", TlsServer(plain).parts())
        problem = await look(hub, await read(secrets, sslMode="require"))
    assert problem is not None
    assert problem.reason == "TlsNotOffered"
