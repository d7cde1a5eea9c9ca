"""What a condition says about a table that cannot be used: the field to correct comes before the command that alters."""

from __future__ import annotations

import psycopg

from leasequeue.errors import TableMissing
from leasequeue.schema.report import Finding, Report, adopt_command
from leasequeue_operator.observe.failures import connecting, not_adopted, querying


def report(*, confirm: bool, texts: tuple[str, ...] = ("column state text is missing",)) -> Report:
    command = adopt_command("public", "ledger", strict_lanes=False, confirm=confirm)
    return Report("public.ledger", None, tuple(Finding("column", text, None) for text in texts), (), command)


def test_a_table_that_looks_like_no_queue_is_first_of_all_a_wrong_name() -> None:
    problem = not_adopted(report(confirm=True))

    assert problem.reason == "NotAdopted"
    assert "does not look like a lease queue" in problem.message
    assert problem.message.index("correct spec.database.table") < problem.message.index("leasequeue schema adopt")


def test_a_table_that_looks_like_a_queue_gets_the_command_alone() -> None:
    message = not_adopted(report(confirm=False)).message

    assert message.endswith("Run: leasequeue schema adopt --schema public --table ledger")
    assert "spec.database.table" not in message


def test_a_long_list_ends_between_two_findings_and_says_how_many_are_left() -> None:
    texts = tuple(f"column number_{n:02} text is missing" for n in range(20))

    message = not_adopted(report(confirm=False, texts=texts)).message

    told = [text for text in texts if text in message]
    assert 5 < len(told) < 20
    assert f"; and {20 - len(told)} more. Run:" in message


def test_a_table_that_is_not_there_names_the_fields() -> None:
    problem = querying(TableMissing('"public"."orders"', "does not exist in that schema"), "public.orders")

    assert problem.reason == "TableMissing"
    assert "spec.database.schema and table" in problem.message
    assert "manageSchema: Create" in problem.message


def test_a_schema_that_may_not_be_used_asks_for_the_right_and_for_nothing_else() -> None:
    problem = querying(
        TableMissing('"s"."t"', "permission denied for schema 's'; run: GRANT USAGE ON SCHEMA s TO the role"), "s.t"
    )

    assert problem.reason == "PermissionDenied"
    assert "Create" not in problem.message


def test_a_port_out_of_range_in_a_uri_is_the_secrets_fault() -> None:
    problem = connecting(psycopg.OperationalError('connection is bad: invalid port number: "59999999"'))

    assert problem.reason == "SecretInvalid"
    assert "correct the port in the Secret" in problem.message
