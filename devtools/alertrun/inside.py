"""The run itself, where the cluster's network is: `python -m devtools.alertrun` starts it there. The last line is its evidence."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from devtools.alertrun import drills
from devtools.alertrun.drill import play
from devtools.alertrun.load import Load
from devtools.alertrun.panels import evaluate
from devtools.alertrun.receiver import Receiver
from devtools.alertrun.stack import Stack
from devtools.alertrun.world import FLEET, LOAD, MAIN, NODE_ADDRESS, SECOND, World, until
from devtools.pgserver import PgServer

EVIDENCE = "EVIDENCE "
STEP_S = 3.0


@dataclass
class Evidence:
    """What was seen. Moments are seconds since 1970."""

    began: float = 0.0
    alerts: list[dict[str, Any]] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    targets: int = 0
    scraped: list[str] = field(default_factory=list)
    panels: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run(patient: bool, load_s: float) -> Evidence:
    """All drills.

    Args:
        patient: no rows are dated back; takes about ten minutes more.
        load_s: how long the load goes on at least, seconds.
    """
    seen = Evidence(began=time.time())

    def say(text: str) -> None:
        # One write: drills speak from threads of their own.
        sys.stdout.write(f"{time.time() - seen.began:5.0f} s  {text}\n")
        sys.stdout.flush()

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="alertrun-")))
        servers = {name: stack.enter_context(PgServer(18, listen=NODE_ADDRESS)) for name in (MAIN, SECOND)}
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=len(FLEET)))
        world = World(servers)
        world.install(folder)
        world.populate()
        say(f"chart installed; {len(FLEET)} queues")
        until("every queue Ready", 200, lambda: not world.unready())
        groups = world.rules()
        seen.rules = [rule["alert"] for group in groups for rule in group["rules"]]
        receiver = stack.enter_context(Receiver(NODE_ADDRESS))
        prometheus = stack.enter_context(Stack(folder, NODE_ADDRESS, receiver.url, groups))
        until("the operator and the workers scraped", 180, lambda: prometheus.healthy_targets() >= len(FLEET) - 1)
        say(f"Prometheus scrapes {prometheus.healthy_targets()} targets by {len(groups)} rule groups")
        began = time.time()
        with Load(world, say) as load:
            seen.problems += play(drills.all_but_operator(world, patient), receiver.inbox, say, pool)
            time.sleep(max(0.0, load_s - (time.time() - began)))
        if load.problem is not None:
            seen.problems.append(f"load: {type(load.problem).__name__}: {load.problem}")
        seen.targets = prometheus.healthy_targets()
        seen.scraped = sorted({s["metric"]["job"] for s in prometheus.query("up")})
        seen.panels = [asdict(p) for p in evaluate(world.dashboard(), prometheus, began, time.time(), STEP_S, LOAD)]
        say("dashboard evaluated")
        seen.problems += play([drills.operator()], receiver.inbox, say, pool)
        seen.alerts = [{"alert": alert, "queue": queue, **asdict(told)} for (alert, queue), told in receiver.inbox.told.items()]
    return seen


def main() -> int:
    """Run it with the options of the command line as JSON; the last line is the evidence."""
    options = json.loads(sys.argv[1])
    try:
        seen = run(**options)
    except Exception as ex:
        seen = Evidence(problems=[f"{type(ex).__name__}: {ex}"])
        raise
    finally:
        print(EVIDENCE + json.dumps(asdict(seen)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
