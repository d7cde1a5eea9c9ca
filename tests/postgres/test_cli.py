"""The command line as its users run it: answers, exit codes, JSON, and what it never shows."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from devtools.pgserver import PgServer
from devtools.samples import review_queue
from leasequeue import Table, schema
from leasequeue.cli import app
from leasequeue.schema import ColumnSpec

Conn = psycopg.Connection[Any]
PASSWORD = """p@s:w/o%r#d ?&='"\\ x"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


Cli = Callable[..., Ran]


def environment(given: dict[str, str]) -> dict[str, str]:
    """The process's environment with no LEASEQUEUE_ variable but those given."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith("LEASEQUEUE_")}, **given}


def in_process(*words: str, stdin: str | bytes = "", **given: str) -> Ran:
    """Run the command line inside this process: the same code from its arguments to its exit code."""
    out, err = io.StringIO(), io.StringIO()
    source = io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin), encoding="utf-8")
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        for name in os.environ:
            if name.startswith("LEASEQUEUE_"):
                patch.delenv(name)
        for name, value in given.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", source)
        code = app.run(words)
    return Ran(code, out.getvalue(), err.getvalue())


def as_process(*words: str, stdin: str = "", **given: str) -> Ran:
    """Run the command line in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "leasequeue", *words],
        input=stdin,
        env=environment(given),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr + done.stdout
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def cli(dsn: str) -> Cli:
    """The command line on this test's database and the table `orders`."""

    def call(*words: str, stdin: str = "", **given: str) -> Ran:
        return in_process(*words, stdin=stdin, **{"LEASEQUEUE_DSN": dsn, "LEASEQUEUE_TABLE": "orders", **given})

    return call


@pytest.fixture
def orders(conn: Conn) -> Table:
    schema.create(conn, "orders", columns=[ColumnSpec("amount", "numeric(18,2)")], id_type="bigint")
    return Table.load(conn, "orders")


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def lease(item: dict[str, Any], worker_id: str = "w") -> list[str]:
    return ["--id", str(item["id"]), "--token", item["lease_token"], "--worker-id", worker_id]


@pytest.mark.both_versions
def test_the_whole_life_of_an_item(cli: Cli) -> None:
    assert cli("schema", "create", "--column", "amount:numeric(18,2) NOT NULL", "--id-type", "bigint").code == 0
    assert cli("schema", "verify", "--json").json["ok"] is True
    added = cli("enqueue", "-", "--json", stdin=lines({"amount": "10.10", "idempotency_key": "a"}, {"amount": 5}))
    assert (added.code, added.json["created"]) == (0, 2)

    first, second = cli("claim", "--worker-id", "w", "--batch-size", "5").json
    assert (first["amount"], first["state"], first["attempt"], first["leased_by"]) == ("10.10", "ASSIGNED", 1, "w")
    assert cli("renew", *lease(first)).json == {"outcome": "RENEWED"}
    done = cli("resolve", *lease(first), "--result", '{"sum": 1.10000000000000000001}')
    assert (done.code, done.json) == (0, {"outcome": "RESOLVED"})
    again = cli("resolve", *lease(first))
    assert (again.code, again.json) == (0, {"outcome": "ALREADY_RESOLVED"})
    zombie = cli("resolve", *lease(first, "another"))
    assert (zombie.code, zombie.json) == (1, {"outcome": "LOST"})
    shown = cli("show", "--key", "a", "--json").json
    assert shown["item"]["result"] == {"sum": "1.10000000000000000001"}

    assert cli("repair", *lease(second), "--reason", "looks [odd]").json == {"outcome": "REPAIR"}
    moved = cli("requeue", "--id", str(second["id"]), "--reason", "fixed by hand", "--actor", "ann", "--json")
    assert (moved.code, moved.json) == (0, {"requeued": [{"id": second["id"], "was": "REPAIR"}], "missed": []})
    audit = cli("show", "--id", str(second["id"]), "--json").json["audit"]
    assert [(entry["actor"], entry["action"], entry["reason"]) for entry in audit] == [
        ("ann", "requeue from REPAIR", "fixed by hand")
    ]
    stats = cli("stats", "--json").json
    assert stats["items"] == {"PENDING": 1, "ASSIGNED": 0, "RESOLVED": 1, "SCHEDULED": 0, "FAILED": 0, "REPAIR": 0}


