"""The way out: phases in order, whatever happens meanwhile; never an exit while a claim may still bring leases."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leasequeue_worker.drain import Drain, Facts, Phase, leave_s, margin_s

ORDER = list(Phase)
facts_of = st.builds(
    Facts,
    now=st.just(0.0),
    signals=st.integers(0, 3),
    held=st.integers(0, 5),
    running=st.integers(0, 5),
    claiming=st.booleans(),
)


def facts(now: float, signals: int = 1, held: int = 0, running: int = 0, claiming: bool = False) -> Facts:
    return Facts(now, signals, held, running, claiming)


@settings(deadline=None)
@given(st.lists(st.tuples(facts_of, st.floats(0, 5)), max_size=60), st.integers(1, 60))
def test_phases_never_go_back(steps: list[tuple[Facts, float]], grace: int) -> None:
    drain, now, reached = Drain(grace), 100.0, 0
    for seen, later in steps:
        now += later
        phase = drain.step(Facts(now, seen.signals, seen.held, seen.running, seen.claiming))
        assert ORDER.index(phase) >= reached
        reached = ORDER.index(phase)


@settings(deadline=None)
@given(st.integers(1, 3600), st.booleans())
def test_the_process_is_gone_before_sigkill_even_when_nothing_moves(grace: int, claiming: bool) -> None:
    drain, ends = Drain(grace), 50.0 + grace
    drain.step(facts(50.0, held=3, running=3, claiming=claiming))
    now = ends - 2 * margin_s(grace)
    while drain.step(facts(now, held=3, running=3, claiming=claiming)) is not Phase.EXIT:
        now += margin_s(grace) / 50
        assert now < ends, "would be killed with leases in hand"
    assert now <= ends - leave_s(grace) + margin_s(grace) / 25


def test_without_a_signal_nothing_happens() -> None:
    drain = Drain(30)
    for now in range(1000):
        assert drain.step(facts(float(now), signals=0, held=0)) is Phase.WORKING


def test_an_idle_worker_leaves_once_no_claim_is_under_way() -> None:
    drain = Drain(30)
    assert drain.step(facts(1.0, held=0, claiming=True)) is Phase.FINISHING
    assert drain.step(facts(1.1, held=0, claiming=False)) is Phase.EXIT


def test_running_items_get_the_grace_less_the_margin() -> None:
    drain = Drain(30)
    drain.step(facts(0.0, held=1, running=1))
    assert drain.step(facts(30 - margin_s(30) - 0.1, held=1, running=1)) is Phase.FINISHING
    assert drain.step(facts(30 - margin_s(30), held=1, running=1)) is Phase.STOPPING


def test_a_second_signal_skips_the_waiting() -> None:
    drain = Drain(3600)
    drain.step(facts(0.0, held=1, running=1))
    assert drain.step(facts(0.1, signals=2, held=1, running=1)) is Phase.STOPPING


def test_handlers_that_stop_end_the_stopping_at_once() -> None:
    drain = Drain(30)
    drain.step(facts(0.0, held=2, running=2))
    drain.step(facts(26.0, held=2, running=2))
    assert drain.step(facts(26.1, held=2, running=0)) is Phase.RELEASING
    assert drain.step(facts(26.2, held=0, running=0)) is Phase.EXIT
