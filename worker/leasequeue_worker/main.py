"""`leasequeue-worker`: the process in a worker pod, and by hand the same."""

from __future__ import annotations

import gc
from typing import Any

import click

from leasequeue.errors import BadInput
from leasequeue.process.options import Command, apply
from leasequeue_worker.settings import OPTIONS, build
from leasequeue_worker.supervisor import Worker, end_process

# Python's own is 700 (2,000 from 3.13): a batch of 200 items is more objects than that.
GC_THRESHOLD = 10_000


@click.command(cls=Command, context_settings={"max_content_width": 120})
@apply(OPTIONS)
def main(**given: Any) -> None:
    """Lease items of a queue table and run a handler for each.

    Every option can be given by its environment variable (in brackets). SIGTERM drains: running items finish within the grace,
    what has not started goes back. A second signal gives everything back at once.
    """
    try:
        worker = Worker(build(given))
    except BadInput as ex:
        raise click.UsageError(str(ex)) from None
    spare_collector()
    end_process(worker.run())


def spare_collector() -> None:
    """Keep Python's cycle collector from walking over what is loaded, and over each batch several times while it is on its way: 8 % of
    the worker's time. What an item is made of has no cycles; a handler's cycles are collected as ever, only less often."""
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 10, 10)


if __name__ == "__main__":
    main()
