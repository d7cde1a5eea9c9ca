"""The pure parts of the side-by-side harness: who takes part, figures, gates, installation stamps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.flat.figures import compare, fact
from benchmarks.peers import gates, stats
from benchmarks.peers.flat import CROWD
from benchmarks.peers.install import stamp_of
from benchmarks.peers.measure import thirds
from benchmarks.peers.spec import HERE, Contender, Variant, chosen, load

CONTENDERS = load(HERE / "contenders.toml")


def run(contender: str, rate: float, round_: int = 1, shape: str = "", variant: str = "v", **fields: Any) -> dict[str, Any]:
    """One measured drain."""
    measured = {
        "contender": contender,
        "variant": variant,
        "shape": shape,
        "round": round_,
        "drain_rate": rate,
        "wal_bytes": 1000.0,
        "cpu_us": 30.0,
    }
    return {**measured, **fields}


def who(name: str, kind: str = "peer", **variants: bool) -> Contender:
    """A contender with variants by name; the value says whether it is limited to 100 a claim."""
    made = [Variant(name=key, claim100=limited) for key, limited in (variants or {"v": False}).items()]
    return Contender.model_validate({"name": name, "kind": kind, "cmd": ["x"], "remaining": "t", "variant": made})


def test_every_shape_of_ours_has_its_ceiling_in_raw() -> None:
    raw = {variant.shape for found in CONTENDERS if found.name == gates.RAW for variant in found.variant}
    ours = {variant.shape for found in CONTENDERS if found.kind == "ours" for variant in found.variant}
    assert ours <= raw
    assert ours


def test_variants_limited_to_100_claim_no_more() -> None:
    for found in CONTENDERS:
        for variant in found.variant:
            if variant.claim100 and found.kind != "peer":
                assert found.options(variant)["batch"] <= 100, (found.name, variant.name)


def test_ours_spreads_max_inflight_over_the_processes_it_runs() -> None:
    for found in CONTENDERS:
        for variant in found.variant:
            if found.kind == "ours":
                assert variant.opts.get("replicas", 1) == variant.procs, (found.name, variant.name)


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="varient"):
        Contender.model_validate({"name": "x", "cmd": ["x"], "remaining": "t", "variant": [], "varient": []})


def test_two_contenders_of_one_name_are_refused(tmp_path: Path) -> None:
    again = tmp_path / "more.toml"
    again.write_text('[[contender]]\nname = "raw"\ncmd = ["x"]\nremaining = "t"\nvariant = []\n')
    with pytest.raises(ValueError, match="raw"):
        load(HERE / "contenders.toml", again)


def test_choosing_by_name_says_which_names_there_are() -> None:
    assert [found.name for found in chosen(CONTENDERS, "raw,leasequeue")] == ["leasequeue", "raw"]
    assert [found.name for found in chosen(CONTENDERS, "leasequeue, no audit log,raw")] == ["leasequeue, no audit log", "raw"]
    with pytest.raises(ValueError, match=r"no contender celery; there are: .*River"):
        chosen(CONTENDERS, "raw,celery")


def test_schema_key_ignores_options_that_do_not_change_the_schema() -> None:
    ours = next(found for found in CONTENDERS if found.name == "leasequeue")
    assert ours.schema_key({"batch": 1}) == ours.schema_key({"batch": 2})
    assert ours.schema_key({"adopted": True}) != ours.schema_key({})


def test_jobs_scale_but_never_to_nothing() -> None:
    slow = who("slow").model_copy(update={"scale": 0.1})
    assert slow.jobs(20_000) == 2_000
    assert slow.jobs(20_000, Variant(name="v", scale=0.5)) == 10_000
    assert slow.jobs(100) == 20


def test_interleaved_rounds_go_forth_and_back() -> None:
    assert list(stats.interleaved(3, "ab")) == [(1, "a"), (1, "b"), (2, "b"), (2, "a"), (3, "a"), (3, "b")]


def test_spread_and_percentiles() -> None:
    assert stats.Spread.of([3, 1, 2]) == stats.Spread(2, 1, 3, 3)
    assert stats.Spread.of([45_100, 36_500, 47_100]).text() == "45,100 (36,500–47,100)"
    ordered = [float(x) for x in range(1, 101)]
    assert stats.percentile(ordered, 0.5) == 51.0
    assert stats.percentile(ordered, 0.99) == 100.0
    assert stats.percentile([7.0], 0.99) == 7.0


def test_best_is_by_median_not_by_the_luckiest_run() -> None:
    runs = [run("x", rate, variant="steady") for rate in (10, 11, 12)] + [
        run("x", rate, variant="lucky") for rate in (5, 6, 99)
    ]
    assert stats.best(runs) == "steady"
    assert stats.best([]) is None


def test_ratio_is_taken_within_each_round() -> None:
    """Both halve in round 2 (a noisy neighbour): the ratio does not."""
    runs = [run("a", 80, 1), run("b", 100, 1), run("a", 40, 2), run("b", 50, 2), run("a", 90, 3)]
    found = stats.paired_ratio(runs, lambda r: r["contender"] == "a", lambda r: r["contender"] == "b", "drain_rate")
    assert found == stats.Spread(0.8, 0.8, 0.8, 2)


@pytest.mark.parametrize(("rate", "ok"), [(79.0, False), (80.0, True)])
def test_drain_gate_compares_with_raw_of_the_same_shape(rate: float, ok: bool) -> None:
    runs = [run("leasequeue", rate, shape="2x100"), run("raw", 100, shape="2x100"), run("raw", 1, shape="2x200")]
    found = gates.drain_gates(runs, [who("leasequeue", "ours"), who("raw", "raw")], 0.8)
    assert [(gate.name, gate.ok) for gate in found if "drain" in gate.name] == [("leasequeue 2x100: drain ÷ raw", ok)]


@pytest.mark.parametrize(("wal", "ok"), [(1200.0, True), (1210.0, False)])
def test_wal_gate(wal: float, ok: bool) -> None:
    runs = [run("leasequeue", 90, shape="2x100", wal_bytes=wal), run("raw", 100, shape="2x100")]
    found = gates.drain_gates(runs, [who("leasequeue", "ours"), who("raw", "raw")], 0.8)
    assert [gate.ok for gate in found if "WAL" in gate.name] == [ok]


def test_like_for_like_gate_leaves_out_what_claims_more() -> None:
    """The peer's best holds 2,000 jobs: the gate of 100 a claim does not see it."""
    ours, peer = who("leasequeue", "ours", b100=True, b200=False), who("graphile-worker", "peer", b100=True, b2000=False)
    runs = [
        run("leasequeue", 120, variant="b100"), run("leasequeue", 150, variant="b200"),
        run("graphile-worker", 100, variant="b100"), run("graphile-worker", 999, variant="b2000"),
    ]  # fmt: skip
    (found,) = [gate for gate in gates.drain_gates(runs, [ours, peer], 0.8) if "100 a claim" in gate.name]
    assert (found.found, found.ok) == ("1.20", True)


