"""Addresses of the complete names, names of the certificate as the Secret gives them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from leasequeue_operator.observe import address

KNOWN = {"pg.team.svc": ["10.0.0.1", "10.0.0.2"], "b.example": ["192.0.2.1"]}


def renamed(monkeypatch: pytest.MonkeyPatch, text: str, verified: str) -> dict[str, Any]:
    async def resolve(_loop: Any, host: str, port: None, **_: Any) -> list[tuple[Any, ...]]:
        if host not in KNOWN:
            raise socket.gaierror(-2, "Name or service not known")
        if not KNOWN[host]:
            raise UnicodeError(f"label too long: {host}")
        return [(0, 0, 0, "", (place, port)) for place in KNOWN[host]]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    return dict(conninfo_to_dict(asyncio.run(address.addressed(text, verified))))


def test_each_address_is_tried_under_the_name_of_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    given = renamed(monkeypatch, "host=pg.team.svc,b.example port=5432,5433 user=u", "pg,b.example")
    assert given == {
        "host": "pg,pg,b.example",
        "hostaddr": "10.0.0.1,10.0.0.2,192.0.2.1",
        "port": "5432,5432,5433",
        "user": "u",
    }


def test_one_port_is_for_all_hosts_and_a_host_that_is_not_found_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    given = renamed(monkeypatch, "host=gone.team.svc,b.example port=6432 user=u", "gone,b.example")
    assert (given["host"], given["hostaddr"], given["port"]) == ("b.example", "192.0.2.1", "6432")


@pytest.mark.parametrize("host", ["Kolibri.team.svc", "Kolibri" * 40])
def test_no_host_at_all_is_told_without_its_name(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Somebody may have put the password there."""
    if len(host) > 255:
        monkeypatch.setitem(KNOWN, host, [])
    with pytest.raises(psycopg.OperationalError, match=r"failed to resolve host '\*\*\*'") as told:
        renamed(monkeypatch, f"host={host} user=u", "gone")
    assert "Kolibri" not in str(told.value)


def test_ports_that_do_not_match_the_hosts_are_a_fault_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """As libpq tells it; another error would end the operator's listening for good."""
    with pytest.raises(psycopg.OperationalError, match="could not match 2 port numbers to 1 hosts"):
        renamed(monkeypatch, "host=pg.team.svc port=5432,5433 user=u", "pg")
