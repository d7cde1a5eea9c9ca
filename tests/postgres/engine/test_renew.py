"""Guarantee 4: renewal extends, never shortens, and one locked row costs the others nothing."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors

from leasequeue import Outcome, Table
from leasequeue.config import LeaseConfig
from tests.postgres.engine.support import Client, add, expire, name_of, row, rows, set_where

Conn = psycopg.Connection[Any]


@pytest.mark.both_versions
def test_extends_from_now(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 3)
    leases = [item.lease for item in client.claim(3)]
    expire(admin, table, ago="-1 second")
    (before,) = admin.execute("SELECT clock_timestamp()").fetchone()
    assert client.renew(*leases) == [Outcome.RENEWED] * 3
    for stored in rows(admin, table).values():
        assert (stored["lease_expires_at"] - before).total_seconds() >= 30
        assert (stored["state"], stored["attempt"]) == ("ASSIGNED", 1)


def test_never_shortens(admin: Conn, table: Table, client: Client) -> None:
    """B44: the lease duration of a live queue is lowered from 300 s to 1 s."""
    add(admin, table)
    (item,) = client.claim()
    set_where(admin, table, "lease_expires_at = clock_timestamp() + interval '300 seconds'")
    before = row(admin, table, item.id)["lease_expires_at"]
    assert client.renew(item.lease, config=LeaseConfig(lock_timeout_ms=1_000)) == [Outcome.RENEWED]
    assert row(admin, table, item.id)["lease_expires_at"] == before


@pytest.mark.both_versions
def test_locked_row_is_busy_and_the_others_are_renewed(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table, 5)
    leases = [item.lease for item in client.claim(5)]
    expire(admin, table, ago="-1 second")
    expiry = row(admin, table, leases[2].id)["lease_expires_at"]
    with admin.transaction():
        admin.execute(f"SELECT 1 FROM {name_of(table)} WHERE id = %s FOR UPDATE", [leases[2].id])
        try:
            outcomes = client.renew(*leases)
        except errors.LockNotAvailable:
            outcomes = None
        assert outcomes is not None, "the renewal waited for a locked row, and all leases with it"
    assert outcomes == [Outcome.RENEWED, Outcome.RENEWED, Outcome.BUSY, Outcome.RENEWED, Outcome.RENEWED]
    assert row(admin, table, leases[2].id)["lease_expires_at"] == expiry
    assert client.renew(leases[2]) == [Outcome.RENEWED]


def test_row_locked_by_a_claim_of_somebody_else_is_not_busy_but_lost(admin: Conn, table: Table, client: Client) -> None:
    """Locked, and not ours any more: BUSY would keep a handler running that has lost its lease."""
    add(admin, table)
    (item,) = client.claim()
    set_where(admin, table, "state = 'PENDING', leased_by = NULL")
    with admin.transaction():
        admin.execute(f"SELECT 1 FROM {name_of(table)} FOR UPDATE")
        assert client.renew(item.lease) == [Outcome.LOST]


def test_expired_but_not_reclaimed_is_still_ours(admin: Conn, table: Table, client: Client) -> None:
    add(admin, table)
    (item,) = client.claim()
    expire(admin, table)
    assert client.renew(item.lease) == [Outcome.RENEWED]


def test_in_the_callers_transaction_a_lost_lease_does_not_raise(admin: Conn, table: Table, client: Client) -> None:
    """Renewal has no effects to roll back: LOST is the answer there too."""
    add(admin, table)
    (item,) = client.claim()
    set_where(admin, table, "leased_by = 'other'")
    with client.driver.transaction():
        assert client.renew(item.lease) == [Outcome.LOST]


def test_stays_hot(admin: Conn, table: Table, client: Client) -> None:
    """lease_expires_at is in no index, so a renewal writes to none of them."""
    add(admin, table, 50)
    leases = [item.lease for item in client.claim(50)]

    def counted() -> tuple[int, int]:
        client.driver.execute("SELECT pg_stat_force_next_flush()")
        return admin.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relid = %s", [table.oid]
        ).fetchone()

    updates, hot = counted()
    for _ in range(10):
        client.renew(*leases)
    after, hot_after = counted()
    assert after - updates == 500
    assert hot_after - hot >= 400  # the rest found no room on its page


def test_nothing_to_renew(client: Client) -> None:
    assert client.renew() == []
