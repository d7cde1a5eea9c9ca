"""No text that a user gives becomes SQL: neither a field of the LeaseQueue, nor an option of the command line, nor a row (B103).

Beside the queue stands a table `victim`; whatever is tried, it keeps its rows, no table but the queue appears, and nothing sleeps.
Fields and options are listed from their definitions, so that a new one is tried too.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import psycopg
import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from psycopg import sql

import leasequeue
from devtools.pgserver import PgServer
from leasequeue.cli import app
from leasequeue.config import LeaseConfig
from leasequeue.errors import LeaseQueueError
from leasequeue.fence import Completion
from leasequeue.schema import ColumnSpec, create
from leasequeue.table import Table
from leasequeue_operator.observe.database import Hub
from leasequeue_operator.observe.group import Wanted
from leasequeue_operator.observe.secret import Connection
from leasequeue_operator.plan import schema_job
from tests.operator import samples

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).resolve().parents[2]
EVIL = (
    'q"; DROP TABLE victim; --', "q'; DROP TABLE victim; --", "1) ; SELECT pg_sleep(60) --", "x); DROP TABLE victim CASCADE; --",
    "$$; DROP TABLE victim; $$", "q\n; DROP TABLE victim", '"public"."victim"', "public.victim", "%s", "%(id)s", "%", "{t}",
    "{0}", "{}", "\\'; DELETE FROM victim; --", "/*", "--", ";", "E'\\\\x41'", "a\u2028b", "' OR '1'='1", "$(DROP)", ":id", "$1",
    "x' host=evil", "pg_catalog.pg_class", "-x", "@-", "ä" * 20,
)  # fmt: skip

# What a LeaseQueue's free texts come to. Those under `to_sql` are tried below; the others never reach a database.
TO_SQL = {"database.schema", "database.table", "database.confirmTable", "worker.lanes[]"}
NOT_TO_SQL = {
    "database.secretRef.name", "database.secretRef.key", "database.schemaSecretRef.name", "database.schemaSecretRef.key",
    "database.caSecretRef.name", "database.caSecretRef.key", "worker.image", "worker.handler", "worker.exec.command[]",
    "worker.http.url", "worker.env[].name", "worker.env[].value", "scaling.schedules[].name", "scaling.schedules[].start",
    "scaling.schedules[].end", "scaling.schedules[].timeZone", "reclaimer.schedule",
}  # fmt: skip


def texts(field: dict[str, Any], path: str) -> Iterator[str]:
    """Dotted paths of the free texts below a field of the CRD."""
    if field.get("type") == "string" and "enum" not in field:
        yield path
    for name, inner in field.get("properties", {}).items():
        yield from texts(inner, f"{path}.{name}".lstrip("."))
    if "items" in field:
        yield from texts(field["items"], f"{path}[]")


def test_every_free_text_of_the_resource_is_sorted() -> None:
    crd = yaml.safe_load((ROOT / "deploy/crd/leasequeues.leasequeue.dev.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(texts(spec, "")) == TO_SQL | NOT_TO_SQL


class Guard:
    """The victim, and what else is in the database."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.conn.execute("CREATE TABLE victim (id int PRIMARY KEY, what text)")
        self.conn.execute("INSERT INTO victim VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        with leasequeue.connect(dsn) as conn:
            create(conn, "q", columns=[ColumnSpec("what", "text")])
        self.before = self.tables()

    def tables(self) -> set[tuple[str, str]]:
        """Schema and name of every table, view and function's schema that is not the server's."""
        found = self.conn.execute(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.relkind IN ('r', 'v', 'm', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
            " AND n.nspname NOT LIKE 'pg_temp%'"
        )
        return set(found.fetchall())

    def check(self, *made: tuple[str, str]) -> None:
        """Nothing but `made` is new, and the victim is whole. `made` is dropped again."""
        assert self.conn.execute("SELECT id, what FROM victim ORDER BY id").fetchall() == [(1, "a"), (2, "b"), (3, "c")]
        assert self.tables() - self.before <= set(made)
        assert self.before - self.tables() == set()
        columns = self.conn.execute("SELECT count(*) FROM information_schema.columns WHERE table_name = 'victim'").fetchone()
        assert columns == (2,)
        sleeping = self.conn.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND state = 'active' AND pid <> pg_backend_pid()"
        ).fetchone()
        assert sleeping == (0,)
        for schema, table in (set(made) & self.tables()) - self.before:
            self.conn.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, table)))

    def close(self) -> None:
        self.conn.close()


@pytest.fixture(scope="module")
def guard(postgres_18: PgServer) -> Iterator[Guard]:
    """One for all: nothing that is tried here leaves a trace."""
    made = Guard(postgres_18.create_database("injection"))
    yield made
    made.close()
    postgres_18.drop_database("injection")


def run(words: list[str], dsn: str, stdin: str = "") -> int:
    """A command line in this process."""
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        patch.setenv("LEASEQUEUE_DSN", dsn)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        return app.run(words)


# --- the resource --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("manage", ["Create", "Adopt"])
def test_the_schema_jobs_command(guard: Guard, evil: str, manage: str) -> None:
    """The very command line that the operator gives the Job."""
    table, schema = evil.encode()[:63].decode(errors="ignore"), "public"
    for database in (
        {"table": table, "schema": schema, "confirmTable": f"{schema}.{table}"},
        {"table": "made", "schema": evil[:63], "confirmTable": f"{evil[:63]}.made"},
        {"table": "made", "schema": schema, "confirmTable": evil},
    ):
        made = samples.queue(database={"manageSchema": manage, **database})
        command = schema_job.command(made)
        assert run(command[1:], guard.dsn) in (0, 1, 2, 3)
        guard.check(("public", table), ("public", "made"))