@pytest.mark.parametrize(
    ("command", "outcome", "state"),
    [
        (["retry", "--after", "60", "--reason", "later"], "RETRIED", "SCHEDULED"),
        (["retry", "--after", "0", "--max-attempts", "1"], "FAILED", "FAILED"),
        (["fail", "--reason", "no"], "FAILED", "FAILED"),
        (["repair"], "REPAIR", "REPAIR"),
        (["release"], "RELEASED", "PENDING"),
        (["release", "--after", "5"], "RELEASED", "SCHEDULED"),
    ],
)
def test_ends_of_a_lease(cli: Cli, orders: Table, command: list[str], outcome: str, state: str) -> None:
    cli("enqueue", "-", stdin=lines({"amount": 1}))
    (item,) = cli("claim", "--worker-id", "w", "--batch-size", "1").json
    name, *options = command
    done = cli(name, *lease(item), *options)
    assert (done.code, done.json) == (0, {"outcome": outcome})
    assert cli("show", "--id", str(item["id"]), "--json").json["item"]["state"] == state
    late = cli(name, *lease(item), *options, "--json")
    assert (late.code, late.json) == (1, {"outcome": "LOST"})


# B32
def test_big_ids_and_amounts_pass_unrounded(cli: Cli, conn: Conn) -> None:
    conn.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, state text NOT NULL DEFAULT 'PENDING', leased_by text, amount numeric)"
    )
    assert cli("schema", "adopt").code == 0
    big, amount = "9007199254740993", "100000000.00000001"
    added = cli(
        "enqueue",
        "-",
        "--json",
        stdin=f'{{"id": {big}, "amount": {amount}}}\n{{"id": "{int(big) + 2}", "amount": "{amount}"}}\n',
    )
    assert [item["id"] for item in added.json["items"]] == [big, str(int(big) + 2)]
    items = cli("claim", "--worker-id", "w", "--batch-size", "2").json
    assert [(item["id"], item["amount"]) for item in items] == [(big, amount), (str(int(big) + 2), amount)]
    assert cli("resolve", *lease(items[0]), "--result", amount).json == {"outcome": "RESOLVED"}
    assert conn.execute("SELECT id, amount, result::text FROM orders WHERE state = 'RESOLVED'").fetchall() == [
        (int(big), Decimal(amount), amount)
    ]


def test_enqueue_refuses_by_line_and_stores_nothing(cli: Cli, orders: Table, conn: Conn) -> None:
    good = json.dumps({"amount": 1})
    for bad, told in (
        ('{"amont": 1}', "line 4='amont': is no column of public.orders"),
        ('{"amount": 1,', "line 4"),
        ('{"amount": NaN}', "line 4='NaN': is not a JSON number"),
        ('{"amount": "NaN"}', "line 4, column amount='NaN'"),
        ('{"amount": 1.001}', "line 4, column amount"),
        ("[1]", "line 4='list': must be an object"),
        ('{"state": "RESOLVED"}', "line 4='state'"),
        ('{"amount": 1, "amount": 2}', "line 4='amount': is a key that occurs twice"),
    ):
        ran = cli("enqueue", "-", stdin=f"{good}\n\n{good}\n{bad}\n{good}\n")
        assert (ran.code, ran.out) == (2, ""), bad
        assert told in ran.err, bad
        assert len(ran.err.splitlines()) == 1
        assert cli("enqueue", "-", "--json", stdin=f"{good}\n\n\n{bad}\n").error["kind"] == "BadInput"
    many = f"{good}\n" * 3_000 + '{"amont": 1}\n'
    assert "line 3001='amont'" in cli("enqueue", "-", stdin=many).err
    # Rows are read ahead of those that are judged, by this program and by the database; blank lines count as lines.
    rest = f"{good}\n" * 900
    for refused, told in (
        ('{"amont": 1}', "line 2003='amont'"),
        ('{"amount": 1e17}', "line 2003, column amount: '100000000000000000': "),
    ):
        assert told in cli("enqueue", "-", stdin=f"{good}\n\n{good}\n" + f"{good}\n" * 1999 + f"{refused}\n{rest}").err
    assert conn.execute("SELECT count(*) FROM orders").fetchone() == (0,)


