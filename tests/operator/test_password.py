"""One password through every failure we can make, in real processes: nothing that comes out shows any form of it.

What comes out: standard output and error of worker, reclaimer, command line and operator, metrics and probes, the process list,
and whatever the operator sends to the API server (status, events, children).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from devtools.pgserver import PgServer, free_port
from leasequeue.schema import create
from tests.operator import samples
from tests.operator.apiserver import ApiServer
from tests.support.leaks import ODD, PLAIN, leaks
from tests.support.processes import Process, reclaimer, wait_for, worker

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

QUEUES = "leasequeue.dev/v1alpha1/leasequeues"
# Runs command lines one after the other, as many as are given: (words, environment) each.
RUN_ALL = """
import json, os, sys
from leasequeue.cli.app import run
for words, variables in json.load(sys.stdin):
    for name in [n for n in os.environ if n.startswith("LEASEQUEUE_")]:
        del os.environ[name]
    os.environ.update(variables)
    print(words[0].partition(":")[0].partition("=")[0], "->", run(words), flush=True)
"""


def parts(pg: PgServer, **changes: str) -> dict[str, str]:
    plain = {"host": "127.0.0.1", "port": str(pg.port), "user": "kolibri_user", "password": ODD, "dbname": "postgres"}
    return {**plain, "user": "guest", **changes}


def wrong_parts(pg: PgServer) -> list[dict[str, str]]:
    """Parts of a Secret, each wrong in its way; several hold the password under another key."""
    found = [
        parts(pg), parts(pg, password=PLAIN), parts(pg, port="1"), parts(pg, port="99999"), parts(pg, host="nowhere.invalid"),
        parts(pg, host="fe80::1%eth0"), parts(pg, dbname="absent"), parts(pg, password=ODD + "\n"),
    ]  # fmt: skip
    for word in (ODD, PLAIN, "/" + PLAIN, PLAIN + ".example", PLAIN * 6, f"{PLAIN}..{PLAIN}"):
        found += [parts(pg, **{key: word}) for key in ("host", "port", "user", "dbname")]
        found += [parts(pg, user=word, password="guest"), parts(pg, host=word, password="127.0.0.1")]
    return found


def wrong_dsns(pg: PgServer) -> list[str]:
    """Connection strings, each wrong in its way."""
    here = f"127.0.0.1:{pg.port}"
    found = [
        f"postgresql://guest:{ODD}@{here}/postgres",
        f"postgresql://guest:{quote(ODD, safe='')}@{here}/postgres",
        f"postgresql://guest:{quote(ODD, safe='')}@nowhere.invalid/postgres",
        f"postgres://guest:{PLAIN}@127.0.0.1:1/postgres",
        f"postgresql://guest:{PLAIN}@{here}/postgres?sslmode=nope",
        f"postgresql://guest:{PLAIN}@{here}/postgres?sslmode=require",
        f"postgresql://guest:{PLAIN}/x@{here}/postgres",
        f"postgresql://guest:{PLAIN}?x@{here}/postgres",
        f"postgresql://127.0.0.1:{PLAIN}/postgres",
        f"postgresql://{PLAIN}@{here}/postgres",
        f"postgresql://guest@{here}/{PLAIN}",
        f"postgresql://{here}/postgres?user=guest&password={PLAIN}",
        f"jdbc:postgresql://{here}/postgres?user=guest&password={PLAIN}",
        f"guest:{PLAIN}@{here}/postgres",
        f"host=127.0.0.1 port={pg.port} password={PLAIN} nonsense",
        f"host=127.0.0.1 port={pg.port} pasword={PLAIN}",
        f"host=127.0.0.1 port={pg.port} password='{PLAIN}",
        PLAIN,
    ]
    options = ("sslmode", "sslrootcert", "sslcert", "connect_timeout", "keepalives_idle", "hostaddr", "options", "service",
               "passfile", "target_session_attrs", "channel_binding", "client_encoding", "require_auth", "gssencmode")  # fmt: skip
    base = {"host": "127.0.0.1", "port": str(pg.port), "user": "guest", "dbname": "postgres"}
    return found + [make_conninfo("", **base) + f" {name}={PLAIN}" for name in options]


class Collected:
    """What came out, by who said it."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def add(self, who: str, text: str) -> None:
        self.texts.append((who, text))

    def check(self) -> None:
        told = {who: places for who, text in self.texts if (places := leaks(text))}
        assert not told, json.dumps(told, indent=1)

    def size(self, who: str) -> int:
        return sum(len(text) for name, text in self.texts if name.startswith(who))


