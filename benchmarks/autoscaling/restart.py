"""`python -m benchmarks.autoscaling.restart`: the operator restarted at every look of every load, beside the run that went on."""

from __future__ import annotations

from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table

from benchmarks.autoscaling.ours import LeaseQueue
from benchmarks.autoscaling.traces import TRACES, Trace, run
from leasequeue_operator.scaling import saved
from leasequeue_operator.scaling.decide import decide

SECONDS = 60.0


@dataclass
class Restarts:
    """What came of the restarts of one load.

    Args:
        restarts: how many, one before each look.
        looks: looks compared, those of the 60 s after each restart.
        lower: of them with fewer pods than the run that went on had.
        other: of them with another number of pods.
        late: restarts after which the number still differed 60 s later.
    """

    restarts: int = 0
    looks: int = 0
    lower: int = 0
    other: int = 0
    late: int = 0


def restarts(trace: Trace, seed: int) -> Restarts:
    """Restart before each look with what the status held then, and go on for 60 s with the same samples."""
    scaler = LeaseQueue(trace)
    run(trace, scaler, seed)
    found = Restarts()
    for begin in range(1, len(scaler.looks)):
        first = scaler.looks[begin]
        state = saved.read(first.written, first.running, first.at, scaler.spec)
        found.restarts += 1
        differs = False
        for look in scaler.looks[begin:]:
            if look.at - first.at > SECONDS:
                break
            decision = decide(state, look.sample, scaler.spec, look.at)
            found.looks += 1
            found.lower += decision.desired < look.decision.desired
            differs = decision.desired != look.decision.desired
            found.other += differs
            state = decision.state
        found.late += differs
    return found


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of arrivals and job lengths.")
def main(seed: int) -> None:
    """Print how often a restarted operator decides otherwise than one that went on; exits 1 where it is ever lower."""
    table = Table(title="The operator restarted before every look; 60 s compared after each")
    for number, column in enumerate(
        ("load", "restarts", "looks compared", "lower", "another number", "still another after 60 s")
    ):
        table.add_column(column, justify="left" if number == 0 else "right")
    lower = 0
    for trace in TRACES:
        found = restarts(trace, seed)
        lower += found.lower + found.late
        table.add_row(
            trace.name, f"{found.restarts:,}", f"{found.looks:,}", str(found.lower), str(found.other), str(found.late)
        )
    Console(width=120).print(table)
    raise SystemExit(1 if lower else 0)


if __name__ == "__main__":
    main()
