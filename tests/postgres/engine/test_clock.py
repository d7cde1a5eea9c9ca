"""Guarantee 9: one clock, the database's, read at the moment it is needed; waits are bounded; nothing depends on a time zone.

Most tests here set that clock: the database's `search_path` puts a schema before pg_catalog whose `clock_timestamp()` and
`pg_postmaster_start_time()` answer what a table says. The statements under test are the real ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from devtools.pgserver import PgServer
from leasequeue import Outcome, Table, schema
from leasequeue.config import LeaseConfig
from tests.postgres.engine.conftest import OpenClient
from tests.postgres.engine.support import Client, add, background, blocked_or_done, name_of, row, states

Conn = psycopg.Connection[Any]
NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


class Clock:
    """The database's clock, set by hand."""

    def __init__(self, conn: Conn) -> None:
        self._conn = conn
        self.set(NOON)
        self.started(NOON - timedelta(days=1))

    @staticmethod
    def install(conn: Conn) -> None:
        conn.execute(
            "CREATE SCHEMA set_clock; CREATE TABLE set_clock.clock (now timestamptz, started timestamptz);"
            "CREATE FUNCTION set_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
            "'SELECT now FROM set_clock.clock';"
            "CREATE FUNCTION set_clock.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql STABLE AS "
            "'SELECT started FROM set_clock.clock'"
        )
        conn.execute("INSERT INTO set_clock.clock VALUES (NULL, NULL)")
        database = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("ALTER DATABASE {} SET search_path = set_clock, pg_catalog, public").format(database))

    def set(self, now: datetime) -> None:
        self._conn.execute("UPDATE set_clock.clock SET now = %s", [now])

    def started(self, at: datetime) -> None:
        self._conn.execute("UPDATE set_clock.clock SET started = %s", [at])


@pytest.fixture(scope="module")
def clock_dsn(postgres_18: PgServer) -> str:
    """A database whose clock can be set."""
    postgres_18.create_database("clocked")
    with psycopg.connect(postgres_18.dsn("clocked"), autocommit=True) as conn:
        schema.create(conn, "timed")
        Clock.install(conn)
    return postgres_18.dsn("clocked")


@pytest.fixture
def conn(clock_dsn: str) -> Iterator[Conn]:
    """Plain connection to it; the queue is empty and it is noon."""
    with psycopg.connect(clock_dsn, autocommit=True) as connection:
        connection.execute("TRUNCATE timed")
        yield connection


@pytest.fixture
def clock(conn: Conn) -> Clock:
    return Clock(conn)


@pytest.fixture
def timed(conn: Conn, clock: Clock) -> Table:
    return Table.load(conn, "timed")


@pytest.fixture
def on_clock(timed: Table, clock_dsn: str, open_client: OpenClient) -> Client:
    return open_client(timed, dsn=clock_dsn, lock_timeout_ms=60_000)


def enqueue_due(conn: Conn, table: Table, n: int = 1, **columns: Any) -> list[Any]:
    return add(conn, table, n, **{"run_at": "2000-01-01Z", **columns})


def test_lease_is_the_databases_now_plus_the_duration(conn: Conn, timed: Table, clock: Clock, on_clock: Client) -> None:
    enqueue_due(conn, timed)
    (item,) = on_clock.claim()
    assert (item.leased_at, item.lease_expires_at) == (NOON, NOON + timedelta(seconds=60))
    clock.set(NOON + timedelta(seconds=20))
    assert on_clock.renew(item.lease) == [Outcome.RENEWED]
    assert row(conn, timed, item.id)["lease_expires_at"] == NOON + timedelta(seconds=80)


@pytest.mark.parametrize(("after_s", "taken"), [(60, 0), (105, 0), (105.001, 1), (3600, 1)])
def test_reclaimed_only_past_expiry_and_reclaim_after(
    conn: Conn, timed: Table, clock: Clock, on_clock: Client, after_s: float, taken: int
) -> None:
    """Lease 60 s, reclaim_after 45 s: not at 105 s sharp, but right after."""
    enqueue_due(conn, timed)
    on_clock.claim()
    clock.set(NOON + timedelta(seconds=after_s))
    page = on_clock.call("reclaim", config=LeaseConfig(lock_timeout_ms=60_000, reclaim_after_s=45))
    assert len(page.items) == taken


