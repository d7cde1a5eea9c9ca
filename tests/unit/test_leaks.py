"""The search for the password itself: a search that finds nothing would prove nothing."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest

from tests.support.leaks import ODD, PLAIN, leaks


@pytest.mark.parametrize("password", [ODD, PLAIN])
def test_every_form_is_found(password: str) -> None:
    encoded = [base64.b64encode(f"{'x' * n}{password}yz".encode()).decode() for n in range(3)]
    for form in (
        password,
        quote(password),
        quote_plus(password),
        json.dumps(password),
        repr(password),
        password.upper(),
        *encoded,
    ):
        assert leaks(f"before {form} after"), form
    for half in ("port Kolibri", "host=Marabu/Pelikan", "u@Flamingo?"):
        assert leaks(half)


def test_an_innocent_text_is_not() -> None:
    assert leaks('connection to server at "127.0.0.1", port 1 failed: password authentication failed for user "***"') == []