def test_enqueue_from_a_file_in_chunks(cli: Cli, orders: Table, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(lines(*({"amount": n, "idempotency_key": f"k{n}"} for n in range(1_500))) + '{"amount": true}\n')
    assert cli("enqueue", str(file), "--chunk", "1000").code == 2
    file.write_text(lines(*({"amount": n, "idempotency_key": f"k{n}"} for n in range(1_500))))
    assert cli("enqueue", str(file), "--json").json == {"rows": 1_500, "created": 500, "duplicates": 1_000}
    refused = cli("enqueue", str(file), "--on-duplicate", "error", "--json")
    assert (refused.code, refused.error["kind"]) == (1, "DuplicateKey")
    file.write_bytes(b'{"amount": 1}\n\xff\xfe\n')
    assert "is not UTF-8" in cli("enqueue", str(file)).err
    assert cli("enqueue", str(tmp_path / "nope")).code == 2


def test_progress_goes_to_stderr_and_only_for_people(cli: Cli, orders: Table) -> None:
    rows = lines(*({"amount": n} for n in range(2_000)))
    quiet = cli("enqueue", "-", "--json", stdin=rows)
    assert (quiet.err, quiet.json["created"]) == ("", 2_000)


def test_lists(cli: Cli, orders: Table) -> None:
    cli("enqueue", "-", stdin=lines(*({"amount": n, "lane": f"lane [{n % 2}]"} for n in range(6))))
    (first, second, *_) = cli("claim", "--worker-id", "w", "--batch-size", "3").json
    cli("fail", *lease(first), "--reason", "[bold]no[/bold]")
    cli("resolve", *lease(second))
    states = [item["state"] for item in cli("list", "--json").json]
    assert states == ["ASSIGNED", "FAILED", "PENDING", "PENDING", "PENDING", "RESOLVED"]
    assert [item["id"] for item in cli("list", "--state", "FAILED", "--json").json] == [first["id"]]
    assert len(cli("list", "--limit", "2", "--json").json) == 2
    assert {item["lane"] for item in cli("list", "--lane", "lane [1]", "--json").json} == {"lane [1]"}
    assert len(cli("list", "--worker-id", "w", "--json").json) == 2
    people = cli("list").out
    assert "[bold]no[/bold]" in people
    assert "lane [0]" in people
    assert cli("list", "--state", "NOPE").code == 2


def test_show_of_what_is_not_there(cli: Cli, orders: Table) -> None:
    missing = cli("show", "--id", "77", "--json")
    assert (missing.code, missing.error["message"]) == (1, "no item with id 77 in public.orders")
    assert cli("show", "--key", "nope").code == 1
    assert cli("show").code == 2
    for wrong in ("abc", "9" * 20, "1.0", "", "--1"):
        assert cli("show", f"--id={wrong}").code == 2, wrong


def test_requeue_leaves_other_items_alone(cli: Cli, orders: Table) -> None:
    cli("enqueue", "-", stdin=lines(*({"amount": n} for n in range(4))))
    failed, repaired, held, _ = cli("claim", "--worker-id", "w", "--batch-size", "4").json
    cli("fail", *lease(failed))
    cli("repair", *lease(repaired))
    refused = cli("requeue", "--id", str(held["id"]), "--reason", "x", "--json")
    assert (refused.code, refused.json) == (1, {"requeued": [], "missed": [held["id"]]})
    assert cli("requeue", "--reason", "x").code == 2
    assert cli("requeue", "--all", "--reason", " ").code == 2
    only = cli("requeue", "--all", "--state", "FAILED", "--reason", "x", "--json").json
    assert [one["id"] for one in only["requeued"]] == [failed["id"]]
    rest = cli("requeue", "--all", "--reason", "x", "--json").json
    assert [one["id"] for one in rest["requeued"]] == [repaired["id"]]
    item = cli("show", "--id", str(failed["id"]), "--json").json["item"]
    assert (item["state"], item["attempt"], item["crash_count"], item["lease_token"]) == ("PENDING", 0, 0, None)
    assert cli("resolve", *lease(held)).json == {"outcome": "RESOLVED"}, "a held item was never touched"


def test_reclaim(cli: Cli, orders: Table, conn: Conn) -> None:
    cli("enqueue", "-", stdin=lines(*({"amount": n} for n in range(4))))
    items = cli("claim", "--worker-id", "w", "--batch-size", "4").json
    conn.execute("UPDATE orders SET lease_expires_at = clock_timestamp() - interval '1 hour' WHERE id <> %s", [items[3]["id"]])
    conn.execute("UPDATE orders SET crash_count = 2 WHERE id = %s", [items[2]["id"]])
    # Nothing is taken within one lease duration and 15 s of the server's start: workers get to renew first.
    conn.execute("SELECT pg_sleep_until(pg_postmaster_start_time() + interval '16.5 seconds')")
    swept = cli("reclaim", "--lock-timeout-ms", "1000", "--reclaim-batch", "2", "--json")
    assert (swept.code, swept.json["reclaimed"], swept.json["repaired"]) == (0, 2, 1)
    states = {item["id"]: item["state"] for item in swept.json["items"]}
    assert states == {items[0]["id"]: "PENDING", items[1]["id"]: "PENDING", items[2]["id"]: "REPAIR"}
    assert cli("reclaim", "--lock-timeout-ms", "1000").out == "0 items back to PENDING, 0 to REPAIR\n"
    assert cli("resolve", *lease(items[0])).json == {"outcome": "LOST"}
    assert cli("resolve", *lease(items[3])).json == {"outcome": "RESOLVED"}


def test_settings_are_checked_wherever_they_come_from(cli: Cli, orders: Table) -> None:
    told = "must be a whole number of items from 1 to 200"
    option = cli("claim", "--worker-id", "w", "--batch-size", "201")
    assert (option.code, option.err) == (2, f"leasequeue: batch_size=201: {told}\n")
    environment = cli("claim", "--worker-id", "w", LEASEQUEUE_BATCH_SIZE="1e2")
    assert (environment.code, environment.err) == (2, f"leasequeue: batch_size='1e2': {told}\n")
    assert cli("claim", "--worker-id", "w", LEASEQUEUE_BATCH_SIZE="7").json == []


def test_schema_commands_tell_what_they_found(cli: Cli, conn: Conn) -> None:
    review_queue(conn, 3)
    table = ["--table", "review_queue_item"]
    before = cli("schema", "verify", *table)
    assert before.code == 1
    assert "To mend what can be mended: leasequeue schema adopt --schema public --table review_queue_item" in before.out
    assert cli("schema", "verify", *table, "--json").json["ok"] is False
    assert cli("schema", "adopt", *table, "--confirm", "public.other").code == 2
    adopted = cli("schema", "adopt", *table, "--json")
    assert (adopted.code, adopted.json["ok"]) == (0, True)
    conn.execute("CREATE VIEW seen AS SELECT * FROM review_queue_item")
    view = cli("schema", "adopt", "--table", "seen", "--json")
    assert (view.code, view.error["kind"]) == (1, "CannotAdopt")
    conn.execute("CREATE TABLE ledger (id int PRIMARY KEY)")
    assert cli("schema", "adopt", "--table", "ledger").code == 2
    assert cli("schema", "create", "--column", "x:nosuchtype").code == 2
    assert cli("schema", "verify", "--table", "nope").code == 3


def test_one_line_and_a_code_for_each_kind_of_error(cli: Cli, orders: Table) -> None:
    for words, code in (
        (["frobnicate"], 2),
        (["claim"], 2),
        (["claim", "--worker-id", ""], 2),
        (["resolve", "--id", "1", "--token", "no-uuid", "--worker-id", "w"], 2),
        (["resolve", "--id", "1", "--token", "00000000-0000-0000-0000-000000000000", "--worker-id", "w", "--result", "{"], 2),
        (["stats", "--table", "nope"], 3),
        (["stats", "--schema", "nope"], 3),
        (["stats", "--table", "q" * 64], 2),
        (["retry", "--id", "1", "--token", "00000000-0000-0000-0000-000000000000", "--worker-id", "w", "--after", "-1"], 2),
    ):
        plain, as_json = cli(*words), cli(*words, "--json")
        assert (plain.code, as_json.code) == (code, code), words
        assert len(plain.err.splitlines()) == 1, words
        assert as_json.error["exit_code"] == code
        assert plain.out == as_json.out == ""


def test_a_reader_that_leaves_is_no_error(cli: Cli, orders: Table, dsn: str) -> None:
    cli("enqueue", "-", stdin=lines(*({"amount": n} for n in range(900))))
    command = f"{sys.executable} -m leasequeue list --json --limit 900 --table orders | head -c 10"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env={**os.environ, "LEASEQUEUE_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# B11: the password is never part of anything but the connection
@pytest.fixture
def guest_dsn(conn: Conn, pg: PgServer, db: str, orders: Table) -> Any:
    conn.execute(psycopg.sql.SQL("CREATE ROLE guest LOGIN PASSWORD {}").format(PASSWORD))
    conn.execute(
        "GRANT SELECT ON orders TO guest; GRANT USAGE ON SCHEMA leasequeue TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA leasequeue TO guest",
        prepare=False,
    )
    yield pg.dsn(db, "guest", PASSWORD)
    conn.execute("DROP OWNED BY guest")
    conn.execute("DROP ROLE guest")


def test_any_password_connects_from_option_variable_file_and_secret(guest_dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "dsn"
    file.write_text(guest_dsn + "\n")
    secret = tmp_path / "secret"
    secret.mkdir()
    for key, value in psycopg.conninfo.conninfo_to_dict(guest_dsn).items():
        (secret / key).write_text(str(value))
    table = ["--table", "orders", "--json"]
    assert in_process("stats", *table, "--dsn", guest_dsn).json["due"] == 0
    assert in_process("stats", *table, LEASEQUEUE_DSN=guest_dsn).json["due"] == 0
    assert in_process("stats", *table, "--dsn-file", str(file)).json["due"] == 0
    assert in_process("stats", *table, LEASEQUEUE_DSN_FILE=str(secret)).json["due"] == 0


def test_no_error_shows_a_password(guest_dsn: str, pg: PgServer, tmp_path: Path) -> None:
    words = ("s3cret", "s3c@ret/x", "s3cret x' y")
    for secret in words:
        dsns = [
            f"postgresql://guest:{secret}@127.0.0.1:{pg.port}/db",
            psycopg.conninfo.make_conninfo(host="127.0.0.1", port=pg.port, user="guest", password=secret, dbname="db"),
            psycopg.conninfo.make_conninfo(host="127.0.0.1", port=1, user="guest", password=secret),
            f"postgresql://guest:{secret}@nowhere.invalid/db",
            f"postgres://guest:{secret}@127.0.0.1:1/db?sslmode=nope",
            f"password={secret} nonsense",
        ]
        for dsn in dsns:
            for ran in (
                in_process("stats", "--table", "q", "--dsn", dsn),
                in_process("stats", "--table", "q", "--json", LEASEQUEUE_DSN=dsn),
                in_process("stats", "--table", "q", dsn),
                in_process("stats", "--table", "q", f"--dns={dsn}"),
                in_process(dsn),
            ):
                assert ran.code in (2, 3)
                assert "s3c" not in ran.out + ran.err, (dsn, ran)
                assert "ret/x" not in ran.out + ran.err, (dsn, ran)


# B13: a value is a value
def test_a_database_name_cannot_smuggle_parameters(guest_dsn: str, tmp_path: Path, pg: PgServer) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    parts = {
        "host": "127.0.0.1",
        "port": str(pg.port),
        "user": "x' host=evil.invalid",
        "password": "p",
        "dbname": "d\tsslmode=disable",
    }
    for key, value in parts.items():
        (secret / key).write_text(value)
    ran = in_process("stats", "--table", "q", "--dsn-file", str(secret))
    assert ran.code == 3
    assert 'authentication failed for user "***"' in ran.err, "this server was asked, for a user that it does not know"
    assert pg.log.read_text().count("x' host=evil.invalid"), "for exactly that one"


def test_a_process_of_its_own_says_the_same(cli: Cli, orders: Table, dsn: str) -> None:
    words = ["enqueue", "-", "--table", "orders", "--json"]
    added = as_process(*words, stdin=lines({"amount": "1.10"}), LEASEQUEUE_DSN=dsn)
    assert (added.code, added.json["created"], added.err) == (0, 1, "")
    refused = as_process(*words, stdin=lines({"amont": 1}), LEASEQUEUE_DSN=dsn)
    assert (refused.code, refused.out, refused.error["kind"]) == (2, "", "BadInput")
    down = as_process("stats", "--table", "orders", LEASEQUEUE_DSN="host=127.0.0.1 port=1 password=s3cret")
    assert (down.code, len(down.err.splitlines()), "s3cret" in down.err) == (3, 1, False)


def test_which_database_is_named_exactly_once(guest_dsn: str, tmp_path: Path) -> None:
    assert "no database given" in in_process("stats", "--table", "q").err
    assert in_process("stats", "--table", "q", "--dsn", "x", "--dsn-file", "y").code == 2
    assert in_process("stats", "--table", "q", LEASEQUEUE_DSN="a", LEASEQUEUE_DSN_FILE="b").code == 2
    missing = in_process("stats", "--table", "q", "--dsn-file", str(tmp_path / "nope"))
    assert (missing.code, "cannot be read" in missing.err) == (2, True)


def test_help_explains_every_setting() -> None:
    text = " ".join(as_process("reclaim", "--help").out.split())
    assert "[seconds; default 45, 10 to 600; env LEASEQUEUE_RECLAIM_AFTER_S]" in text
    assert "Prefer the file: --dsn and its password show in the process list." in " ".join(in_process("--help").out.split())
    assert in_process("--version").out.startswith("leasequeue, version ")
