"""`python -m devtools.throwaway`: a PostgreSQL to try things out with. It prints its DSN, and is gone with all it holds at Ctrl-C."""

from __future__ import annotations

import signal
import sys

import click

from devtools.pgserver import PgServer

DATABASE = "lease"


@click.command()
@click.option(
    "--version", type=click.Choice(["15", "18"]), default="18", show_default=True, help="Major version of the server."
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="TCP port; 0 takes a free one.")
def main(version: str, port: int) -> None:
    """Run a PostgreSQL on this machine alone until it is interrupted; the line that it prints goes into another terminal."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started with it ignored
    with PgServer(int(version), port=port) as server:
        server.create_database(DATABASE)
        click.echo(f"export LEASEQUEUE_DSN='postgresql://postgres:{server.password}@127.0.0.1:{server.port}/{DATABASE}'")
        click.echo("Ctrl-C ends it and removes its data.", err=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            click.echo("ended", err=True)


if __name__ == "__main__":
    main()
