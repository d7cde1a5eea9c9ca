"""From what a handler says to the write it becomes."""

from __future__ import annotations

import random
import uuid
from decimal import Decimal
from typing import Any

import pytest

from leasequeue import Fail, Item, Lease, Release, Repair, Resolve, Retry, Verdict
from leasequeue.fence import MAX_DELAY_S
from leasequeue_worker.child import decode, encode
from leasequeue_worker.held import Held
from leasequeue_worker.verdicts import of_error, of_value, plan_writes, said_after_commit, settlement

RNG = random.Random(1)


def finished(item_id: int, verdict: Verdict, *, attempt: int = 1, committed: bool = False) -> Held:
    token = uuid.uuid4()
    item = Item({"id": 0, "lease_token": 1, "leased_by": 2, "attempt": 3}, (item_id, token, "w", attempt))
    held = Held(item, Lease(item_id, token, "w"), 0.0, 0.0)
    held.verdict, held.committed = verdict, committed
    return held


def test_a_plain_value_resolves_and_a_verdict_is_taken_as_it_is() -> None:
    repair = Repair("look")
    assert isinstance(of_value(None), Resolve)
    value = of_value({"a": 1})
    assert isinstance(value, Resolve)
    assert value.result == {"a": 1}
    assert of_value(repair) is repair
    assert of_error(repair) is repair


def test_an_exception_retries_with_its_text_but_without_a_password() -> None:
    verdict = of_error(RuntimeError("no route to postgresql://u:s3cret@h/db"))
    assert isinstance(verdict, Retry)
    assert verdict.after_s is None
    assert verdict.error.startswith("RuntimeError: no route")
    assert "s3cret" not in verdict.error


@pytest.mark.parametrize(
    ("verdict", "verb", "delay"),
    [
        (Retry(7.0, "later"), "RETRY", 7.0),
        (Fail("no"), "FAIL", 0.0),
        (Repair("look"), "REPAIR", 0.0),
        (Release(3.0), "RELEASE", 3.0),
        (Retry(-5.0), "RETRY", 0.0),
        (Retry(float("nan")), "RETRY", 0.0),
        (Retry(float("inf")), "RETRY", MAX_DELAY_S),
    ],
)
def test_each_verdict_has_its_write(verdict: Verdict, verb: str, delay: float) -> None:
    write = settlement(finished(1, verdict), verdict, RNG)
    assert (write.verb, write.delay_s) == (verb, delay)


def test_backoff_grows_with_the_attempt() -> None:
    early = [settlement(finished(1, Retry(), attempt=1), Retry(), RNG).delay_s for _ in range(50)]
    late = [settlement(finished(1, Retry(), attempt=8), Retry(), RNG).delay_s for _ in range(50)]
    assert max(early) <= 1.0
    assert min(late) > max(early)


def test_text_that_utf8_cannot_hold_still_reaches_last_error() -> None:
    write = settlement(finished(1, Fail("bad \ud800 text")), Fail("bad \ud800 text"), RNG)
    assert write.error is not None
    assert write.error.encode("utf-8")


def test_one_flush_never_names_an_item_twice() -> None:
    old, new = finished(1, Resolve("old")), finished(1, Resolve("new"))
    other, done = finished(2, Fail("no")), finished(3, Resolve(), committed=True)
    writes = plan_writes([old, new, other, done], RNG)
    assert (writes.resolved, [completion.lease for completion in writes.completions]) == ([old], [old.lease])
    assert (writes.settled, [settlement.lease for settlement in writes.settlements]) == ([other], [other.lease])
    assert writes.later == [new]
    assert writes.committed == [done]


@pytest.mark.parametrize(
    "verdict",
    [Resolve(), Resolve({"a": Decimal("0.10"), "b": [1, None]}), Retry(None, "x"), Fail("f"), Repair("r"), Release(2.0)],
)
def test_verdicts_cross_the_process_border_exactly(verdict: Verdict) -> None:
    said = decode(encode(verdict, committed=False))
    assert type(said) is type(verdict)
    assert vars(said) == vars(verdict)


def test_a_verdict_of_the_handlers_own_class_crosses_as_what_it_is() -> None:
    class Later(Retry):
        pass

    said = decode(encode(Later(4.0, "mine"), committed=False))
    assert isinstance(said, Retry)
    assert (said.after_s, said.error) == (4.0, "mine")


@pytest.mark.parametrize("result", [float("nan"), {1, 2}, object()])
def test_a_result_that_json_cannot_hold_becomes_repair_in_the_child(result: Any) -> None:
    said = decode(encode(Resolve(result), committed=True))
    assert isinstance(said, Repair)
    assert "refused" in said.error


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_exception_without_a_text_is_named() -> None:
    verdict = of_error(Unspeakable())
    assert isinstance(verdict, Retry)
    assert verdict.error == "Unspeakable"


@pytest.mark.parametrize("verdict", [Retry("soon"), Release(None), Verdict()])  # type: ignore[arg-type]
def test_a_verdict_that_cannot_be_written_sets_its_own_item_aside(verdict: Verdict) -> None:
    good = finished(2, Resolve())
    writes = plan_writes([finished(1, verdict), good], RNG)
    (write,) = writes.settlements
    assert write.verb == "REPAIR"
    assert "refused" in (write.error or "")
    assert writes.resolved == [good]


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (None, ""),
        (Resolve(), ""),
        (Resolve({"a": 1}), "result"),
        (Resolve(columns={"note": "x"}), "result"),
        (Retry(), "Retry"),
    ],
)
def test_what_comes_after_the_commit_is_told(verdict: Verdict | None, says: str) -> None:
    assert said_after_commit(verdict) == says
