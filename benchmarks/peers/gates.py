"""What LeaseQueue must reach beside raw and the peers, judged on medians of one interleaved run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.flat.figures import Figure
from benchmarks.peers.spec import Contender
from benchmarks.peers.stats import Run, paired_ratio, pick, spread

OURS = "leasequeue"
RAW = "raw"
NEAR = "PgQueuer"
FAR = "Procrastinate"


@dataclass(frozen=True, slots=True)
class Gate:
    """One comparison.

    Args:
        name: what is compared.
        found: the ratio or figure, as shown.
        wanted: its bound, as shown.
        ok: whether it holds.
        aim: only reported: missing it is no failure.
    """

    name: str
    found: str
    wanted: str
    ok: bool
    aim: bool = False


def at_least(name: str, found: float | None, wanted: float, detail: str = "", *, aim: bool = False) -> list[Gate]:
    """A gate on a ratio; none where it was not measured."""
    if found is None:
        return []
    return [Gate(name, f"{found:.2f}{detail}", f"≥ {wanted:g}", found >= wanted, aim)]


def at_most(name: str, found: float | None, wanted: float, unit: str = "") -> list[Gate]:
    """A gate on a figure that must stay small; none where it was not measured."""
    return [] if found is None else [Gate(name, f"{found:.2f}{unit}", f"≤ {wanted:g}{unit}", found <= wanted)]


def drain_gates(runs: Sequence[Run], contenders: Sequence[Contender], of_raw: float) -> list[Gate]:
    """Drain beside raw in each shape measured for both, WAL, and beside the peers.

    Args:
        runs: drains with `round`, `contender`, `variant`, `shape`.
        contenders: who took part.
        of_raw: least share of raw's rate.
    """
    kinds = {contender.name: contender.kind for contender in contenders}
    gates: list[Gate] = []
    for name, raw in [(c.name, raw) for c in contenders if c.kind == "ours" for raw in c.beside]:
        for shape in dict.fromkeys(run["shape"] for run in pick(runs, contender=name) if run["shape"]):
            rate = paired_ratio(runs, _is(name, shape), _is(raw, shape), "drain_rate")
            detail = f" ({rate.low:.2f}–{rate.high:.2f})" if rate else ""
            gates += at_least(f"{name} {shape}: drain ÷ {raw}", rate.median if rate else None, of_raw, detail)
            cpu = paired_ratio(runs, _is(raw, shape), _is(name, shape), "cpu_us")  # says the same on a busy machine
            gates += at_least(f"{name} {shape}: CPU an item, {raw} ÷ ours", cpu.median if cpu else None, of_raw, aim=True)
            wal = paired_ratio(runs, _is(name, shape), _is(raw, shape), "wal_bytes")
            gates += at_most(f"{name} {shape}: WAL ÷ {raw}", wal.median if wal else None, 1.2)
    peers = [run for run in runs if kinds.get(run["contender"]) == "peer"]
    limited = {c.name: {v.name for v in c.variant if v.claim100} for c in contenders}
    ours = _best(pick(runs, contender=OURS))
    peers100 = _best([run for run in peers if run["variant"] in limited.get(run["contender"], ())])
    for name in [c.name for c in contenders if c.kind == "ours"]:
        ours100 = _best([run for run in pick(runs, contender=name) if run["variant"] in limited[name]])
        gates += at_least(f"{name}, ≤ 100 a claim: best ÷ best peer", _ratio(ours100, peers100), 1.15)
    gates += at_least("each at its own best: best ÷ best peer", _ratio(ours, _best(peers)), 1.0, aim=True)
    gates += at_least(f"best ÷ best {NEAR}", _ratio(ours, _best([r for r in peers if r["contender"].startswith(NEAR)])), 1.0)
    gates += at_least(f"best ÷ best {FAR}", _ratio(ours, _best(pick(peers, contender=FAR))), 20.0)
    return gates


def single_gates(runs: Sequence[Run], contenders: Sequence[Contender], field: str, what: str) -> list[Gate]:
    """Ours beside the best peer in one figure (one at a time, one way to enqueue)."""
    peers = {c.name for c in contenders if c.kind == "peer"}
    ours = spread(pick(runs, contender=OURS), field)
    others = [found.median for name in peers if (found := spread(pick(runs, contender=name), field))]
    if ours is None or not others:
        return []
    return at_least(f"{what}: ours ÷ best peer", ours.median / max(others), 1.0)


def latency_gates(runs: Sequence[Run], contenders: Sequence[Contender]) -> list[Gate]:
    """With wake-up: p50 within 2 ms, p99 no worse than the best peer's."""
    peers = {c.name for c in contenders if c.kind == "peer"}
    ours = pick(runs, contender=OURS, how="wake")
    p50, p99 = spread(ours, "p50_ms"), spread(ours, "p99_ms")
    best = [found.median for n in peers if (found := spread(pick(runs, contender=n, how="wake"), "p99_ms"))]
    gates = at_most("latency with wake-up: p50", p50.median if p50 else None, 2.0, " ms")
    return gates + (at_most("latency with wake-up: p99 ÷ best peer's", p99.median / min(best), 1.0) if p99 and best else [])


def wake_gates(runs: Sequence[Run]) -> list[Gate]:
    """What the notification adds to our own enqueue calls: at most a tenth."""
    gates: list[Gate] = []
    for how, what in (("one", "one by one"), ("tx", "in the caller's transaction")):
        found = spread(pick(runs, variant=how), "ratio")
        gates += at_most(f"enqueue {what}: call with wake-up ÷ without", found.median if found else None, 1.1)
    return gates


def memory_gates(runs: Sequence[Run]) -> list[Gate]:
    """A worker's memory at the end beside that after a tenth of the items."""
    return [
        gate
        for run in runs
        for gate in at_most(
            f"memory of a worker, {run['n']:,} items: end ÷ first tenth",
            run["resident_on_the_way"][2] / run["resident_on_the_way"][0],
            1.1,
        )
    ]


def flat_gates(figures: Sequence[Figure]) -> list[Gate]:
    """The figures of `benchmarks.flat` that have a limit, and its plain facts."""
    gates: list[Gate] = []
    for figure in figures:
        if figure.ratio is None:
            gates += [Gate(figure.name, figure.found, figure.base, figure.ok)] if figure.base != "shown" else []
        elif figure.limit is not None:
            gates += at_most(figure.name, figure.ratio, figure.limit)
    return gates


def _is(name: str, shape: str) -> Callable[[Run], bool]:
    return lambda run: run["contender"] == name and run["shape"] == shape


def _best(runs: Sequence[Run]) -> float | None:
    keys = {(run["contender"], run["variant"]) for run in runs}
    medians = [spread(pick(runs, contender=c, variant=v), "drain_rate") for c, v in keys]
    return max((found.median for found in medians if found), default=None)


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or not under else over / under


def verdict(gates: Sequence[Gate]) -> dict[str, Any]:
    """Counts for the summary line."""
    judged = [gate for gate in gates if not gate.aim]
    return {"passed": sum(gate.ok for gate in judged), "failed": sum(not gate.ok for gate in judged)}
