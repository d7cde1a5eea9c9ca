"""`leasequeue-worker`: the process in a worker pod, and by hand the same."""

from __future__ import annotations

from typing import Any

import click

from leasequeue.errors import BadInput
from leasequeue.process.options import apply
from leasequeue_worker.settings import OPTIONS, build
from leasequeue_worker.supervisor import Worker, end_process


@click.command(context_settings={"max_content_width": 120})
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
    end_process(worker.run())


if __name__ == "__main__":
    main()
