"""A real PgBouncer in transaction mode before a `PgServer`, with one server connection, so that every client shares it.

    with PgBouncer(server) as bouncer:
        with psycopg.connect(bouncer.dsn("db")) as conn: ...

The program is the distribution's; as root it is installed when missing, otherwise `LEASEQUEUE_PGBOUNCER` names it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg.conninfo import make_conninfo

from devtools.pgbinaries import CACHE, INSTALL_TIMEOUT_S, NoServerError, _locked, unprivileged_user
from devtools.pgserver import PgServer, _die_with_parent, free_port

PROGRAM = Path("/usr/sbin/pgbouncer")
POLICY = Path("/usr/sbin/policy-rc.d")
START_TIMEOUT_S = 20.0


class PgBouncer:
    """One PgBouncer, started and stopped by this process.

    Args:
        server: where its connections go, as superuser over the unix socket.
        pool_size: server connections per database.
    """

    def __init__(self, server: PgServer, *, pool_size: int = 1) -> None:
        self.server, self.pool_size = server, pool_size
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="lqpb-", dir="/tmp"))
        self.log = self.directory / "pgbouncer.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def dsn(self, dbname: str) -> str:
        """DSN through the pooler."""
        return make_conninfo(host="127.0.0.1", port=self.port, dbname=dbname, user="postgres")

    def start(self) -> None:
        """Start it and wait until it takes connections.

        Raises:
            NoServerError: the program is missing and cannot be installed, or it did not come up.
        """
        program = pgbouncer_program()
        (self.directory / "users.txt").write_text('"postgres" ""\n')
        (self.directory / "pgbouncer.ini").write_text(
            "[databases]\n"
            f"* = host={self.server.directory} port={self.server.port} user=postgres\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = any\nauth_file = {self.directory}/users.txt\n"
            f"pool_mode = transaction\ndefault_pool_size = {self.pool_size}\nmax_client_conn = 500\n"
            "server_reset_query =\n"  # nothing cleans up after a client: what leaks stays to be seen
        )
        user = unprivileged_user()
        if user is not None:
            for path in (self.directory, *self.directory.iterdir()):
                shutil.chown(path, user)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(program), *(["-u", user] if user else []), str(self.directory / "pgbouncer.ini")],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._wait_ready()

    def stop(self) -> None:
        """End it and remove its directory. Repeating it does nothing."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                died = self._process is None or self._process.poll() is not None
                if died or time.monotonic() > deadline:
                    tail = self.log.read_text(errors="replace")[-1000:]
                    raise NoServerError(f"PgBouncer did not start: {error}\n{tail}") from None
            time.sleep(0.05)


def pgbouncer_program() -> Path:
    """The program, installed when missing and this process is root.

    Raises:
        NoServerError: neither present nor installable; the message says what to do.
    """
    given = os.environ.get("LEASEQUEUE_PGBOUNCER")
    if given:
        return Path(given)
    way_out = "apt-get install pgbouncer, or set LEASEQUEUE_PGBOUNCER to the program"
    if not PROGRAM.exists():
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise NoServerError(f"{PROGRAM} is missing: {way_out}")
        CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        with _locked(CACHE / "lock"):
            if not PROGRAM.exists():
                _install(way_out)
    return PROGRAM


def _install(way_out: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "pgbouncer"]
    with _no_services_started():
        for command in (["apt-get", "update", "-qq"], install):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
            if done.returncode:
                raise NoServerError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}. Way out: {way_out}")


@contextlib.contextmanager
def _no_services_started() -> Iterator[None]:
    """The package starts a daemon when it is configured, unless policy-rc.d forbids it (Debian Policy, invoke-rc.d)."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