@pytest.mark.parametrize(("up_s", "taken"), [(0, 0), (74.9, 0), (75, 1)])
def test_grace_after_the_servers_start(
    conn: Conn, timed: Table, clock: Clock, on_clock: Client, up_s: float, taken: int
) -> None:
    """One lease duration (60 s) + 15 s, counted from the server's start."""
    enqueue_due(conn, timed)
    on_clock.claim()
    clock.set(NOON + timedelta(hours=2))
    clock.started(NOON + timedelta(hours=2) - timedelta(seconds=up_s))
    page = on_clock.call("reclaim", config=LeaseConfig(lock_timeout_ms=60_000, reclaim_after_s=10))
    assert len(page.items) == taken


@pytest.mark.parametrize(("now_s", "due"), [(-0.001, 0), (0, 1)])
def test_due_to_the_microsecond(conn: Conn, timed: Table, clock: Clock, on_clock: Client, now_s: float, due: int) -> None:
    add(conn, timed, state="PENDING", run_at=NOON)
    add(conn, timed, state="SCHEDULED", run_at=NOON)
    clock.set(NOON + timedelta(seconds=now_s))
    assert on_clock.call("promote") == due
    assert len(on_clock.claim(5)) == 2 * due


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Tokyo", "America/New_York", "UTC"])
@pytest.mark.parametrize(
    "at",
    [
        datetime(2025, 10, 26, 0, 59, 30, tzinfo=UTC),  # Berlin: 02:59:30, half a minute before 02:00 comes again
        datetime(2025, 3, 30, 0, 59, 30, tzinfo=UTC),  # Berlin: half a minute before 02:00 becomes 03:00
        datetime(2025, 11, 2, 5, 59, 30, tzinfo=UTC),  # New York: the repeated hour
    ],
)
def test_lease_over_the_hour_change_lasts_its_duration(
    conn: Conn, timed: Table, clock: Clock, on_clock: Client, zone: str, at: datetime
) -> None:
    """B34: 60 s are 60 s, whatever the session's time zone does in between."""
    on_clock.driver.execute(f"SET timezone = '{zone}'")
    clock.set(at)
    clock.started(at - timedelta(days=1))
    enqueue_due(conn, timed)
    (item,) = on_clock.claim()
    assert item.lease_expires_at.astimezone(UTC) - item.leased_at.astimezone(UTC) == timedelta(seconds=60)
    config = LeaseConfig(lock_timeout_ms=60_000, reclaim_after_s=10)
    clock.set(at + timedelta(seconds=70))
    assert on_clock.call("reclaim", config=config).items == []
    clock.set(at + timedelta(seconds=70, milliseconds=1))
    assert len(on_clock.call("reclaim", config=config).items) == 1
    (item,) = on_clock.claim()
    on_clock.retry(item.lease, after_s=3600)
    assert row(conn, timed, item.id)["run_at"] == at + timedelta(seconds=3670, milliseconds=1)


def test_order_over_the_repeated_hour(admin: Conn, table: Table, client: Client) -> None:
    """02:10 and 02:50 in Berlin before the hour is put back, then 02:05 and 02:40 once more: order is that of the instants."""
    at = [datetime(2025, 10, 26, hour, minute, tzinfo=UTC) for hour, minute in ((0, 10), (0, 50), (1, 5), (1, 40))]
    ids = add(admin, table, 4, created_at=lambda i: at[i])
    client.driver.execute("SET timezone = 'Europe/Berlin'")
    assert [item.id for item in client.claim(4)] == ids


