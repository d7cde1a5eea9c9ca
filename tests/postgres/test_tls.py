"""TLS against a real server: who is believed, what is refused, and a new authority (cases B13, B17, B104)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from devtools.pgserver import PgServer
from leasequeue.dsn import DsnSource, connect
from leasequeue.errors import BadInput
from leasequeue.tls import Tls
from tests.support.processes import wait_for
from tests.support.tls import Authority, TlsServer

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def pg15() -> Iterator[PgServer]:
    with PgServer(15) as server:
        yield server


@pytest.fixture
def good(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "good", "good authority")


@pytest.fixture
def server(pg15: PgServer, good: Authority) -> TlsServer:
    """A server whose certificate `good` issued for 127.0.0.1."""
    made = TlsServer(pg15)
    made.show(good.issue("IP:127.0.0.1"))
    wait_for_certificate(made, good)
    return made


def wait_for_certificate(server: TlsServer, authority: Authority) -> None:
    def shown() -> bool:
        try:
            connect(source(server, "verify-full", authority.ca)).close()
        except psycopg.OperationalError:
            return False
        return True

    wait_for("the new certificate", shown, 20)


def source(server: TlsServer, mode: str | None = None, ca: Path | str | None = None, **parts: str) -> DsnSource:
    return DsnSource(dsn=make_conninfo("", **server.parts(**parts)), tls=Tls(mode, str(ca) if ca else None))


def encrypted(found: DsnSource) -> bool:
    with connect(found) as conn:
        row = conn.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
        assert row is not None
        return bool(row[0])


def refusal(found: DsnSource) -> str:
    with pytest.raises(psycopg.OperationalError) as caught:
        connect(found)
    return str(caught.value)


def test_a_certificate_of_the_named_authority_is_believed(server: TlsServer, good: Authority) -> None:
    for mode in ("verify-full", "verify-ca", None):
        assert encrypted(source(server, mode, good.ca))


def test_any_other_is_not(server: TlsServer, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "other authority")
    for mode in ("verify-full", "verify-ca", None):
        assert "certificate verify failed" in refusal(source(server, mode, other.ca))


def test_a_certificate_for_another_host_is_refused_by_verify_full_alone(
    server: TlsServer, pg15: PgServer, good: Authority
) -> None:
    server.show(good.issue("DNS:db.example"))
    wait_for("the new certificate", lambda: _fails(source(server, "verify-full", good.ca)), 20)
    assert 'does not match host name "127.0.0.1"' in refusal(source(server, "verify-full", good.ca))
    assert encrypted(source(server, "verify-ca", good.ca))


def _fails(found: DsnSource) -> bool:
    try:
        connect(found).close()
    except psycopg.OperationalError:
        return True
    return False


def test_a_self_signed_certificate_passes_with_require_alone(server: TlsServer, tmp_path: Path) -> None:
    assert encrypted(source(server, "require"))
    assert "root certificate file" in refusal(source(server, "verify-full", tmp_path / "missing.crt"))


def test_nothing_in_a_dsn_weakens_the_setting(server: TlsServer, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    weak = {"sslmode": "disable", "sslrootcert": str(tmp_path / "nothing"), "gssencmode": "prefer"}
    assert encrypted(source(server, "require", None, sslmode="disable"))
    assert "certificate verify failed" in refusal(source(server, "verify-full", other.ca, **weak))
    smuggled = source(server, "verify-full", other.ca, dbname="d\tsslmode=disable", user="x' host=evil")
    assert "certificate verify failed" in refusal(smuggled)


def test_without_tls_at_the_server_require_gives_up(tmp_path: Path) -> None:
    with PgServer(15) as plain:
        server = TlsServer(plain)
        assert "server does not support SSL" in refusal(source(server, "require"))
        assert not encrypted(source(server))


def test_a_new_authority_counts_from_the_next_connection(server: TlsServer, good: Authority, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted.crt"
    shutil.copy(good.ca, mounted)
    found = source(server, "verify-full", mounted)
    with connect(found) as open_before:
        new = Authority(tmp_path / "new", "new authority")
        server.show(new.issue("IP:127.0.0.1"))
        wait_for("the new certificate", lambda: _fails(found), 20)
        shutil.copy(new.ca, mounted)
        assert encrypted(found)
        open_before.execute("SELECT 1")


def test_system_means_the_machines_authorities(server: TlsServer, good: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(good.ca))
    assert encrypted(source(server, None, "system"))
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "certificate verify failed" in refusal(source(server, "verify-full", "system"))


@pytest.mark.parametrize(("mode", "root"), [("prefer", None), ("disable", None), ("", "x"), ("require", "system")])
def test_settings_that_are_refused(mode: str, root: str | None) -> None:
    with pytest.raises(BadInput, match="ssl_mode"):
        Tls(mode, root)