@pytest.mark.parametrize("evil", EVIL)
async def test_the_operators_questions(guard: Guard, evil: str) -> None:
    hub = Hub()
    try:
        name = evil.encode()[:63].decode(errors="ignore")
        for n, (schema, table) in enumerate((("public", name), (name, "q"), ("public", "q"))):
            wanted = Wanted(evil + str(n), evil, evil, schema, table, None)
            view = await hub.look(Connection(guard.dsn), wanted, 0)
            assert view.unready is not None or view.ok
            await hub.cordon(evil + str(n), {evil: evil}, (evil,))
            await hub.forget(evil + str(n))
    finally:
        await hub.close()
    guard.check()


# --- the command line ----------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[list[str], click.Command]]:
    """Every command with its words."""

    def walk(words: list[str], command: click.Command) -> Iterator[tuple[list[str], click.Command]]:
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                yield from walk([*words, name], inner)
        else:
            yield words, command

    yield from walk([], app.cli)


# A value of each option that a command needs, so that the evil one gets as far as the database.
PLAIN = {
    "--table": "q", "--worker-id": "w", "--batch-size": "2", "--id": "00000000-0000-0000-0000-000000000000",
    "--token": "00000000-0000-0000-0000-000000000000", "--reason": "r", "--who": "me", "--error": "e",
}  # fmt: skip
ELSEWHERE = {"--dsn", "--dsn-file", "--ssl-mode", "--ssl-root-cert", "--help"}
OPTIONS = [
    (words, parameter)
    for words, command in commands()
    for parameter in command.params
    if not (isinstance(parameter, click.Option) and (parameter.is_flag or parameter.opts[0] in ELSEWHERE))
]


def test_the_options_are_found() -> None:
    assert len(OPTIONS) > 40


@pytest.mark.parametrize(("words", "parameter"), OPTIONS, ids=lambda v: " ".join(v) if isinstance(v, list) else v.name)
def test_an_option_or_argument(guard: Guard, words: list[str], parameter: click.Parameter) -> None:
    command = {" ".join(w): c for w, c in commands()}[" ".join(words)]
    for evil in (*EVIL[:6], *EVIL[6::3]):
        line = [*words]
        for other in command.params:
            if isinstance(other, click.Option) and other is not parameter and (other.required or other.opts[0] == "--table"):
                line += [other.opts[0], PLAIN.get(other.opts[0], "x")]
        line += [f"{parameter.opts[0]}={evil}"] if isinstance(parameter, click.Option) else ["--", evil]
        if "watch" not in line:
            assert run(line, guard.dsn) in (0, 1, 2, 3), line
        guard.check(("public", evil), ("public", evil.encode()[:63].decode(errors="ignore")))


def test_column_names_and_types_of_a_new_table(guard: Guard) -> None:
    for evil, other in itertools.product(EVIL, ("text", "{}")):
        for column in (f"{evil}:{other}", f"a:text {evil}", f"a:{evil}", f"a:text DEFAULT ({evil})"):
            assert run(["schema", "create", "--table=made", f"--column={column}"], guard.dsn) in (0, 1, 2, 3)
            guard.check(("public", "made"))


def test_rows_that_are_enqueued(guard: Guard) -> None:
    for evil in EVIL:
        for row in ({evil: 1}, {"what": evil, "lane": evil, "idempotency_key": evil, "source_hash": evil}, {"trace_id": evil}):
            assert run(["enqueue", "-", "--table=q"], guard.dsn, json.dumps(row) + "\n") in (0, 1, 2, 3)
            guard.check()
    rows = guard.conn.execute("SELECT what, lane, idempotency_key, source_hash FROM q").fetchall()
    assert set(rows) == {(evil, evil, evil, evil) for evil in EVIL}, "each is kept as it was given"


# --- any text ------------------------------------------------------------------------------------------------------------

NASTY = st.text(st.one_of(st.sampled_from("'\"\\;-%{}$()/*\n\t @:"), st.characters(exclude_categories=("Cs",))), max_size=40)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(name=NASTY, text=NASTY)
@example(name='a"; DROP TABLE victim; --', text="'); DROP TABLE victim; --")
def test_a_life_with_any_names(guard: Guard, name: str, text: str) -> None:
    """Create, enqueue, claim, fence, complete, reclaim: with any table name, and any text in every place that takes one."""
    assume(("public", name) not in guard.before)
    with leasequeue.connect(guard.dsn) as conn:
        try:
            create(conn, name, columns=[ColumnSpec("what", "text")])
            table = Table.load(conn, name)
            leasequeue.enqueue(conn, table, [{"what": text, "lane": text, "idempotency_key": text, "source_hash": text}])
            claimed = leasequeue.claim(conn, table, worker_id=text or "w", n=1, config=LeaseConfig(), lanes=[text, name])
            for item in claimed.items:
                assert (item["what"], item["lane"], item.leased_by) == (text, text, text or "w")
                leasequeue.resolve(conn, table, Completion(item.lease, {text: name}))
            leasequeue.register(conn, table, text or "w", pod_uid=text, pod_name=name)
            leasequeue.own_table(conn, table, cr_uid=text, cr_namespace=name, cr_name=text)
            leasequeue.cordon(conn, table, [text, name])
            leasequeue.start_run(conn, table, runner=text, max_inflight=100)
        except (LeaseQueueError, psycopg.DataError):  # refused: too long, empty, a NUL
            pass
    guard.check(("public", name))
