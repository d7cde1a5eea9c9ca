"""The doctor's judges on facts made by hand: what is a finding, what is not, and what a finding may say."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from leasequeue.doctor import Code, Finding, Limits, Severity, leases, order, server, structure, writers
from leasequeue.doctor.examine import blind_spots, is_strict, judge, unread_catalog
from leasequeue.doctor.facts import (
    Blind,
    Counted,
    Counters,
    DueRow,
    Facts,
    Holder,
    LaneRow,
    LeaseRow,
    Pin,
    Snapshot,
    Suspect,
    Upkeep,
    Wait,
)
from leasequeue.doctor.finding import ordered, seconds, some
from leasequeue.doctor.look import blind
from leasequeue.doctor.remedy import command, literals
from leasequeue.errors import BadInput
from leasequeue.schema.facts import Index
from leasequeue.schema.report import Report
from leasequeue.table import LEASE_COLUMNS, Table
from leasequeue.workers import WorkerRow

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TABLE = Table(1, "public", "jobs", dict.fromkeys(LEASE_COLUMNS, "text"))
HOWTO = Path(__file__).parents[2] / "docs/howto/doctor.md"


def facts(**parts: Any) -> Facts:
    base = Facts(unread_catalog(TABLE), Report("public.jobs", 1, (), (), None), strict=False, catalog_seen=False)
    looked = parts.pop("snapshot", None)
    if looked is not None:
        parts |= {"first": looked, "second": looked}
    return replace(base, **parts)


def lease(item: str = "1", **parts: Any) -> LeaseRow:
    row = LeaseRow(
        id=item, leased_by="w1", token=f"token-{item}", lane=None, priority=0, attempt=1, crash_count=0, resolved=False,
        leased_at="12:00", leased_s=5.0, no_end=False, endless=False, left_s=25.0, ended_at_birth=False, since_adoption=True,
    )  # fmt: skip
    return replace(row, **parts)


def worker(name: str = "w1", *, seen_s: float = 1.0, at_s: float = 0.0, **parts: Any) -> WorkerRow:
    row = WorkerRow(
        worker_id=name, pod_uid=None, pod_name=None, slots=1, held=0, running=0, claimed_total=0, finished_total=0, lost_total=0,
        busy_ms_total=0, started_at=NOW, seen_at=NOW + timedelta(seconds=at_s), unseen_s=seen_s, cordoned=False, leases=0,
    )  # fmt: skip
    return replace(row, **parts)


def two_looks(before: Snapshot, after: Snapshot) -> Facts:
    return facts(first=before, second=after, watched_s=6.0)


def signs(found: Any) -> list[str]:
    return [finding.sign for finding in found]


def test_nothing_seen_is_nothing_found() -> None:
    assert judge(facts()) == ()
    assert judge(facts(snapshot=Snapshot((lease(),), (worker(),)))) == ()


# --- leases ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({}, []),
        ({"left_s": 30.0}, []),  # renewed
        ({"leased_by": "w2", "token": "fresh", "leased_at": "12:01"}, []),  # given back and claimed by another
        ({"leased_by": "w2"}, ["stolen"]),
        ({"leased_at": "12:01"}, ["stolen"]),
        ({"leased_by": "script", "token": None}, ["overwritten"]),
        ({"token": None}, []),  # the same owner forgot its token: it is still the holder
    ],
)
def test_which_changes_of_a_live_lease_are_theft(after: dict[str, Any], expected: list[str]) -> None:
    seen = two_looks(Snapshot((lease(),)), Snapshot((lease(**after),)))
    assert signs(leases.judge(seen)) == expected


def test_a_lease_that_ended_between_the_looks_was_not_overwritten() -> None:
    seen = two_looks(Snapshot((lease(left_s=3.0),)), Snapshot((lease(leased_by="script", token=None),)))
    assert signs(leases.judge(seen)) == []


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"held": 2, "leases": 1}, {"held": 2, "leases": 1}, ["unleased_work"]),
        ({"held": 2, "leases": 2}, {"held": 2, "leases": 1}, []),  # a completion that the last heartbeat did not know yet
        ({"held": 2, "leases": 1}, {"held": 1, "leases": 1}, []),  # it finished one meanwhile
        ({"held": 1, "leases": 0}, {"held": 1, "leases": 0, "claimed_total": 1}, []),  # another item than before
        ({"held": 1, "leases": 0, "at_s": 5.0}, {"held": 1, "leases": 0}, []),  # no heartbeat in between: proves nothing
        ({"claimed_total": 9}, {"claimed_total": 10}, []),
        ({"claimed_total": 9}, {"claimed_total": 2}, ["shared_identity"]),
        ({"busy_ms_total": 900}, {"busy_ms_total": 2}, ["shared_identity"]),
    ],
)
def test_what_heartbeats_prove(before: dict[str, Any], after: dict[str, Any], expected: list[str]) -> None:
    seen = two_looks(Snapshot(workers=(worker(**before),)), Snapshot(workers=(worker(**{"at_s": 5.0, **after}),)))
    assert signs(leases.judge(seen)) == expected


def test_lanes_are_shared_only_where_they_are_strict() -> None:
    rows = Snapshot((lease("1", lane="a"), lease("2", lane="a"), lease("3", lane="b"), lease("4"), lease("5")))
    (found,) = leases.judge(facts(snapshot=rows, strict=True))
    assert (found.sign, found.ids, found.evidence["lanes"]) == ("shared_lane", ("1", "2"), ["a"])
    assert list(leases.judge(facts(snapshot=rows))) == []


@pytest.mark.parametrize(
    ("left_s", "up_s", "expected"),
    [
        (-134.0, 9e9, []),  # 45 s of reclaim_after and 90 s for the reclaimer's schedule
        (-136.0, 9e9, ["not_reclaimed"]),
        (-136.0, None, ["not_reclaimed"]),
        (-136.0, 60.0, []),  # the server has just started: the reclaimer waits for the workers, on purpose
    ],
)
def test_when_an_ended_lease_is_a_leak(left_s: float, up_s: float | None, expected: list[str]) -> None:
    seen = facts(snapshot=Snapshot((lease(left_s=left_s, leased_by="gone"),)), upkeep=Upkeep(server_up_s=up_s))
    assert [f.sign for f in leases.judge(seen) if f.code is Code.LEASE_LEAK] == expected


@pytest.mark.parametrize(
    ("upkeep", "cause"),
    [
        (Upkeep(), "No reclaimer has ever run"),
        (Upkeep(swept_at=NOW, swept_s=200.0), "no longer runs"),
        (Upkeep(swept_at=NOW, swept_s=5.0), "passes these rows over"),
        (Upkeep(swept_at=NOW, swept_s=5.0, run_failed=True), "ended with an error"),
    ],
)
def test_why_a_lease_leaks(upkeep: Upkeep, cause: str) -> None:
    seen = facts(snapshot=Snapshot((lease(left_s=-9999.0),)), upkeep=upkeep)
    (leak,) = [f for f in leases.judge(seen) if f.sign == "not_reclaimed"]
    assert cause in leak.cause


@pytest.mark.parametrize(
    ("row", "workers", "expected"),
    [
        ({}, [worker(seen_s=29.0)], []),
        ({}, [worker(seen_s=31.0)], ["dead_worker"]),
        ({"left_s": -1.0}, [worker(seen_s=1.0)], ["not_renewed"]),
        ({"left_s": -1.0}, [], []),  # an unregistered client's lease that has just ended: the reclaimer's next work
        ({"leased_s": 700.0}, [], ["unregistered"]),
        ({"leased_s": 700.0}, [worker()], []),  # a long job that lives by renewal
        ({"left_s": -9999.0}, [worker(seen_s=31.0)], ["not_reclaimed"]),  # said once
    ],
)
def test_which_leases_are_stuck(row: dict[str, Any], workers: list[WorkerRow], expected: list[str]) -> None:
    assert signs(leases.judge(facts(snapshot=Snapshot((lease(**row),), tuple(workers))))) == expected


def test_the_ceiling_is_the_given_one_then_the_reclaimers_then_the_default() -> None:
    rows = Snapshot(tuple(lease(str(n)) for n in range(150)))
    assert signs(leases.judge(facts(snapshot=rows))) == []
    assert signs(leases.judge(facts(snapshot=rows, upkeep=Upkeep(run_max_inflight=149)))) == ["over"]
    wide = facts(snapshot=rows, upkeep=Upkeep(run_max_inflight=149), limits=Limits(max_inflight=150))
    assert signs(leases.judge(wide)) == []


# --- order -----------------------------------------------------------------------------------------------------------


def test_starvation_needs_time_and_tells_who_was_served() -> None:
    served = Snapshot((lease("9", priority=5, leased_s=10.0),), (worker(),))
    assert signs(order.judge(facts(due=(DueRow(0, "1", 599.0),), snapshot=served))) == []
    (found,) = order.judge(facts(due=(DueRow(5, "8", 1.0), DueRow(0, "1", 601.0)), snapshot=served))
    assert (found.sign, found.ids, found.evidence["leased_above"], found.evidence["due_priorities_above"]) == (
        "priority", ("1",), 1, 1,
    )  # fmt: skip


def test_a_lease_taken_before_the_item_was_due_did_not_pass_it() -> None:
    long_job = Snapshot((lease("9", priority=5, leased_s=5_000.0),), (worker(),))
    assert signs(order.judge(facts(due=(DueRow(0, "1", 601.0),), snapshot=long_job))) == ["capacity"]


def test_blocked_lanes_are_found_where_they_block() -> None:
    rows = (
        LaneRow("a", "1", "REPAIR", 3, 5.0),
        LaneRow("b", "2", "SCHEDULED", 1, 700.0),
        LaneRow("c", "3", "SCHEDULED", 1, 5.0),
    )
    found = list(order.judge(facts(lanes=rows, strict=True)))
    assert [(f.sign, f.ids) for f in found] == [("lane_blocked", ("1",)), ("lane_scheduled", ("2",))]
    assert signs(order.judge(facts(lanes=rows, strict=True, limits=Limits(on_blocked_head="Pass")))) == []


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (Suspect("1", "PENDING", 2, 0, 1.0, False, False, False), []),
        (Suspect("1", "PENDING", 3, 0, 29.0, False, False, False), ["quick_failures"]),
        (Suspect("1", "PENDING", 3, 0, 31.0, False, False, False), []),
        (Suspect("1", "FAILED", 3, 0, 1.0, False, False, False), []),  # given up: no worker's time is lost any more
        (Suspect("1", "PENDING", 3, 0, None, False, False, False), []),  # created_at is infinite
        (Suspect("1", "SCHEDULED", 5, 0, 9e9, False, False, False), ["attempts"]),
        (Suspect("1", "PENDING", 1, 1, 9e9, False, False, False), []),
        (Suspect("1", "PENDING", 2, 2, 9e9, False, False, False), ["crashes"]),
        (Suspect("1", "REPAIR", 3, 3, 9e9, False, False, False), ["crashes"]),
    ],
)
def test_which_items_are_poison(item: Suspect, expected: list[str]) -> None:
    assert signs(order.judge(facts(suspects=(item,)))) == expected


# --- writers ---------------------------------------------------------------------------------------------------------


def test_leases_from_before_the_adoption_are_no_bypass() -> None:
    old = lease(token=None, since_adoption=False, ended_at_birth=True)
    assert signs(writers.judge(facts(snapshot=Snapshot((old,))))) == []
    assert signs(writers.judge(facts(snapshot=Snapshot((replace(old, since_adoption=True),))))) == [
        "no_token",
        "ended_at_birth",
    ]


def test_a_torn_lease_is_worse_while_it_lasts() -> None:
    ended = Suspect("1", "PENDING", 1, 0, 9e9, has_token=True, lease_lasts=False, resolved=False)
    assert [f.severity for f in writers.judge(facts(suspects=(ended,)))] == [Severity.WARNING]
    assert [f.severity for f in writers.judge(facts(suspects=(replace(ended, lease_lasts=True),)))] == [Severity.CRITICAL]


def test_a_count_that_was_cut_says_so() -> None:
    (found,) = writers.judge(facts(unstamped=Counted(1_000, ("1",))))
    assert found.summary.startswith("1,000 or more items")


# --- structure -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["variance_amount", "unitPrice", "TOTAL", "net_total_eur", "Fee"])
def test_names_that_speak_of_money(name: str) -> None:
    assert structure.money_like(name)


@pytest.mark.parametrize("name", ["score", "account", "latitude", "accosted", "taxonomy", "pricey", "totally"])
def test_names_that_do_not(name: str) -> None:
    assert not structure.money_like(name)


def test_strictness_is_read_from_the_claim_index() -> None:
    catalog = unread_catalog(TABLE)
    assert not is_strict(catalog)
    for definition, strict in (
        ("… WHERE (state = 'PENDING')", False),
        ("… WHERE ((state = 'PENDING') AND (lane IS NULL))", True),
    ):
        index = Index("jobs_lq_claim", definition, True, False, False, False, 0, ())
        assert is_strict(replace(catalog, indexes={"jobs_lq_claim": index})) is strict


# --- server ----------------------------------------------------------------------------------------------------------

WAIT = Wait(pid=2, who="w", lock="tuple", mode="ExclusiveLock", waits_s=0.2, blocker=1, blocker_who="psql",
            blocker_state="active", blocker_s=8.0)  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((), (WAIT,), 0),  # claims wait for each other for moments
        ((WAIT,), (WAIT,), 1),
        ((WAIT,), (replace(WAIT, blocker_s=0.1),), 0),  # the same session, another transaction: a busy worker
        ((), (replace(WAIT, waits_s=1.0),), 1),
        ((), (replace(WAIT, waits_s=1.0, blocker_s=None),), 1),  # a session that this role may not see
    ],
)
def test_which_waits_are_contention(before: tuple[Wait, ...], after: tuple[Wait, ...], expected: int) -> None:
    seen = two_looks(Snapshot(waits=before), Snapshot(waits=after))
    assert signs(server.judge(seen)) == ["waits"] * expected


def test_of_a_chain_of_waits_the_first_holder_is_named() -> None:
    chain = (replace(WAIT, waits_s=5.0), replace(WAIT, pid=3, blocker=2, waits_s=4.0))
    (found,) = server.judge(facts(snapshot=Snapshot(waits=chain)))
    assert found.evidence["blocker"] == 1


@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        (Pin("transaction", "pid 1 (psql)", 1, "active", 299.0, 10), []),
        (Pin("transaction", "pid 1 (psql)", 1, "active", 301.0, 10), ["transaction"]),
        (Pin("transaction", "pid 1 (psql)", 1, None, None, 10), ["sessions"]),
        (Pin("slot", "replica", None, "inactive", None, 999_999), []),
        (Pin("slot", "replica", None, "inactive", None, 1_000_000), ["slot"]),
        (Pin("prepared", "gid", None, None, 301.0, 1), ["prepared"]),
    ],
)
def test_what_pins_and_what_is_merely_hidden(pin: Pin, expected: list[str]) -> None:
    assert signs(server.judge(facts(pins=(pin,)))) == expected


def test_locks_on_the_table_itself_are_worse_than_locks_on_rows() -> None:
    rows = Holder(7, "w", "active", 121.0, ("RowExclusiveLock", "RowShareLock"), False)
    found = server.judge(facts(holders=(rows, replace(rows, modes=("AccessExclusiveLock",)), replace(rows, held_s=119.0))))
    assert [f.severity for f in found] == [Severity.WARNING, Severity.CRITICAL]


def test_dead_rows_count_beyond_the_live_ones() -> None:
    counters = Counters(0, 0, 100_000, 150_000, None, True, 2**20, {}, ())
    assert signs(server.judge(facts(snapshot=Snapshot(counters=counters)))) == []
    assert signs(server.judge(facts(snapshot=Snapshot(counters=replace(counters, dead=150_001))))) == ["dead_rows"]


# --- what findings say -----------------------------------------------------------------------------------------------


def test_the_worst_comes_first() -> None:
    def one(code: Code, severity: Severity) -> Finding:
        return Finding(code, "s", severity, "", "", "")

    found = [one(Code.COULD_NOT_LOOK, Severity.UNKNOWN), one(Code.BLOAT, Severity.WARNING), one(Code.POISON, Severity.CRITICAL),
             one(Code.DOUBLE_LEASE, Severity.CRITICAL)]  # fmt: skip
    assert [f.code for f in ordered(found)] == [Code.DOUBLE_LEASE, Code.POISON, Code.BLOAT, Code.COULD_NOT_LOOK]


def test_blind_spots_are_told_once_a_reason() -> None:
    spots = (
        Blind("leases", "locked", "f"),
        Blind("workers", "denied", "g"),
        Blind("lanes", "locked", "f"),
        Blind("leases", "locked", "f"),
    )
    assert [f.evidence["looks"] for f in blind_spots(spots)] == [["leases", "lanes"], ["workers"]]


def test_an_unknown_error_is_told_by_its_code_alone() -> None:
    error = psycopg.errors.InvalidTextRepresentation("invalid input syntax for type integer: payload")
    spot = blind("leases", error, 5.0, "adopt")
    assert "payload" not in spot.reason + spot.fix
    assert "22P02" in spot.reason


def test_names_and_ids_are_quoted_for_shell_and_sql() -> None:
    odd = facts(catalog=unread_catalog(Table(1, "Ops", "my queue'; rm -rf", {})))
    assert command(odd, "reclaim") == """leasequeue reclaim --schema Ops --table 'my queue'"'"'; rm -rf'"""
    assert literals(["a", "o'b"]) == "'a', 'o''b'"


def test_ids_are_few_and_durations_are_for_people() -> None:
    assert some(range(100)) == tuple(sorted(map(str, range(100)))[:10])
    assert [seconds(s) for s in (3.4, 119, 120, 7300)] == ["3 s", "119 s", "2 min", "2.0 h"]


@pytest.mark.parametrize(
    "bad", [{"watch_s": -1.0}, {"watch_s": 301.0}, {"statement_s": 0.0}, {"xmin_s": float("nan")}, {"max_inflight": -5}]
)
def test_limits_are_bounded(bad: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=next(iter(bad))):
        Limits(**bad)  # type: ignore[arg-type]


def test_every_code_and_sign_is_in_the_howto() -> None:
    howto = HOWTO.read_text()
    for code in Code:
        assert f"| {code} |" in howto
    source = "".join(path.read_text() for path in Path(leases.__file__).parent.glob("*.py"))
    signs_in_source = set(re.findall(r'Code\.[A-Z_]+,\s+"(\w+)"', source))
    assert len(signs_in_source) > 30
    missing = {sign for sign in signs_in_source if f"`{sign}`" not in howto}
    assert missing == set()