def test_gates_without_a_measurement_are_left_out() -> None:
    assert gates.drain_gates([], CONTENDERS, 0.8) == []
    assert gates.single_gates([], CONTENDERS, "rate", "x") == []
    assert gates.latency_gates([], CONTENDERS) == []


def test_latency_gates_use_wake_up_runs_only() -> None:
    def waited(contender: str, how: str, p50: float, p99: float) -> dict[str, Any]:
        return {"contender": contender, "how": how, "p50_ms": p50, "p99_ms": p99}

    runs = [waited("leasequeue", "wake", 1.5, 4), waited("leasequeue", "poll", 30, 60), waited("River", "wake", 1.6, 3.8)]
    found = gates.latency_gates(runs, [who("leasequeue", "ours"), who("River")])
    assert [(gate.found, gate.ok) for gate in found] == [("1.50 ms", True), ("1.05", False)]


def test_an_installation_is_made_again_when_a_lock_changes(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("a==1")
    before = stamp_of([lock])
    lock.write_text("a==2")
    assert stamp_of([lock]) != before


def test_locks_have_hashes_and_name_no_registry() -> None:
    node = (HERE / "adapters/package-lock.json").read_text()
    assert '"resolved"' not in node
    assert '"integrity"' in node
    lines = [line for name in ("requirements.lock", "node.lock") for line in (HERE / name).read_text().splitlines()]
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert pins
    assert all("==" in line and line.endswith("\\") for line in pins)


@pytest.mark.parametrize(("ratio", "ok"), [(1.1, True), (1.11, False)])
def test_wake_up_may_cost_a_tenth_of_an_enqueue_call(ratio: float, ok: bool) -> None:
    runs = [{"contender": "leasequeue", "variant": "one", "ratio": r} for r in (ratio, ratio, 9.0)]
    assert [(gate.wanted, gate.ok) for gate in gates.wake_gates(runs)] == [("≤ 1.1", ok)]


@pytest.mark.parametrize(("end", "ok"), [(66.0, True), (66.1, False)])
def test_memory_gate_compares_the_end_with_the_first_tenth(end: float, ok: bool) -> None:
    (found,) = gates.memory_gates([{"n": 1_000_000, "resident_on_the_way": [60.0, 90.0, end]}])
    assert ("1,000,000" in found.name, found.ok) == (True, ok)


def test_flat_figures_become_gates_where_they_have_a_limit_or_a_wanted_fact() -> None:
    figures = [
        compare("claim", [1.0], [1.3], 1.2), compare("the same, p95", [1.0], [9.0], None),
        fact("buffers", "189 buffers", "shown", ok=True), fact("HOT", "80.0%", "≥ 90 %", ok=False),
    ]  # fmt: skip
    found = gates.flat_gates(figures)
    assert [(g.name, g.found, g.wanted, g.ok) for g in found] == [
        ("claim", "1.30", "≤ 1.2", False), ("HOT", "80.0%", "≥ 90 %", False)
    ]  # fmt: skip


def test_first_place_is_an_aim_and_no_failure() -> None:
    runs = [run("leasequeue", 40, variant="v"), run("graphile-worker", 50, variant="v")]
    found = gates.drain_gates(runs, [who("leasequeue", "ours"), who("graphile-worker")], 0.8)
    (rank,) = [gate for gate in found if gate.aim]
    assert (rank.found, rank.ok) == ("0.80", False)
    assert gates.verdict([rank]) == {"passed": 0, "failed": 0}


def test_the_pace_early_and_late_in_a_drain() -> None:
    """100 jobs: 1 a second up to the 40th, 2 a second after it."""
    timeline = [(float(n if n <= 40 else 40 + (n - 40) / 2), n) for n in range(1, 101)]
    found = thirds(timeline, 100)
    assert found["early_rate"] == pytest.approx(1.0)
    assert found["late_rate"] == pytest.approx(2.0)
    assert thirds(timeline[:50], 100) == {}, "it never came to its end"
    assert thirds([(1.0, 100)], 100) == {}, "it was over at the first look"


def test_histories_are_of_finished_jobs_and_numbered() -> None:
    found = {contender.name: contender.history for contender in CONTENDERS if contender.history}
    assert {"leasequeue", "raw", "River", "pg-boss", "Procrastinate"} <= set(found)
    for statement in found.values():
        assert "{low}" in statement
        assert "{high}" in statement


def test_what_stays_flat_is_asked_of_ours_raw_and_every_peer() -> None:
    takers = {contender.name for contender in CONTENDERS if contender.crowd or contender.history}
    assert takers == {"leasequeue", "raw", "graphile-worker", "pg-boss", "River", "PgQueuer (asyncpg)", "Procrastinate"}
    ours = next(contender for contender in CONTENDERS if contender.name == "leasequeue")
    assert ours.crowd is not None
    assert ours.crowd.opts["replicas"] == CROWD
