"""A real PostgreSQL server of its own: temporary directory, free loopback port, gone with this process.

    with PgServer(18) as server:
        with psycopg.connect(server.dsn()) as conn: ...

Over the unix socket every role enters without a password (the directory is closed to other users); over TCP a password
is demanded, as in production.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from devtools.pgbinaries import NoServerError, binaries, unprivileged_user

SUPERUSER = "postgres"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
PR_SET_PDEATHSIG = 1

# Tests are many and short: nothing of theirs must outlive a power cut.
FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
COMMON = {
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    "autovacuum_naptime": "10s",
}


class PgServer:
    """One PostgreSQL cluster, started and stopped by this process.

    Args:
        version: 15 or 18.
        durable: fsync as in production, so that an acknowledged commit survives `kill9()`.
        listen: address of the TCP port.
        port: TCP port; 0 takes a free one.
        settings: further lines of postgresql.conf; they win over ours.
        directory: where the cluster lives; default a temporary directory, removed by `stop()`.
    """

    def __init__(
        self,
        version: int = 18,
        *,
        durable: bool = False,
        listen: str = "127.0.0.1",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.version = version
        self.bin = binaries(version)
        self.listen = listen
        self.port = port or free_port(listen)
        self.password = secrets.token_urlsafe(12)
        self.settings = {**COMMON, **({} if durable else FAST), **(settings or {})}
        self._user = unprivileged_user()
        self._temporary = directory is None
        # A unix socket's path has to fit in 107 bytes: TMPDIR may be long, /tmp is not.
        self.directory = directory or Path(tempfile.mkdtemp(prefix="lqpg-", dir="/tmp"))
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
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

    @property
    def running(self) -> bool:
        """Whether the postmaster lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        if self._process is None:
            raise NoServerError("the server was never started")
        return self._process.pid

    def start(self) -> None:
        """Make the cluster where there is none, start the server and wait until it takes connections.

        Raises:
            NoServerError: it did not come up within 60 s; the end of its log is in the message.
        """
        if self.running:
            return
        if not (self.data / "PG_VERSION").exists():
            self._init()
        options = [f"-c{name}={value}" for name, value in self.settings.items()]
        command = [str(self.bin / "postgres"), "-D", str(self.data), "-k", str(self.directory)]
        command += ["-h", self.listen, "-p", str(self.port), *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C of a test run must not shut it down before the fixtures do
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
                **self._as_user(),
            )
        atexit.register(self.stop)
        self._wait_ready()

    def stop(self) -> None:
        """Shut down (fast, then at once after 60 s) and remove a temporary directory. Repeating it does nothing."""
        if self._process is not None:
            if self.running:
                self._end(self._process)
            self._process = None
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        atexit.unregister(self.stop)

    def shut_down(self) -> None:
        """Fast shutdown that keeps the data; `start()` brings it back on the same port."""
        if self._process is not None and self.running:
            self._end(self._process)

    def restart(self) -> None:
        """Fast shutdown and start on the same data and port."""
        self.shut_down()
        self.start()

    def kill9(self) -> None:
        """SIGKILL the postmaster and all its children, as an out-of-memory killer or a lost node would."""
        process = self._process
        if process is None:
            raise NoServerError("the server was never started")
        children = _children(process.pid)
        for pid in [process.pid, *children]:
            _kill(pid)
        process.wait(STOP_TIMEOUT_S)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while any(_alive(pid) for pid in children):  # a new postmaster refuses to start beside old children
            if time.monotonic() > deadline:
                raise NoServerError(f"children of the killed server still run: {children}")
            time.sleep(0.02)

    def dsn(self, dbname: str = "postgres", user: str = SUPERUSER, password: str | None = None, *, tcp: bool = False) -> str:
        """DSN as libpq keywords.

        Args:
            dbname: database.
            user: role.
            password: given, the connection is made over TCP, where the password is checked.
            tcp: TCP for the superuser, with its generated password.
        """
        if password is None and tcp and user == SUPERUSER:
            password = self.password
        if password is None and not tcp:
            return make_conninfo(host=str(self.directory), port=self.port, dbname=dbname, user=user)
        host = "127.0.0.1" if self.listen in ("*", "0.0.0.0") else self.listen  # noqa: S104
        return make_conninfo(host=host, port=self.port, dbname=dbname, user=user, password=password)

    def create_database(self, name: str, template: str = "template1") -> str:
        """Create database `name`; returns its DSN."""
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop database `name`, ending the connections to it."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, statement: sql.Composed | sql.SQL, dbname: str = "postgres") -> None:
        """Run one statement as superuser, outside a transaction."""
        with psycopg.connect(self.dsn(dbname), autocommit=True) as conn:
            conn.execute(statement)

    def _init(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = self.directory / "password"
        secret.write_text(self.password)
        if self._user is not None:
            for path in (self.directory, secret):
                shutil.chown(path, self._user)
        command = [str(self.bin / "initdb"), "-D", str(self.data), "-U", SUPERUSER, "--no-sync", "--encoding=UTF8"]
        command += ["--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"]
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, timeout=120, check=False, **self._as_user()
        )
        secret.unlink()
        if done.returncode:
            raise NoServerError(f"initdb of PostgreSQL {self.version} failed: {done.stderr.strip()[-500:]}")
        with (self.data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 0.0.0.0/0 scram-sha-256\nhost all all ::/0 scram-sha-256\n")

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        entry = pwd.getpwnam(self._user)
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(self.directory)}
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "env": environment}

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if not self.running or time.monotonic() > deadline:
                    tail = self.log.read_text(errors="replace")[-1000:]
                    raise NoServerError(f"PostgreSQL {self.version} did not start: {error}\n{tail}") from None
            time.sleep(0.05)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        for how in (signal.SIGINT, signal.SIGQUIT):
            process.send_signal(how)
            try:
                process.wait(STOP_TIMEOUT_S)
                return
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        process.wait(STOP_TIMEOUT_S)


def free_port(address: str = "127.0.0.1") -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind((address if address != "*" else "", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    """Ask the kernel for a fast shutdown when the starting thread dies: a killed test run leaves no server behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _children(pid: int) -> list[int]:
    listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listing.stdout.split()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