def test_ages_over_the_hour_change(conn: Conn, timed: Table, clock: Clock, on_clock: Client) -> None:
    """Who subtracts the sample's times gets the time that passed, in any time zone of the session."""
    on_clock.driver.execute("SET timezone = 'Europe/Berlin'")
    enqueue_due(conn, timed, created_at=datetime(2025, 10, 26, 0, 50, tzinfo=UTC))
    clock.set(datetime(2025, 10, 26, 1, 5, tzinfo=UTC))
    stats = on_clock.call("stats")
    assert stats.now - stats.oldest_pending_at == timedelta(minutes=15)


def test_lease_is_whole_after_a_wait(admin: Conn, table: Table, client: Client) -> None:
    """B49: a lease taken late in a transaction starts when it is taken, not when the transaction began."""
    add(admin, table, 2)
    with client.driver.transaction():
        client.driver.execute("SELECT 1")
        (before,) = client.driver.execute("SELECT clock_timestamp() AS now")
        (item,) = client.claim()
        assert item.leased_at >= before["now"]
        assert item.lease_expires_at - before["now"] >= timedelta(seconds=30)
        (later,) = client.driver.execute("SELECT clock_timestamp() AS now")
        client.renew(item.lease)
        stored = client.driver.execute(f"SELECT lease_expires_at AS at FROM {name_of(table)} WHERE id = %s", [item.id])[0]
        assert stored["at"] - later["now"] >= timedelta(seconds=30)


def test_lease_is_whole_after_waiting_for_the_ceiling(admin: Conn, table: Table, open_client: OpenClient) -> None:
    client = open_client(table, max_inflight_policy="Enforce", max_inflight=100)
    add(admin, table)
    with background(lambda: client.claim()) as claiming:
        with admin.transaction():
            admin.execute("SELECT pg_advisory_xact_lock(%s)", [0x4C510001 << 32 | table.oid])
            blocked_or_done(admin, claiming, client.driver.pid)
            (before,) = admin.execute("SELECT clock_timestamp()").fetchone()
        (item,) = claiming.result()
    if item.leased_at >= before:  # the claim came before the lock otherwise
        assert item.lease_expires_at - before >= timedelta(seconds=30)


