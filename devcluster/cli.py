"""Command line of ``python -m devcluster``."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from devcluster import enter, external, images, imagespec, lifecycle, state
from devcluster.errors import DevClusterError
from devcluster.keeper import read_processes
from devcluster.paths import DEFAULT_NAME, ClusterPaths, cluster_paths

_err = Console(stderr=True, highlight=False)


def _say(line: str) -> None:
    _err.print(f"[dim]devcluster[/dim] {line}", soft_wrap=True)


class _Group(click.Group):
    """Prints our own errors as one plain message and ends with code 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except DevClusterError as error:
            click.echo(f"devcluster: {error}", err=True)
            sys.exit(1)


def _paths(_ctx: click.Context, _param: click.Parameter, value: str) -> ClusterPaths:
    return cluster_paths(value)


name_option = click.option(
    "--name", "paths", default=DEFAULT_NAME, show_default=True, envvar="LEASEQUEUE_DEVCLUSTER_NAME", callback=_paths,
    help="Which cluster; several can run side by side.",
)  # fmt: skip


@click.group(cls=_Group)
def main() -> None:
    """A real one-node Kubernetes on this machine, for LeaseQueue's tests and demo.

    With KUBECONFIG set, that cluster is used and nothing is started.
    """


@main.command()
def build() -> None:
    """Install, build and cache everything a cluster needs, without starting one."""
    lifecycle.check_machine()
    tools = lifecycle.ensure_tools(_say)
    for name, path in sorted(tools.programs.items()):
        click.echo(f"{name}\t{path}")


@main.command()
@name_option
@click.option("--with-parent", type=click.IntRange(min=2), metavar="PID", help="End the cluster when this process ends.")
def up(paths: ClusterPaths, with_parent: int | None) -> None:
    """Start the cluster and wait until it takes pods; on a healthy one, return at once."""
    if external.kubeconfig():
        _say(external.check())
        return
    began = time.monotonic()
    started = lifecycle.up(paths, _say, with_parent)
    what = "is up" if started else "was up already"
    _say(f"cluster {paths.name!r} {what} ({time.monotonic() - began:.1f} s); KUBECONFIG inside: {paths.kubeconfig}")


@main.command()
@name_option
def down(paths: ClusterPaths) -> None:
    """End the cluster and remove all traces of it; harmless where there is none."""
    if external.kubeconfig():
        _say("KUBECONFIG is set: that cluster is not ours to end")
        return
    began = time.monotonic()
    existed = lifecycle.down(paths)
    _say(f"cluster {paths.name!r} " + (f"is gone ({time.monotonic() - began:.1f} s)" if existed else "was not there"))


@main.command()
@name_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(paths: ClusterPaths, as_json: bool) -> None:
    """Show whether the cluster is up, its parts and restarts; exit code 1 if it is not ready."""
    processes, seen = read_processes(paths), state.read(paths.state)
    alive = processes is not None and processes.alive
    phase = seen.phase if alive and seen is not None else ("dead" if paths.run.exists() else "absent")
    if as_json:
        init = processes.init.pid if alive and processes is not None else None
        found = {} if seen is None else {"milestones": seen.milestones, "restarts": seen.restarts}
        click.echo(json.dumps({"name": paths.name, "phase": phase, "init_pid": init, **found}))
    else:
        _print_status(paths, phase, seen)
    sys.exit(0 if phase == state.READY else 1)


def _print_status(paths: ClusterPaths, phase: str, seen: state.State | None) -> None:
    click.echo(f"cluster {paths.name}: {phase}" + (f" ({seen.message})" if seen and seen.message else ""))
    if phase in ("absent", "dead") or seen is None:
        return
    table = Table("part", "pid inside", "restarts")
    for name, pid in seen.pids.items():
        table.add_row(name, str(pid), str(seen.restarts.get(name, 0)))
    Console().print(table)
    click.echo("ready after: " + ", ".join(f"{name} {seconds} s" for name, seconds in seen.milestones.items()))


@main.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@name_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def execute(paths: ClusterPaths, command: tuple[str, ...]) -> None:
    """Run COMMAND in the cluster's namespaces, with KUBECONFIG set and kubectl and helm on PATH."""
    if external.kubeconfig():
        try:
            os.execvp(command[0], list(command))  # noqa: S606 - running a command is what exec is for
        except OSError as error:
            raise DevClusterError(f"cannot run {command[0]}: {error.strerror}") from error
    sys.exit(enter.run(_init_pid(paths), command, enter.environment(paths, dict(os.environ))))


def _init_pid(paths: ClusterPaths) -> int:
    processes = read_processes(paths)
    if processes is None or not processes.alive:
        raise DevClusterError(f"cluster {paths.name!r} is not up: run 'python -m devcluster up --name {paths.name}'")
    return processes.init.pid


@main.command()
@name_option
@click.argument("archives", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def load(paths: ClusterPaths, archives: tuple[Path, ...]) -> None:
    """Import image ARCHIVES (docker or OCI, as tar files) into the cluster.

    With KUBECONFIG set, LEASEQUEUE_IMAGE_LOADER says how: 'kind load image-archive {archive}'.
    """
    if external.kubeconfig():
        external.load(archives)
        return
    _init_pid(paths)
    for archive in archives:
        images.import_archive(paths, archive)
        _say(f"loaded {archive}")


@main.command("images")
@name_option
@click.argument("names", nargs=-1)
@click.option("--no-load", is_flag=True, help="Build only; do not give the images to a cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print the names of the images as one JSON object.")
def build_images(paths: ClusterPaths, names: tuple[str, ...], no_load: bool, as_json: bool) -> None:
    """Build the project's images (operator, worker, reclaimer, postgres) where they changed, and load them.

    Each gets the tag "dev" and a tag made of its content.
    """
    if not no_load and not external.kubeconfig():
        _init_pid(paths)
    lifecycle.check_machine()
    built = images.build(imagespec.select(names), _say)
    if not no_load:
        images.load(paths, built, _say)
    if as_json:
        click.echo(json.dumps({image.spec.repository: f"{image.spec.repository}:{image.key}" for image in built}))
    else:
        for image in built:
            click.echo(f"{image.spec.repository}:{image.key}")


@main.command("sbom")
@click.argument("names", nargs=-1)
@click.option(
    "--output", default="build/sbom", show_default=True, type=click.Path(file_okay=False, path_type=Path), help="Folder."
)
def write_sbom(names: tuple[str, ...], output: Path) -> None:
    """Write what the images are made of: a CycloneDX file each, with their Debian and Python packages. Builds images that changed."""
    from devcluster import sbom  # its library is needed by nothing else

    lifecycle.check_machine()
    for image in images.build(imagespec.select(names), _say):
        click.echo(str(sbom.write(image, output)))


@main.command()
@name_option
@click.argument("parts", nargs=-1)
@click.option("--lines", default=50, show_default=True, type=click.IntRange(min=1), help="Last lines of each log.")
def logs(paths: ClusterPaths, parts: tuple[str, ...], lines: int) -> None:
    """Print the last lines of the logs of PARTS (all, if none is named)."""
    folder = paths.logs if paths.logs.exists() else lifecycle.kept_logs(paths)
    found = {file.stem: file for file in sorted(folder.glob("*.log"))}
    if unknown := [part for part in parts if part not in found]:
        raise DevClusterError(f"no log of {', '.join(unknown)}; there is {', '.join(found) or 'none'}")
    for part in parts or found:
        click.echo(f"==> {found[part]} <==")
        click.echo("\n".join(found[part].read_text(errors="replace").splitlines()[-lines:]))
