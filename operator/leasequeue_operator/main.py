"""`leasequeue-operator`: the command line."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, get_args

import click
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from leasequeue.process.options import Command
from leasequeue_operator import logs
from leasequeue_operator.app import Operator
from leasequeue_operator.election import LostLease
from leasequeue_operator.kube import login
from leasequeue_operator.settings import Settings, own_version

_REPEATED = {
    "watch_namespaces": "--namespace",
    "image_pull_secrets": "--image-pull-secret",
    "monitor_labels": "--monitor-label",
}


def _help(name: str, field: FieldInfo) -> str:
    """Description, bounds, default and variable of one setting."""
    bounds = {type(m).__name__: m for m in field.metadata}
    low, high = getattr(bounds.get("Ge"), "ge", None), getattr(bounds.get("Le"), "le", None)
    choices = get_args(field.annotation) if isinstance(field.default, str) else ()
    told = [field.description or ""]
    if choices:
        told.append(f"One of {', '.join(choices)}.")
    if low is not None:
        told.append(f"Range: {low} to {high}.")
    if field.default not in ((), None, PydanticUndefined):
        told.append(f"Default: {field.default}.")
    return " ".join([*told, f"[LEASEQUEUE_{name.upper()}]"])


def _options(command: Any) -> Any:
    for name, field in reversed(Settings.model_fields.items()):
        flag = _REPEATED.get(name, "--" + name.replace("_", "-"))
        command = click.option(flag, name, multiple=name in _REPEATED, default=None, help=_help(name, field), metavar="VALUE")(
            command
        )
    return command


@click.command(cls=Command, context_settings={"max_content_width": 100})
@_options
@click.version_option(own_version())
def main(**flags: Any) -> None:
    """Serve LeaseQueue resources: scale workers by the depth of their queues, run reclaimers, alert.

    Logs in with the pod's ServiceAccount, or with KUBECONFIG outside a cluster. One process serves all namespaces, or
    those named with --namespace.
    """
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    try:
        settings = Settings(**given)
    except ValidationError as ex:
        first = ex.errors(include_url=False)[0]
        name = str(first["loc"][0])
        flag = _REPEATED.get(name, "--" + name.replace("_", "-"))
        raise click.UsageError(f"{flag} (LEASEQUEUE_{name.upper()}): {first['msg']}; got {first['input']!r}.") from None
    logs.configure(settings.log_level)
    sys.exit(asyncio.run(_run(settings)))


async def _run(settings: Settings) -> int:
    from kubernetes.aio.config import ConfigException

    try:
        configuration = await login()
    except ConfigException as ex:
        click.echo(f"No login to a Kubernetes API server: {ex}. Run in a pod, or set KUBECONFIG.", err=True)
        return 2
    try:
        await Operator(settings, configuration).run()
    except asyncio.CancelledError:
        return 0  # SIGTERM before it served
    except LostLease as ex:
        click.echo(f"{ex}; another replica acts.", err=True)
        return 1
    return 0


if __name__ == "__main__":
    main()
