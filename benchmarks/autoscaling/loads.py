"""The loads under which real KEDA was measured, reconstructed, and what it did (README.md has the whole table and its source).

The measured arrivals are not known second by second. What is known: slots, bounds, service time, length of 8 to 12 minutes, and the
outcome. Rates, lengths and bursts here were chosen so that the emulation of KEDA (`baselines.py`) gives that outcome: its pod-seconds,
idle ones, waits and peak, for both ways to configure it, on the same load. The simulator and the real runs (`live/`) share them.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.autoscaling.traces import Trace, between


@dataclass(frozen=True)
class Measured:
    """What real KEDA did; means of two runs where there were two.

    Args:
        pod_seconds: from creation to end of each pod.
        idle: of them without a job.
        p50, p95: of the wait until the first claim, seconds.
        cut_off: runs ended by a decrease.
        peak: most pods.
        first_s: first item to first claim, seconds.
    """

    pod_seconds: float
    idle: float
    p50: float
    p95: float
    cut_off: float
    peak: float
    first_s: float


@dataclass(frozen=True)
class Load:
    """A load and what KEDA did with it.

    Args:
        name: for the command line.
        trace: the arrivals, reconstructed.
        default: KEDA with the count of assigned + pending, poll 30 s.
        expert: KEDA with the drain formula, the exact service time and the ceiling, poll 15 s.
        parameters: what was chosen, in words.
    """

    name: str
    trace: Trace
    default: Measured
    expert: Measured
    parameters: str


START_S = 1.5  # a pod on the measured machine


def _step(t: float) -> float:
    return 0.0 if t < 10 else 10.0 if 150 <= t < 330 else 1.0


def _bursts(t: float) -> float:
    return 10.0 if t >= 10 and (t - 10) % 150 < 30 else 0.0


LOADS = (
    Load(
        "steady",
        Trace("steady, 5/s of 4 s", 600, between(10, 600, 5.0), start_s=START_S),
        Measured(7850, 1730, 0.0, 8, 0, 20, 15.5),
        Measured(4332, 107, 0.1, 15, 0, 8, 7.4),
        "5/s from 10 s to the end at 600 s",
    ),
    Load(
        "step",
        Trace("10x step", 660, _step, start_s=START_S),
        Measured(8468, 3947, 0.0, 8.5, 0, 20, 15),
        Measured(7009, 3216, 0.1, 17, 0, 16, 6.5),
        "1/s of 4 s, 10/s from 150 s to 330 s, end at 660 s",
    ),
    Load(
        "bursts",
        Trace("bursts", 720, _bursts, start_s=START_S),
        Measured(11196, 9050, 3.8, 19, 0, 20, 15.5),
        Measured(6717, 5032, 9.5, 25, 0, 10, 7.7),
        "10/s of 4 s for 30 s, every 150 s, end at 720 s",
    ),
    Load(
        "dump",
        Trace("dump of 1,100", 480, between(10, 480, 2.0), service_s=2.5, dumps=((70.0, 1100),), start_s=START_S),
        Measured(7291, 5452, 18, 57.5, 0, 20, 15),
        Measured(6885, 5163, 24, 57.5, 0, 20, 7),
        "1,100 at 70 s on top of 2/s, of 2.5 s each, end at 480 s",
    ),
    Load(
        "long",
        Trace("long jobs, 100 s", 600, between(10, 600, 0.09), service_s=100.0, dumps=((10.0, 40),), start_s=START_S),
        Measured(5442, 1383, 3, 45, 5.5, 12, 9.5),
        Measured(5506, 1460, 4, 40, 4.5, 12, 2),
        "40 at 10 s and 0.09/s after that, end at 600 s",
    ),
    Load(
        "longer",
        Trace("longer jobs, 200 s", 720, between(10, 600, 0.085), service_s=200.0, dumps=((10.0, 60),), start_s=START_S),
        Measured(9489, 982, 13, 43.5, 14, 16, 11.5),
        Measured(9441, 1296, 13, 43.5, 10, 16, 11.5),
        "60 at 10 s and 0.085/s until 600 s, end at 720 s",
    ),
    Load(
        "ceiling",
        Trace("ceiling, 5 of 20 pods can work", 540, between(10, 365, 25.0), slots=20, ceiling=100, start_s=START_S),
        Measured(9900, 6592, 24, 68.5, 0, 20, 15),
        Measured(2696, 640, 30.5, 75, 0, 5, 7.5),
        "25/s of 4 s until 365 s, end at 540 s; 20 slots a pod and 100 in flight for the measured 4 and 20, since max_inflight begins at 100",
    ),
)
