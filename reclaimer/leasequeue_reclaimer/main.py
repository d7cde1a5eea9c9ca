"""`leasequeue-reclaimer`: the process in the CronJob, and by hand the same."""

from __future__ import annotations

import sys
from typing import Any

import click

from leasequeue.errors import BadInput
from leasequeue.process.options import Command, apply
from leasequeue_reclaimer.run import Run
from leasequeue_reclaimer.settings import OPTIONS, build


@click.command(cls=Command, context_settings={"max_content_width": 120})
@apply(OPTIONS)
def main(**given: Any) -> None:
    """Take back leases of dead workers, promote due items, prune what is past its retention.

    Every option can be given by its environment variable (in brackets). Exit code 0: done; 2: a setting is wrong; 3: the
    database could not be worked with.
    """
    try:
        settings = build(given)
    except BadInput as ex:
        raise click.UsageError(str(ex)) from None
    sys.exit(Run(settings).run())


if __name__ == "__main__":
    main()
