"""The connection in a Secret: what is read, what is refused, and that no password is ever told."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from leasequeue_operator.observe.secret import Connection, complete_host, read_connection
from leasequeue_operator.plan.problem import Problem
from leasequeue_operator.plan.spec import SecretRef

PASSWORD = "p@s:w/o%r#d ?&='\\\" x"
PARTS = {"host": "pg", "port": "5432", "user": "app", "password": PASSWORD, "dbname": "orders"}


def secret(**data: str) -> dict[str, Any]:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"name": "db", "resourceVersion": "7"}, "data": encoded}


def read(data: dict[str, str], key: str | None = None) -> Connection | Problem:
    return read_connection(secret(**data), SecretRef(name="db", key=key), "team")


def parameters(found: Connection | Problem) -> dict[str, Any]:
    assert isinstance(found, Connection), found
    return dict(conninfo_to_dict(found.dsn))


def test_parts_are_taken_literally_and_the_service_is_completed() -> None:
    found = read(PARTS)
    assert parameters(found) == {**PARTS, "host": "pg.team.svc"}
    assert isinstance(found, Connection)
    assert found.version == "7"


def test_values_cannot_smuggle_parameters() -> None:
    found = parameters(read({**PARTS, "dbname": "d\tsslmode=disable", "user": "x' host=evil"}))
    assert (found["dbname"], found["user"], found["host"]) == ("d\tsslmode=disable", "x' host=evil", "pg.team.svc")
    assert "sslmode" not in found


def test_a_uri_with_a_trailing_newline() -> None:
    found = parameters(read({"uri": "postgresql://app:pw@pg.example:6432/orders?sslmode=require\n"}))
    assert found == {
        "user": "app", "password": "pw", "host": "pg.example", "port": "6432", "dbname": "orders", "sslmode": "require",
    }  # fmt: skip


def test_a_named_key_wins_over_parts() -> None:
    assert parameters(read({**PARTS, "dsn": "host=other.example user=u dbname=d"}, key="dsn"))["host"] == "other.example"


def test_crunchy_and_cloudnativepg_keys() -> None:
    found = parameters(read({**PARTS, "username": "app", "pgpass": "x", "jdbc-uri": "y"}))
    assert found["user"] == "app"


@pytest.mark.parametrize(
    ("data", "key", "reason", "named"),
    [
        ({}, None, "SecretKeyNotFound", "uri"),
        ({"uri": ""}, None, "SecretKeyEmpty", "uri"),
        ({"uri": "\n"}, None, "SecretKeyEmpty", "uri"),
        (PARTS, "passwrod", "SecretKeyNotFound", "passwrod"),
        ({**PARTS, "password": ""}, None, "SecretKeyEmpty", "password"),
        ({**PARTS, "password": "secret-word\n"}, None, "SecretInvalid", "password"),
        ({**PARTS, "port": "x"}, None, "SecretInvalid", "port"),
        ({**PARTS, "host": "fe80::1%eth0"}, None, "SecretInvalid", "host"),
        ({k: v for k, v in PARTS.items() if k != "user"}, None, "SecretKeyNotFound", "user"),
        ({k: v for k, v in PARTS.items() if k != "dbname"}, None, "SecretKeyNotFound", "dbname"),
        ({"uri": "postgresql://a:secret-word@b:c@d/x"}, None, "SecretInvalid", "uri"),
        ({"uri": "postgresql:///x"}, None, "SecretInvalid", "host"),
        ({"uri": "host=h passfile=/var/run/secrets/token"}, None, "SecretInvalid", "passfile"),
        ({"uri": "host=h sslkey=/etc/shadow"}, None, "SecretInvalid", "sslkey"),
        ({"uri": "service=x host=h"}, None, "SecretInvalid", "service"),
        ({"uri": "host=h sslrootcert=/etc/x"}, None, "SecretInvalid", "sslrootcert"),
    ],
)
def test_faults_name_the_key_and_no_password(data: dict[str, str], key: str | None, reason: str, named: str) -> None:
    found = read(data, key)
    assert isinstance(found, Problem), found
    assert found.reason == reason
    assert named in found.message
    assert "db" in found.message
    assert "secret-word" not in found.message
    assert PASSWORD not in found.message


def test_a_missing_secret_is_named() -> None:
    found = read_connection(None, SecretRef(name="db"), "team")
    assert isinstance(found, Problem)
    assert (found.reason, "db" in found.message) == ("SecretNotFound", True)


def test_data_that_is_no_text() -> None:
    broken = {"metadata": {"name": "db"}, "data": {"uri": base64.b64encode(b"\xff\xfe").decode()}}
    found = read_connection(broken, SecretRef(name="db"), "team")
    assert isinstance(found, Problem)
    assert found.reason == "SecretInvalid"


def test_one_newline_is_dropped_from_other_keys() -> None:
    assert parameters(read({**PARTS, "host": "pg\n", "port": "5432\n", "dbname": "orders\n"})) == {
        **PARTS, "host": "pg.team.svc",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("pg", "pg.team.svc"), ("pg.example", "pg.example"), ("10.0.0.1", "10.0.0.1"), ("2001:db8::10", "2001:db8::10"),
        ("localhost", "localhost"), ("/run/postgresql", "/run/postgresql"), ("", ""),
    ],
)  # fmt: skip
def test_hosts(host: str, expected: str) -> None:
    assert complete_host(host, "team") == expected


def test_bracketed_addresses_and_lists_of_hosts() -> None:
    assert parameters(read({**PARTS, "host": "[2001:db8::10]"}))["host"] == "2001:db8::10"
    assert parameters(read({"uri": "host=a,b.example dbname=d user=u"}))["host"] == "a.team.svc,b.example"


@pytest.mark.parametrize(
    ("uri", "verified"),
    [
        ("host=pg,b.example dbname=d user=u sslmode=verify-full sslrootcert=system", "pg,b.example"),
        ("host=pg dbname=d user=u sslrootcert=system", "pg"),
        ("host=pg dbname=d user=u sslmode=require", ""),
        ("host=pg.team.svc dbname=d user=u sslmode=verify-full sslrootcert=system", ""),
        ("host=pg hostaddr=10.0.0.1 dbname=d user=u sslmode=verify-full sslrootcert=system", ""),
    ],
)
def test_a_certificate_is_checked_for_the_name_that_the_workers_check(uri: str, verified: str) -> None:
    found = read({"uri": uri})
    assert isinstance(found, Connection), found
    assert found.verified == verified


def test_queues_that_check_different_names_share_no_connection() -> None:
    short, long = (
        read({"uri": f"host={h} dbname=d user=u sslmode=verify-full sslrootcert=system"}) for h in ("pg", "pg.team.svc")
    )
    assert isinstance(short, Connection)
    assert isinstance(long, Connection)
    assert parameters(short) == parameters(long)
    assert short.group != long.group


def test_one_database_by_two_spellings_is_one_group() -> None:
    one, other = read({"uri": "postgresql://u:p@h.example/d"}), read({"uri": "host=h.example dbname=d user=u password=p"})
    assert isinstance(one, Connection)
    assert isinstance(other, Connection)
    assert one.group == other.group


def test_a_connection_does_not_show_its_password() -> None:
    assert PASSWORD not in repr(read(PARTS))


def test_a_password_under_another_key_is_not_told() -> None:
    found = read({**PARTS, "port": "Hunter22"})
    assert isinstance(found, Problem)
    assert "key port must be a number" in found.message
    assert "Hunter22" not in found.message