@pytest.mark.parametrize("jump_s", [600, -600])
def test_the_clients_clock_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, admin: Conn, table: Table, client: Client, jump_s: float, settled_server: None
) -> None:
    """B49: a worker ten minutes ahead, another ten behind."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)
    add(admin, table)
    (item,) = client.claim()
    (now,) = admin.execute("SELECT clock_timestamp()").fetchone()
    assert timedelta(seconds=25) < item.lease_expires_at - now <= timedelta(seconds=30)
    assert client.reclaim() == []
    assert client.renew(item.lease) == [Outcome.RENEWED]


class TestBoundedWaits:
    def test_a_row_lock_is_waited_for_briefly(self, admin: Conn, table: Table, client: Client) -> None:
        """A completion whose row is locked gives up by itself, with the error that says so."""
        add(admin, table)
        (item,) = client.claim()
        with admin.transaction():
            admin.execute(f"SELECT 1 FROM {name_of(table)} FOR UPDATE")
            with pytest.raises(errors.LockNotAvailable):
                client.resolve(item.lease)
        assert client.resolve(item.lease) == [Outcome.RESOLVED]

    def test_settings_end_with_the_transaction(self, admin: Conn, table: Table, client: Client) -> None:
        """B25: also after a transaction that failed."""
        shown = "SELECT name, setting FROM pg_settings ORDER BY name"
        before = client.driver.execute(shown)
        add(admin, table)
        leases = [item.lease for item in client.claim()]
        client.renew(*leases)
        client.resolve(*leases)
        assert client.driver.execute(shown) == before
        with admin.transaction():
            admin.execute(f"LOCK TABLE {name_of(table)} IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(errors.LockNotAvailable):
                client.claim()
        assert client.driver.execute(shown) == before

    def test_own_transactions_carry_the_bounds(self, admin: Conn, table: Table, client: Client) -> None:
        """What the server was told, seen from inside the statements by a trigger."""
        name = name_of(table)
        admin.execute(
            "CREATE OR REPLACE FUNCTION public.note_settings() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
            "NEW.decision := concat_ws(' ', current_setting('lock_timeout'), current_setting('statement_timeout'), "
            "current_setting('transaction_isolation')); RETURN NEW; END$$"
        )
        admin.execute(f"CREATE TRIGGER t BEFORE UPDATE ON {name} FOR EACH ROW EXECUTE FUNCTION public.note_settings()")
        client.driver.execute("SET default_transaction_isolation = 'serializable'")
        add(admin, table)
        (item,) = client.claim()
        assert row(admin, table, item.id)["decision"] == "300ms 10s read committed"
        client.resolve(item.lease)
        assert row(admin, table, item.id)["decision"] == "300ms 10s read committed"


class TestReplicaAndReadOnly:
    def test_read_only_server_is_an_error_not_an_empty_queue(self, admin: Conn, table: Table, client: Client) -> None:
        """B20: a node that became a standby, imitated by its read-only default."""
        add(admin, table)
        client.driver.execute("SET default_transaction_read_only = on")
        with pytest.raises(errors.ReadOnlySqlTransaction):
            client.claim()
        client.driver.execute("SET default_transaction_read_only = off")
        assert len(client.claim()) == 1


class TestOpenEnds:
    """Rows with infinite or ancient times are claimed, fetched, renewed and completed like others (B31)."""

    @pytest.mark.parametrize("at", ["infinity", "-infinity", "0044-03-15 BC", "9999-12-31 23:59:59.999999Z", "4714-11-24 BC"])
    def test_times_that_python_cannot_hold(self, admin: Conn, table: Table, client: Client, at: str) -> None:
        add(admin, table, 1, created_at=at, seen_at=at, run_at="-infinity")
        add(admin, table, 3, created_at=at)
        add(admin, table, 2)
        items = client.claim(6)
        assert len(items) == 6
        assert states(admin, table) == {"ASSIGNED": 6}
        assert set(client.resolve(*[item.lease for item in items])) == {Outcome.RESOLVED}

    def test_infinite_expiry_is_renewed_not_shortened(self, admin: Conn, table: Table, client: Client) -> None:
        add(admin, table)
        (item,) = client.claim()
        admin.execute(f"UPDATE {name_of(table)} SET lease_expires_at = 'infinity'")
        assert client.renew(item.lease) == [Outcome.RENEWED]
        assert admin.execute(f"SELECT isfinite(lease_expires_at) FROM {name_of(table)}").fetchone() == (False,)


def test_sample_tells_the_databases_clock(conn: Conn, timed: Table, clock: Clock, on_clock: Client) -> None:
    enqueue_due(conn, timed, 2, created_at=NOON - timedelta(hours=1))
    on_clock.claim()
    clock.set(NOON + timedelta(minutes=5))
    stats = on_clock.call("stats")
    assert (stats.now, stats.expired, stats.oldest_expired_at) == (NOON + timedelta(minutes=5), 1, NOON + timedelta(seconds=60))
    assert stats.oldest_pending_at == NOON - timedelta(hours=1)


def test_server_that_restarts_is_met_again(durable_server: PgServer, open_client: OpenClient) -> None:
    """57P01 and a lost connection are errors the caller sees; what was acknowledged before stands."""
    with psycopg.connect(durable_server.dsn(), autocommit=True) as admin:
        schema.create(admin, "restarted")
        table = Table.load(admin, "restarted")
        add(admin, table, 2)
        client = open_client(table, dsn=durable_server.dsn())
        (item,) = client.claim()
    durable_server.restart()
    with pytest.raises(psycopg.OperationalError):
        client.claim()
    again = open_client(table, dsn=durable_server.dsn(), worker_id=client.worker_id)
    assert again.resolve(item.lease) == [Outcome.RESOLVED]
    with psycopg.connect(durable_server.dsn(), autocommit=True) as admin:
        assert states(admin, table) == {"RESOLVED": 1, "PENDING": 1}
        admin.execute("DROP TABLE restarted")
