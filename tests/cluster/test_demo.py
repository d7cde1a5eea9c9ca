"""`make demo`, as a user runs it, with fewer items: the whole main job, from a cluster of its own to the checked summary."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cluster.marks import OWN_CLUSTER

pytestmark = OWN_CLUSTER
ROOT = Path(__file__).resolve().parents[2]
ITEMS = 1200


def test_the_demo_keeps_its_promises() -> None:
    command = [sys.executable, "-m", "demo", "--items", str(ITEMS), "--name", f"demo-test-{os.getpid()}", "--down"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2300, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    for line in (
        rf"items in:\s+{ITEMS}",
        rf"resolved:\s+{ITEMS}",
        rf"postings:\s+{ITEMS}",
        r"lost:\s+0",
        r"doubled:\s+0",
        r"totals exact:\s+yes",
        r"workers 0→N→0:\s+N = [2-9]",
        r"worker killed:\s+\S+ by SIGKILL, exit code 137",
        r"items reclaimed by CronJob run \S+:\s+[1-9]",
        r"in-flight alert shown at 80 %:\s+yes",
    ):
        assert re.search(line, done.stdout), f"no line {line!r} in:\n{done.stdout[-4000:]}"
