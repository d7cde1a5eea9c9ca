"""Decreases of every cause, run where kubectl reaches the cluster; prints what came of each as one JSON line at the end.

python -m devcluster exec -- python -m tests.cluster.shrinking
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from benchmarks.autoscaling.live import lab, shrinking
from demo.images import Images

INSIDE = "LEASEQUEUE_SHRINKING_INSIDE"
JOB_S = 14.0  # longer than the 5 s that a pod gets to end, with its 15 s to hand back


def main() -> int:
    """Run the scenes; the last line is the evidence."""
    images = Images(**json.loads(os.environ[INSIDE]))
    with lab.server() as server:
        lab.install(images)
        outcomes = shrinking.play(server, images, print, JOB_S, stagger_s=4.0)
    print("EVIDENCE " + json.dumps([asdict(o) for o in outcomes]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
