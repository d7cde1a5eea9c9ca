"""Loading handlers, and what exit codes and HTTP statuses mean."""

from __future__ import annotations

import http.client
from datetime import UTC, datetime
from decimal import Decimal
from email.parser import Parser
from pathlib import Path

import pytest

from leasequeue import BadInput, Item, Repair, Resolve, Retry
from leasequeue_worker import exec_handler, http_handler
from leasequeue_worker.handler import load_handler

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def headers(text: str = "") -> http.client.HTTPMessage:
    return Parser(_class=http.client.HTTPMessage).parsestr(text)


def test_sync_and_async_handlers_are_told_apart() -> None:
    assert not load_handler("tests.support.handlers:act").is_async
    assert load_handler("tests.support.handlers:act_async").is_async


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nocolon", "must be package.module:function"),
        (":f", "must be package.module:function"),
        ("no_such_module_anywhere:f", "no module 'no_such_module_anywhere'"),
        ("tests.support.handlers:nope", "has no 'nope'; it has: act"),
        ("tests.support.handlers:_ACTIONS", "is a dict, not a function"),
        ("os:getcwd", "must be callable as handler(item, ctx)"),
    ],
)
def test_a_handler_that_cannot_be_loaded_says_what_is_missing(name: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_handler(name)
    assert says in str(caught.value)


def test_a_module_that_lacks_a_dependency_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_here\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadInput, match="needs a module that is not installed: not_installed_here"):
        load_handler("needs_more:f")


@pytest.mark.parametrize(
    ("code", "output", "verdict"),
    [
        (0, b"", Resolve),
        (0, b' {"a": 0.10}\n', Resolve),
        (0, b"not json", Repair),
        (0, b"\xff", Repair),
        (65, b"", Repair),
        (75, b"", Retry),
        (1, b'{"a": 1}', Retry),
        (-9, b"", Retry),
    ],
)
def test_exit_codes(code: int, output: bytes, verdict: type) -> None:
    assert type(exec_handler.verdict_of(code, output, "why")) is verdict


def test_a_commands_result_keeps_its_digits_and_its_error_its_words() -> None:
    done = exec_handler.verdict_of(0, b'{"amount": 100000000.00000001}', "")
    assert isinstance(done, Resolve)
    assert done.result == {"amount": Decimal("100000000.00000001")}
    failed = exec_handler.verdict_of(-9, b"", "out of memory\n")
    assert isinstance(failed, Retry)
    assert failed.error == "signal SIGKILL: out of memory"


def test_a_commands_environment_has_the_lease() -> None:
    names = {"id": 0, "lease_token": 1, "leased_by": 2, "attempt": 3, "idempotency_key": 4, "trace_id": 5}
    environment = exec_handler.variables(Item(names, (7, "tok", "w", 2, "key-1", None)), {"PATH": "/bin"})
    assert environment == {
        "PATH": "/bin", "LEASEQUEUE_ITEM_ID": "7", "LEASEQUEUE_TOKEN": "tok", "LEASEQUEUE_ATTEMPT": "2",
        "LEASEQUEUE_IDEMPOTENCY_KEY": "key-1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, b'{"a": 1}', Resolve),
        (204, b"", Resolve),
        (200, b"<html>", Repair),
        (422, b"", Repair),
        (409, b"", Retry),
        (429, b"", Retry),
        (503, b"", Retry),
        (302, b"", Retry),
        (404, b"", Retry),
        (500, b"", Retry),
    ],
)
def test_statuses(status: int, body: bytes, verdict: type) -> None:
    assert type(http_handler.verdict_of(status, "text", headers(), body, NOW)) is verdict


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("120", 120.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("99999999", 86_400.0),
        ("soon", None),
        ("-5", None),
        ("٣", None),
        (None, None),
    ],
)
def test_retry_after(value: str | None, expected: float | None) -> None:
    assert http_handler.retry_after_s(value, NOW) == expected


def test_retry_after_counts_only_where_the_service_may_ask_for_it() -> None:
    waits = http_handler.verdict_of(503, "", headers("Retry-After: 7\n\n"), b"", NOW)
    fails = http_handler.verdict_of(500, "", headers("Retry-After: 7\n\n"), b"", NOW)
    assert isinstance(waits, Retry)
    assert isinstance(fails, Retry)
    assert (waits.after_s, fails.after_s) == (7.0, None)


def test_an_item_without_a_key_is_idempotent_by_its_id() -> None:
    names = {"id": 0, "lease_token": 1, "leased_by": 2, "attempt": 3, "trace_id": 4, "idempotency_key": 5}
    assert http_handler.headers_of(Item(names, (7, "t", "w", 2, "tr", None)))["Idempotency-Key"] == "7"
    assert http_handler.headers_of(Item(names, (7, "t", "w", 2, "tr", "key-9")))["Idempotency-Key"] == "key-9"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a key: 100%", "a key: 100%"),
        ("zażółć", "utf-8''za%C5%BC%C3%B3%C5%82%C4%87"),
        ("a\r\nX-Evil: 1", "utf-8''a%0D%0AX-Evil%3A%201"),
        (" a", "utf-8''%20a"),
        ("utf-8''a", "utf-8''utf-8%27%27a"),
    ],
)
def test_any_key_fits_its_header_field(key: str, value: str) -> None:
    names = {name: i for i, name in enumerate(("id", "lease_token", "leased_by", "attempt", "trace_id", "idempotency_key"))}
    fields = http_handler.headers_of(Item(names, (key, "t", "w", 2, "tr", key)))
    assert (fields["Idempotency-Key"], fields["LeaseQueue-Item-Id"]) == (value, value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://h:99999/", "is no URL"),
        ("http://[::1/", "is no URL"),
        ("http:///x", "has no host"),
        ("ftp://u:secret@h/", "must begin with http"),
        ("https://u:secret@h/", "user name"),
        ("https://u:secret@h:x/", "is no URL"),
    ],
)
def test_a_url_that_cannot_be_asked_is_refused_without_its_password(url: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as caught:
        http_handler.HttpRunner(url)
    assert "secret" not in str(caught.value)