def mounted(folder: Path, values: dict[str, str] | str) -> str:
    """A mounted Secret with these keys, or a file with a DSN."""
    if isinstance(values, str):
        folder.write_text(values)
        return str(folder)
    folder.mkdir()
    for key, value in values.items():
        (folder / key).write_text(value)
    return str(folder)


@pytest.fixture
def guest(pg: PgServer, conn: psycopg.Connection) -> Iterator[str]:
    """A role with the password, and a queue."""
    conn.execute(sql.SQL("CREATE ROLE guest SUPERUSER LOGIN PASSWORD {}").format("another-" + ODD[7:9] + "-word"))
    create(conn, "q")
    yield "guest"
    conn.execute("DROP OWNED BY guest")
    conn.execute("DROP ROLE guest")


def run_cli(jobs: list[tuple[list[str], dict[str, str]]]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input=json.dumps(jobs), capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert done.stdout.count("->") == len(jobs)
    return done.stdout + done.stderr


def output(process: Process) -> str:
    return "\n".join([*(json.dumps(e, ensure_ascii=False) for e in process.events), *process.stray])


def processes_of(group: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == group:
                yield int(entry.name)


def listed(group: int) -> str:
    """Command lines and environments of a process group, as /proc shows them."""
    found = []
    for pid in processes_of(group):
        for name in ("cmdline", "environ", "comm"):
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/{name}").read_text(errors="replace"))
    assert found
    return "\n".join(found)


def fetch(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as ex:
        return ex.read().decode()


def test_command_line(guest: str, pg: PgServer, tmp_path: Path) -> None:
    out = Collected()
    table = ["--table", "q"]
    jobs: list[tuple[list[str], dict[str, str]]] = []
    for n, values in enumerate([*wrong_parts(pg), *wrong_dsns(pg)]):
        jobs.append((["stats", *table], {"LEASEQUEUE_DSN_FILE": mounted(tmp_path / str(n), values)}))
    for n, dsn in enumerate(wrong_dsns(pg)):
        command = (["doctor"], ["schema", "verify"], ["reclaim"], ["list", "--json"], ["claim", "--worker-id", "w"])[n % 5]
        jobs.append(([*command, *table], {"LEASEQUEUE_DSN": dsn}))
        if "password=" in dsn or "://" in dsn:  # what cannot be told from any other word is the user's own
            there = {"LEASEQUEUE_DSN": "host=127.0.0.1 port=1"}
            jobs += [
                (words, there)
                for words in ([dsn], ["stats", dsn], ["stats", f"--dns={dsn}"], ["stats", "--table", dsn, "--json"])
            ]
        if "@" in dsn or "=" in dsn:
            jobs.append((["stats", *table], {"LEASEQUEUE_DSN_FILE": dsn}))
    given = {"LEASEQUEUE_DSN": wrong_dsns(pg)[1], "LEASEQUEUE_TABLE": "q"}
    jobs += [(words, given) for words in (["--help"], ["stats", "--help"], ["--version"])]
    out.add("cli", run_cli(jobs))
    assert out.size("cli") > 10_000
    out.check()


def test_worker_and_reclaimer(guest: str, pg: PgServer, tmp_path: Path) -> None:
    out = Collected()
    chosen = [*wrong_parts(pg)[:14:2], *wrong_dsns(pg)[:12:2], *wrong_dsns(pg)[-6::2]]
    files = [mounted(tmp_path / str(n), values) for n, values in enumerate(chosen)]

    def sweep(file: str) -> str:
        with reclaimer("", "q", dsn_file=file, run_for_s=1, start_jitter_s=0) as process:  # it tries until its time is over
            assert process.wait() in (2, 3)
            return output(process)

    def work(file: str) -> str:
        with worker("", "q", "nothing", dsn_file=file) as process:
            process.wait_event("claim_loop_trouble")
            proc = listed(process.pid)
            process.kill()  # its drain would wait for the database
            return output(process) + proc

    with ThreadPoolExecutor(3) as pool:
        for text in pool.map(sweep, files):
            out.add("reclaimer", text)
        for text in pool.map(work, files[::3]):
            out.add("worker", text)
    for module in ("leasequeue_worker.main", "leasequeue_reclaimer.main", "leasequeue_operator.main"):
        for words in ([wrong_dsns(pg)[1]], ["--dsn-file", wrong_dsns(pg)[3], "--table", wrong_dsns(pg)[3]], ["--help"]):
            done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, timeout=60)
            out.add(module, done.stdout + done.stderr)
    assert out.size("worker") > 1000
    out.check()


def test_a_working_worker_whose_password_is_changed(guest: str, pg: PgServer, conn: psycopg.Connection, tmp_path: Path) -> None:
    """Handlers in a child process and in a thread; one that raises an error with the DSN in it; then the login is refused."""
    out, secret, port = Collected(), tmp_path / "secret", free_port()
    conn.execute(sql.SQL("ALTER ROLE guest PASSWORD {}").format(ODD))
    mounted(secret, parts(pg, dbname=conn.info.dbname))
    conn.execute("INSERT INTO q (idempotency_key) SELECT 'k' || i FROM generate_series(1, 5) AS i")
    told = f"no route to postgresql://guest:{quote(ODD, safe='')}@h/d and password={PLAIN}"
    for isolation in ("thread", "process"):
        settings = {"dsn_file": str(secret), "http_port": port, "isolation": isolation, "TOLD": told}
        with worker("", "q", "tells_the_environment", **settings) as process:
            process.wait_event("item_retried")
            out.add("/metrics", fetch(port, "/metrics") + fetch(port, "/readyz") + fetch(port, "/healthz"))
            out.add("process list", listed(process.pid).replace(told, ""))
            conn.execute(sql.SQL("ALTER ROLE guest PASSWORD {}").format("changed"))
            conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guest'")
            process.wait_event("claim_loop_trouble")
            conn.execute(sql.SQL("ALTER ROLE guest PASSWORD {}").format(ODD))
            process.wait_event("database_back")
            process.terminate()
            out.add("worker", output(process))
    rows = conn.execute("SELECT last_error FROM q WHERE last_error IS NOT NULL").fetchall()
    assert rows
    out.add("last_error", repr(rows))
    out.check()


async def test_operator(api: ApiServer, guest: str, pg: PgServer, tmp_path: Path) -> None:
    """A queue for each wrong Secret; everything it sends to the API server is looked at."""
    wrong = [*wrong_parts(pg), *({"uri": dsn} for dsn in wrong_dsns(pg))]
    for n, values in enumerate(wrong):
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        api.store("v1/secrets", "team", {"metadata": {"name": f"s{n}"}, "data": data})
        database: dict[str, Any] = {"secretRef": {"name": f"s{n}"}, "table": "q"}
        if n % 3 == 0:
            database |= {"manageSchema": "Create", "confirmTable": "public.q"}
        api.store(QUEUES, "team", samples.body(f"q{n}", uid=f"u{n}", database=database))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": str(api.url).rstrip("/")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }))  # fmt: skip
    port, out = free_port(), Collected()
    environment = {
        "KUBECONFIG": str(kubeconfig),
        "PYTHONPATH": os.pathsep.join(map(str, (Path.cwd(), Path.cwd() / "operator"))),
    }
    arguments = ["--http-port", str(port), "--log-level", "DEBUG"]

    def told() -> list[dict[str, Any]]:
        found = [api.stored(QUEUES, "team", f"q{n}") or {} for n in range(len(wrong))]
        return [body for body in found if _reachable(body) in ("True", "False")]

    with Process("leasequeue_operator.main", environment, arguments) as process:
        await asyncio.to_thread(wait_for, "every queue is judged", lambda: len(told()) == len(wrong), 90)
        # Its event comes after its status.
        await asyncio.to_thread(wait_for, "events of all", lambda: len(api.names("v1/events")) >= len(wrong), 30)
        out.add("/metrics", await asyncio.to_thread(fetch, port, "/metrics"))
        out.add("process list", listed(process.pid))
        process.terminate()
        out.add("log", output(process))
    for (resource, _, name), found in api.objects.items():
        if "secrets" not in str(resource):
            out.add(f"{resource} {name}", json.dumps(found.raw, default=str))
    judged = [_reachable(body) for body in told()]
    assert judged.count("False") == len(wrong)
    assert len(api.names("v1/events")) >= len(wrong)
    out.check()


def _reachable(body: dict[str, Any]) -> str | None:
    told = {c["type"]: c["status"] for c in (body.get("status") or {}).get("conditions", ())}
    return told.get("DatabaseReachable")
