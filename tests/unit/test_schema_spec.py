"""Names, index forms and state lists: the pure parts of create, adopt and verify."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasequeue import BadInput
from leasequeue.schema import ColumnSpec
from leasequeue.schema.report import adopt_command
from leasequeue.schema.spec import normalised_index, object_name, states_of_check


def test_short_names_are_kept_as_they_are() -> None:
    assert object_name("review_queue_item", "claim") == "review_queue_item_lq_claim"


@given(st.text(min_size=1, max_size=63).filter(lambda name: len(name.encode("utf-8", "ignore")) <= 63))
def test_names_fit_and_keep_their_suffix(table: str) -> None:
    name = object_name(table.encode("utf-8", "ignore").decode() or "q", "lane_assigned")
    assert len(name.encode()) <= 63
    assert name.endswith("_lq_lane_assigned")


def test_cut_names_stay_apart() -> None:
    assert object_name("q" * 62 + "a", "claim") != object_name("q" * 62 + "b", "claim")


@pytest.mark.parametrize(
    ("expression", "states"),
    [
        ("(state = ANY (ARRAY['PENDING'::text, 'ASSIGNED'::text]))", {"PENDING", "ASSIGNED"}),
        ("((state)::text = ANY ((ARRAY['A'::character varying, 'B'::character varying])::text[]))", {"A", "B"}),
        ("((state = 'A'::text) OR (state = 'B'::text))", {"A", "B"}),
        ("(state = 'it''s (odd), ::text'::text)", {"it's (odd), "}),
        ("(length(state) < 10)", None),
        ("(state <> 'A'::text)", None),
        ("(upper(state) = ANY (ARRAY['A'::text]))", None),
        ("((state = 'A'::text) AND (state = 'B'::text))", None),
        ("(state ~ '^[A-Z]+$'::text)", None),
    ],
)
def test_which_checks_can_be_read(expression: str, states: set[str] | None) -> None:
    assert states_of_check(expression) == states


def test_an_index_reads_the_same_as_written_and_as_stored() -> None:
    written = "CREATE INDEX {concurrently} {name} ON {table} USING btree ((-priority), created_at, id) WHERE state = 'PENDING'"
    stored = "CREATE INDEX q_lq_claim ON public.q USING btree (((- priority)), created_at, id) WHERE (state = 'PENDING'::text)"
    assert normalised_index(written) == normalised_index(stored)
    assert normalised_index(written) != normalised_index(stored.replace("created_at, id", "id"))
    assert normalised_index(stored) != normalised_index(stored.replace("CREATE INDEX", "CREATE UNIQUE INDEX"))


def test_columns_of_the_command_line() -> None:
    assert ColumnSpec.parse("amount:numeric(18,2)") == ColumnSpec("amount", "numeric(18,2)")
    assert ColumnSpec.parse("site:text not null") == ColumnSpec("site", "text", not_null=True)
    assert ColumnSpec.parse("at:timestamp with time zone").type == "timestamp with time zone"


@pytest.mark.parametrize("text", ["amount", ":text", "amount:", "amount: NOT NULL"])
def test_columns_that_are_none(text: str) -> None:
    with pytest.raises(BadInput, match="NAME:TYPE"):
        ColumnSpec.parse(text)


def test_the_command_is_quoted_for_a_shell() -> None:
    command = adopt_command("Ops", "my queue; rm", strict_lanes=True, confirm=True)
    assert command == "leasequeue schema adopt --schema Ops --table 'my queue; rm' --strict-lanes --confirm 'Ops.my queue; rm'"
